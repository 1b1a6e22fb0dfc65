// SPDX-License-Identifier: Apache-2.0
// The links that are measured: a packet socket at each end, and the packets that arrive.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define NS_PER_S 1000000000ll
#define NS_PER_US 1000ll

enum { UP, DOWN, DIRECTIONS }; // UP: from the host to the switch

// delays_ns: of each arrival. reordered: arrivals after a packet that was sent later.
struct measured {
	uint32_t sent;
	uint32_t received;
	uint32_t reordered;
	uint32_t room;
	int64_t last_sequence;
	int64_t *delays_ns;
};

struct link {
	char name[32];
	uint32_t number;
	uint8_t address[6];  // of the host's interface
	int fds[DIRECTIONS]; // the socket that sends in a direction; it receives in the other one
	struct measured measured[DIRECTIONS];
};

// Reads a line for each link: NAME HOST_NAMESPACE HOST_INTERFACE SWITCH_NAMESPACE SWITCH_INTERFACE. A namespace is the
// path of a network namespace. Ends the program if something is wrong.
struct link *links_open(const char *path, uint32_t packets, size_t *count);

// Sends a packet of `bytes` bytes with the time in a direction.
void probe_send(struct link *link, int direction, uint32_t bytes);

// Reads all packets that have arrived in a direction.
void probe_receive(struct link *link, int direction);

// CLOCK_REALTIME, in which the kernel stamps packets.
int64_t realtime_ns(void);

__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...);
