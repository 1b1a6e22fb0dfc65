/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether a Linux receiver delays its ACKs although segments have PSH. It does so while it takes the connection for
 * interactive (inet_csk_in_pingpong_mode), in the hope that the ACK goes with an answer. This is a model of that, from
 * the packets that pass:
 * - `ato` follows the time between segments, from 40 ms to 200 ms (tcp_event_data_recv);
 * - the connection becomes interactive if the receiver sends payload within `ato` after payload (tcp_event_data_sent);
 * - the timer of a delayed ACK ends that, and sets `ato` to 40 ms. If the connection was not interactive, the timer
 *   doubles `ato` (tcp_delack_timer_handler).
 *
 * The host counts in ticks, and its times are those behind the port's queue. So the model takes a connection for
 * interactive a little longer than the host. It then sends a keep-alive without need (flow_remedy). In the other case
 * each segment would wait 40 ms. `member` has the state (docs/decisions/0116-interactive-receivers.md).
 */
#ifndef WEIR_ATO_H
#define WEIR_ATO_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_structs.h"
#include "weir_window.h"

static __always_inline __u32 ato_ms(const struct weir_flow *flow)
{
	return LEAST_ATO_MS + (flow->member >> WEIR_ATO & WEIR_ATO_MASK);
}

static __always_inline void ato_set(struct weir_flow *flow, __u32 ms)
{
	__u32 most = ms < MOST_ATO_MS ? ms : MOST_ATO_MS, more = most > LEAST_ATO_MS ? most - LEAST_ATO_MS : 0;

	if (ato_ms(flow) == LEAST_ATO_MS + more)
		return;
	__sync_fetch_and_and(&flow->member, ~((__u32)WEIR_ATO_MASK << WEIR_ATO));
	__sync_fetch_and_or(&flow->member, more << WEIR_ATO);
}

/* A time that has passed at the port is no longer than this shorter one at the host behind it. */
static __always_inline __u64 ato_least_ms(const struct weir_port *port, __u64 passed_ns)
{
	__u64 less_ns = ATO_TICKS_NS;

	if (port->capacity_bps)
		less_ns += weir_drain_ns(port->buffer_bytes, port->capacity_bps);
	return passed_ns > less_ns ? (passed_ns - less_ns) / NS_PER_MS : 0;
}

/* Payload leaves by the port so long after the payload before it. */
static __always_inline void ato_note_payload(struct weir_flow *flow, const struct weir_port *port, __u64 passed_ns)
{
	__u32 ato, next;

	if (passed_ns <= LEAST_ATO_MS * NS_PER_MS / 2 && !(flow->member >> WEIR_ATO & WEIR_ATO_MASK))
		return;
	ato = ato_ms(flow);
	if (ato_least_ms(port, passed_ns) >= ato)
		return;
	next = passed_ns / NS_PER_MS < ato ? passed_ns / NS_PER_MS : ato;
	ato_set(flow, ato / 2 + (next > LEAST_ATO_MS / 2 ? next : LEAST_ATO_MS / 2));
}

/* The local host sends payload so long after payload that left to it. */
static __always_inline bool ato_makes_interactive(const struct weir_flow *flow, const struct weir_port *port,
						  __u64 passed_ns)
{
	return ato_least_ms(port, passed_ns) < ato_ms(flow);
}

/* The timer of a delayed ACK has run out. True if the connection was interactive until then. */
static __always_inline bool ato_note_timer(struct weir_flow *flow)
{
	bool was_interactive = __sync_fetch_and_and(&flow->member, ~(__u32)WEIR_INTERACTIVE) & WEIR_INTERACTIVE;

	ato_set(flow, was_interactive ? LEAST_ATO_MS : 2 * ato_ms(flow));
	return was_interactive;
}

/* The receiver gets a keep-alive: the connection is interactive no longer (tcp_enter_quickack_mode). */
static __always_inline void ato_note_keep_alive(struct weir_flow *flow)
{
	__sync_fetch_and_and(&flow->member, ~(__u32)WEIR_INTERACTIVE);
	ato_set(flow, LEAST_ATO_MS);
}

#endif
