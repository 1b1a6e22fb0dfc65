// SPDX-License-Identifier: Apache-2.0
#include "heap.h"

#include <stdlib.h>

#define FIRST_ROOM 4096

static bool before(const struct packet *one, const struct packet *other)
{
	return one->due_ns < other->due_ns || (one->due_ns == other->due_ns && one->order < other->order);
}

static bool grow(struct heap *heap)
{
	size_t room = heap->room ? 2 * heap->room : FIRST_ROOM;
	struct packet **packets = realloc(heap->packets, room * sizeof *packets);
	if (!packets)
		return false;
	heap->packets = packets;
	heap->room = room;
	return true;
}

bool heap_push(struct heap *heap, struct packet *packet)
{
	if (heap->count == heap->room && !grow(heap))
		return false;
	size_t place = heap->count++;
	for (size_t parent; place && before(packet, heap->packets[parent = (place - 1) / 2]); place = parent)
		heap->packets[place] = heap->packets[parent];
	heap->packets[place] = packet;
	return true;
}

struct packet *heap_first(const struct heap *heap)
{
	return heap->count ? heap->packets[0] : NULL;
}

struct packet *heap_pop(struct heap *heap)
{
	if (!heap->count)
		return NULL;
	struct packet *first = heap->packets[0];
	struct packet *moved = heap->packets[--heap->count];
	size_t place = 0;
	for (size_t child; (child = 2 * place + 1) < heap->count; place = child) {
		if (child + 1 < heap->count && before(heap->packets[child + 1], heap->packets[child]))
			child++;
		if (!before(heap->packets[child], moved))
			break;
		heap->packets[place] = heap->packets[child];
	}
	if (heap->count)
		heap->packets[place] = moved;
	return first;
}
