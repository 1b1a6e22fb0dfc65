// SPDX-License-Identifier: Apache-2.0
// What flows need of a transport. Each traffic program has one. Functions that cannot go on end the program with an
// error record.
#pragma once
#include <stdint.h>
#include <sys/epoll.h>

#include "flows.h"

// Begins the connection of a flow to its peer, at the port of the options.
void transport_connect(struct flow *flow);

// Goes on after an event of what the transport watches. It calls flow_connected, flow_take and flow_complete.
void transport_advance(const struct epoll_event *event);

// Puts the transport's figures of a flow into the record that is begun.
void transport_put_figures(const struct flow *flow);

// Sends what the transport has taken of a flow, closes, and waits until the peer has read it.
void transport_finish(struct flow *flow);
