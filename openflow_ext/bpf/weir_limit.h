/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether a port's window is what limits a flow. Only then a larger allowance lets the flow send more
 * (docs/decisions/0068-flows-that-the-window-limits.md).
 *
 * TCP timestamps (RFC 7323) show it at any RTT. An ACK with the timestamp v permits the sender to send up to an edge.
 * The segments that the sender sends next echo v. If they reach the edge, the window was the limit. If the sender
 * echoes a later timestamp and has not reached the edge, then its cwnd or its application was.
 *
 * If several flows share the port, each second watch asks whether the flow uses little of its window (weir_use.h).
 *
 * A Linux sender may keep back up to a third of its window, to send more at once (tcp_tso_should_defer), and less than
 * a segment.
 *
 * A flow without timestamps counts as limited whenever the port lowers its window.
 *
 * A receiver that offers little of the flow's share needs no watch: the flow uses at most what it offers.
 *
 * From that ACK to the one that acknowledges the segment at the edge is a round trip. The segment waits in the port's
 * queue meanwhile, which takes as long as the queue's bytes need on the link, and that time is left out. The shortest
 * round trip bounds the allowance (allowance_most).
 */
#ifndef WEIR_LIMIT_H
#define WEIR_LIMIT_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_allowance.h"
#include "weir_consts.h"
#include "weir_flow_bits.h"
#include "weir_parse.h"
#include "weir_sequence.h"
#include "weir_structs.h"
#include "weir_use.h"

static __always_inline __u16 limit_now(void)
{
	return bpf_ktime_get_ns() >> ROUND_TRIP_SHIFT;
}

/* A flow that sends so much of its window is limited by it. */
static __always_inline __u32 limit_of_full_use(const struct weir_flow *flow, __u32 window_bytes)
{
	return window_bytes - window_bytes / KEPT_BACK_FRACTION - flow->max_payload;
}

/*
 * A flow that does not send so much of its window uses little of it. It is less than what shows a limit one step later,
 * so that a flow does not go to and fro between both. A window of few segments is a least window, which does not depend
 * on the weight. There one segment is little.
 */
static __always_inline __u32 limit_of_little_use(const struct weir_flow *flow, __u32 window_bytes)
{
	__u32 segment = flow->max_payload, part = window_bytes * USE_PART / 16;

	if (window_bytes < 2 * segment)
		return 0;
	return part > 2 * segment ? part - segment : segment + 1;
}

/*
 * The port lowers the window of this segment to window_bytes. The sequence number that would show that this limits the
 * flow, or that it uses little, is noted, unless another one is. Below half of the queue an allowance may grow in any
 * case, so nothing is noted for a flow with a whole share.
 */
static __always_inline void limit_note_window(struct weir_flow *flow, const struct weir_port *port,
					      struct weir_port_state *state, struct cursor c, const struct tcphdr *tcp,
					      __u32 window_bytes)
{
	const struct timestamps_option *timestamps;

	if (flow->flags & (WEIR_WATCHED | WEIR_TIMED | WEIR_RELEASED) ||
	    (state->allowance_bytes <= port->buffer_bytes / 2 && !use_step(flow, WEIR_USE_NEXT)))
		return;
	timestamps = parse_timestamps(c, tcp);
	if (!timestamps) {
		state->window_limits |= 1;
		return;
	}
	flow->watched_timestamp = bpf_ntohl(timestamps->value);
	flow->watched_at = limit_now();
	flow->watched_seq =
		bpf_ntohl(tcp->ack_seq) + (flow->flags & WEIR_WATCHES_USE ? limit_of_little_use(flow, window_bytes)
									  : limit_of_full_use(flow, window_bytes));
	flow_set(flow, WEIR_WATCHED);
}

/*
 * The port does not lower the window of this segment, because its receiver offers no more than the flow's share, which
 * is allowance / divisor. While a lowered window is watched, a single smaller one says nothing yet.
 */
static __always_inline void limit_note_offer(struct weir_flow *flow, const struct weir_port_state *state,
					     __u32 offered_bytes, __u64 allowance, __u64 divisor)
{
	if (flow->flags & (WEIR_WATCHED | WEIR_TIMED | WEIR_RELEASED) || state->n_i < 2)
		return;
	if ((offered_bytes + flow->max_payload) * divisor < allowance * USE_PART / 16)
		use_note_little(flow);
}

/* Payload of a watched flow leaves by the port. */
static __always_inline void limit_note_payload(struct weir_flow *flow, const struct weir_port *port,
					       struct weir_port_state *state, struct cursor c, const struct tcphdr *tcp,
					       __u32 payload)
{
	const struct timestamps_option *timestamps;
	__u32 end = bpf_ntohl(tcp->seq) + payload;
	__s16 later;

	if (!(flow->flags & WEIR_WATCHED))
		return;
	timestamps = parse_timestamps(c, tcp);
	if (!timestamps) {
		flow_clear(flow, WEIR_WATCHED);
		return;
	}
	later = bpf_ntohl(timestamps->echo) - flow->watched_timestamp;
	if (later < 0)
		return;
	if (!later && !sequence_up_to(flow->watched_seq, end))
		return;
	flow_clear(flow, WEIR_WATCHED);
	if (flow->flags & WEIR_WATCHES_USE) {
		if (later)
			use_note_little(flow);
		else
			flow_clear(flow, WEIR_WATCHES_USE);
		return;
	}
	if (state->n_i > 1 && (later || !use_step(flow, WEIR_USE_NEXT)))
		flow_set(flow, WEIR_WATCHES_USE);
	if (later)
		return;
	state->window_limits |= 1;
	use_note_limited(flow);
	flow->watched_seq = end;
	flow->watched_at += allowance_link_ns(port, state->queue_bytes) >> ROUND_TRIP_SHIFT;
	flow_set(flow, WEIR_TIMED);
}

/* The local host acknowledges. */
static __always_inline void limit_note_ack(struct weir_flow *flow, struct weir_port_state *state,
					   const struct tcphdr *tcp)
{
	__u16 took, shortest = state->round_trip[0];

	if (!(flow->flags & WEIR_TIMED) || !sequence_up_to(flow->watched_seq, bpf_ntohl(tcp->ack_seq)))
		return;
	flow_clear(flow, WEIR_TIMED);
	took = limit_now() - flow->watched_at;
	if (!took)
		took = 1;
	if (!shortest || took < shortest)
		state->round_trip[0] = took;
}

#endif
