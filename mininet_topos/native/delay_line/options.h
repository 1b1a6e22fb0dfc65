// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdint.h>

// priority: of SCHED_FIFO; 0: none. memory_bytes: the most that waiting packets may hold.
struct options {
	const char *links;
	int priority;
	uint64_t seed;
	uint64_t memory_bytes;
	unsigned ring_frames;
};

// Reads the command line. Ends the program with status 2 if it is wrong.
struct options parse_options(int argc, char **argv);
