// SPDX-License-Identifier: Apache-2.0
// Flows that start at a given time, each on a connection of its own: what flows.c does for every transport.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define ENDLESS UINT64_MAX
#define FINISH_TIMEOUT_S 8 // until a peer has read the rest of a flow that SIGTERM ended

enum flow_state { FLOW_WAITING, FLOW_CONNECTING, FLOW_SENDING, FLOW_FINISHING, FLOW_DONE };

struct flow {
	enum flow_state state;
	uint32_t number;      // its line in the plan, from 0
	uint64_t start_ns;    // when it shall start; once it has started, when it did
	uint64_t deadline_us; // after its start; 0: it has none
	char peer[64];        // the peer's address
	uint64_t to_send;     // bytes that the transport has not taken; ENDLESS: no end
	uint64_t taken_bytes; // bytes that the transport has taken
	int64_t handle;       // of the connection, as its transport names it
};

// Whether a flow has a connection that is not closed.
bool flow_is_open(const struct flow *flow);

// The connection of a flow is open: records it. The transport sends from now on.
void flow_connected(struct flow *flow);

// The transport has taken `bytes` of a flow. Returns whether that was the last of it; then the flow is finishing.
bool flow_take(struct flow *flow, uint64_t bytes);

// How many bytes of a flow a transport holds unsent that sends at the application's rate: few, because the end of a run
// waits for them.
uint64_t flow_most_unsent_bytes(void);

// The peer has all of a flow: records it with its completion time. `now` is when the sender learned so.
void flow_complete(struct flow *flow, uint64_t now);
