// SPDX-License-Identifier: Apache-2.0
// The delay line: receives packets, holds each until it is due, and sends it to the other side of its link.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "heap.h"
#include "link.h"

// lateness: of all packets; stalls: wake-ups that were late by more than STALL_NS. Both since the last report.
// clock_steps: packets whose time stamp could not be used because CLOCK_REALTIME had been set.
struct line {
	const char *path; // of the links' file
	struct link *links;
	size_t link_count;
	struct heap waiting;
	uint64_t waiting_bytes;
	uint64_t memory_bytes;
	uint64_t random_state;
	uint64_t arrivals;
	int64_t poll_ns;
	int64_t batch_ns;
	int64_t looked_ns;
	int epoll;
	int signals;
	int removals;
	struct lateness lateness;
	uint64_t stalls;
	int64_t longest_stall_ns;
	uint64_t clock_steps;
};

#define STALL_NS 1000000ll

int64_t monotonic_ns(void);

// Prepares the line. SIGTERM, SIGINT, SIGUSR1 and SIGHUP are blocked from now on: line_run() reads them.
void line_init(struct line *line);

// Runs until SIGTERM or SIGINT, or until an interface is removed, and counts the packets that still wait as discarded.
// SIGUSR1 writes a report; SIGHUP reads the impairments again. Returns the exit status.
int line_run(struct line *line);

// Takes every packet out of the rings.
void line_receive_all(struct line *line);

// Sends the packets that are due, in batches of one port each: the next batch begins when the port changes or the batch
// is full.
void line_send_due(struct line *line);
