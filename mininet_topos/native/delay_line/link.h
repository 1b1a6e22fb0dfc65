// SPDX-License-Identifier: Apache-2.0
// The links of the delay line: two interfaces each, and an impairment and counters for each direction.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "impairment.h"
#include "lateness.h"
#include "port.h"

// received + duplicated = sent + lost + too_large + no_room + refused + waiting (direction) + discarded
// lost: on purpose. overtaking: sent without delay while others waited. too_large: longer than the ring's frames, and
// the kernel kept no copy. no_room: the memory for waiting packets was used up. refused: by the kernel, at the other
// interface. discarded: still waiting when the program ended.
struct counts {
	uint64_t received;
	uint64_t duplicated;
	uint64_t sent;
	uint64_t lost;
	uint64_t overtaking;
	uint64_t too_large;
	uint64_t no_room;
	uint64_t refused;
	uint64_t discarded;
};

// lateness: since the last report.
struct direction {
	const char *name;
	struct impairment impairment;
	struct port *from;
	struct port *to;
	int64_t last_due_ns;
	uint64_t waiting;
	struct counts counts;
	struct lateness lateness;
};

enum { UP, DOWN, DIRECTIONS }; // UP: from the host to the switch
enum { HOST_SIDE, SWITCH_SIDE, SIDES };

// first_received, first_sent: the counters of the interfaces when the links were opened.
struct link {
	char name[32];
	struct port ports[SIDES];
	uint64_t first_received[SIDES];
	uint64_t first_sent[SIDES];
	struct direction directions[DIRECTIONS];
};

// Reads the links of a file, a line each: NAME HOST_INTERFACE SWITCH_INTERFACE UP DOWN. The last two are settings of
// impairment_parse(). Opens the interfaces. Ends the program if something is wrong.
struct link *links_open(const char *path, unsigned ring_frames, size_t *count);

// Reads the impairments of the links from the file again. Returns NULL, or the error; then nothing has changed. The
// file must name the same links in the same order.
const char *links_read_impairments(const char *path, struct link *links, size_t count);

// Whether every interface still exists.
bool links_exist(const struct link *links, size_t count);

// Reads the interfaces' counters. An interface that is gone keeps its last values.
void links_read_kernel_counts(struct link *links, size_t count);
