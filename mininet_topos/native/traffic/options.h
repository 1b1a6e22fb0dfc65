// SPDX-License-Identifier: Apache-2.0
// The options of the traffic programs. Which role needs which: see the main.c of each.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define MAX_RESPONSE_BYTES (64u << 20)

struct options {
	const char *host;        // the name that records carry
	const char *destination; // address of the sink of a source
	const char *workers;     // "name=address[/congestion control] ..." of a root
	const char *schedstat;   // file with the scheduling statistics of the switch's thread
	const char *plan;        // file with planned flows
	const char *cc;          // congestion control of TCP sockets
	const char *key_file;    // of DCUDP
	int port;
	uint32_t response_bytes, queries, gap_ms, period_ms, sample_ms;
	uint32_t mss_bytes;   // the largest MSS of a worker's connections, with TCP options; 0: that of the path
	uint32_t deadline_us; // of a worker's response, after its request has arrived; 0: none
	uint64_t start_ns;    // time 0 of the plan, or of a root's first query (0: at once), CLOCK_MONOTONIC
	uint64_t link_bps;    // of DCUDP: capacity of the bottleneck, in bits of UDP payload
	uint64_t rate_bps;    // of DCUDP: what the application of a flow offers
	bool fresh;           // a new connection for each query
};

extern struct options options;

// Fills `options`; ends the program with an error record if a value is wrong.
void parse_options(int argc, char **argv);
