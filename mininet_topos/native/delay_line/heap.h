// SPDX-License-Identifier: Apache-2.0
// The packets that wait, ordered by due time and then by arrival: a binary heap. Pure.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "packet.h"

struct heap {
	struct packet **packets;
	size_t count;
	size_t room;
};

// Returns false if memory is short; the heap is unchanged then.
bool heap_push(struct heap *heap, struct packet *packet);

// The packet that is due first; NULL if none waits.
struct packet *heap_first(const struct heap *heap);

// Takes out the packet that is due first; NULL if none waits.
struct packet *heap_pop(struct heap *heap);
