/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Segment fitting: a fair share of less than one segment is of no use to a host that avoids silly windows (RFC 9293,
 * section 3.8.6.2). So the switch changes what a host behind an SCCP port, or a port that corrects its allowance,
 * offers in its SYN or SYN-ACK:
 * - a finer window scale (weir_finer); the host's windows are translated from then on (flow_translated_field);
 * - an MSS that is a whole number of window steps, and so small that the queue can hold a segment of each flow.
 * The least window of such a flow holds exactly one segment, without a runt. The segment leaves with PSH, because
 * Linux acknowledges pushed data when it is read instead of by the delayed ACK. A flow whose receiver delays its ACK
 * nevertheless gets two segments, or keep-alives (flow_remedy). Each flow has two if there are few
 * (docs/decisions/0013-segment-fitting.md).
 *
 * How many flows to expect follows from the crowd (weir_crowd.h). While there are more flows than that, the port
 * expects twice as many as there are; SYNs of a burst that have no answer are counted too. A SYN whose first option is
 * not the MSS is not changed; all known hosts send the MSS first.
 */
#ifndef WEIR_MSS_H
#define WEIR_MSS_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_allowance.h"
#include "weir_consts.h"
#include "weir_crowd.h"
#include "weir_edit.h"
#include "weir_flow.h"
#include "weir_flow_bits.h"
#include "weir_parse.h"
#include "weir_rules.h"
#include "weir_share.h"
#include "weir_structs.h"
#include "weir_window.h"

#define MSS_OFFSET (sizeof(struct tcphdr) + 2)

/* A change to a 16-bit word of a TCP header, in network order; at 0: no change. */
struct header_edit {
	__u16 at;
	__u16 after;
};

enum syn_edit { EDIT_MSS, EDIT_SCALE, EDIT_WINDOW, SYN_EDITS };

/* The number of flows for which the port must be ready while `flow` and others are being opened. */
static __always_inline __u32 crowd_expected(const struct weir_port_state *state, const struct weir_flow *flow,
					    __u32 crowd)
{
	__u32 known = state->n_i + !(flow->member & WEIR_IN_N_I);
	__u32 flows = state->burst_flows > known ? state->burst_flows : known;

	return flows > crowd ? 2 * flows : crowd;
}

/*
 * A flow is being opened: the number of flows for which the port must be ready, a quarter more than in the crowd. So
 * the next round may be larger, and hosts that stood still may send all at once. The first SYN of a burst may be that
 * of a single flow, which keeps its MSS for long. So it does not expect a crowd of more than twice the flows.
 */
static __always_inline __u32 crowd_note_syn(struct weir_port_state *state, const struct weir_flow *flow, __u64 now_ns)
{
	bool first = now_ns - state->burst_start_ns > BURST_NS;
	__u32 crowd = crowd_remembered(state, now_ns), alone;

	if (first) {
		state->burst_start_ns = now_ns;
		state->burst_flows = state->n_i - !!(flow->member & WEIR_IN_N_I);
	}
	__sync_fetch_and_add(&state->burst_flows, 1);
	alone = crowd_expected(state, flow, 0);
	if (alone > 2 * crowd || (first && alone < crowd))
		return alone;
	return crowd + crowd / 4;
}

/*
 * The flows that have to fit into the queue with a segment each when this one is opened. A port without a fair share
 * limits punished flows only, so no number of flows is sure to fit.
 */
static __always_inline __u32 mss_flows_to_fit(const struct weir_port *port, struct weir_port_state *state,
					      const struct weir_flow *flow)
{
	return port->bdp_bytes ? crowd_note_syn(state, flow, bpf_ktime_get_ns()) : 1;
}

/*
 * Changes what the host behind the port offers. True if the segments that it will receive are whole numbers of its
 * window steps. A global function, which the verifier checks once.
 */
__noinline int mss_fit_offer(const struct weir_port *port, struct weir_port_state *state, const struct weir_flow *flow,
			     const struct tcp_options *options, struct weir_offer *offer)
{
	__u32 extra, scale, segment;

	if (!port || !state || !flow || !options || !offer)
		return 0;
	extra = offer->timestamps ? TIMESTAMPS_LEN : 0;
	if (!(port->bdp_bytes || port->link_ns) || !port->buffer_bytes || port->omits & WEIR_OMIT_FITTING)
		return 0;
	if (options->bytes[0] != TCPOPT_MSS || options->bytes[1] != TCPOPT_MSS_LEN || offer->mss <= extra)
		return 0;
	if (!(port->omits & WEIR_OMIT_FINER_SCALE) && options->scale_offset &&
	    options->bytes[options->scale_offset & OPTIONS_MASK] == offer->scale)
		offer->scale -= weir_finer(offer->scale);
	scale = offer->scale == WEIR_NO_SCALE ? 0 : offer->scale;
	segment = weir_fitted_segment(port->buffer_bytes + port->bdp_bytes, mss_flows_to_fit(port, state, flow),
				      offer->mss - extra, scale);
	offer->mss = segment + extra;
	return !(segment & ((1u << (scale & 31)) - 1));
}

/* The words of a SYN's header that the changed offer changes: the MSS, and the word with the window scale. */
static __always_inline void mss_syn_edits(struct header_edit *edits, const struct tcp_options *options,
					  const struct weir_offer *own, const struct weir_offer *offer)
{
	__u32 at = options->scale_offset & (OPTIONS_MASK - 1), less = own->scale - offer->scale;
	__u16 word = options->bytes[at] << 8 | options->bytes[at + 1];

	if (offer->mss != own->mss)
		edits[EDIT_MSS] = (struct header_edit){MSS_OFFSET, bpf_htons(offer->mss)};
	if (less)
		edits[EDIT_SCALE] = (struct header_edit){
			sizeof(struct tcphdr) + at, bpf_htons(word - (options->scale_offset & 1 ? less : less << 8))};
}

/*
 * Whether a flow's least window holds one segment, or else two. Few flows get two, because with one the sender waits
 * until its reader has run, and the common RTT is chosen from handshakes, which do not include that time. A corrected
 * allowance does include it, so that only flows whose share with their headroom is two segments get two. A flow that
 * uses little of its share gets two as well: with one, each of its segments would fill its window (weir_limit.h). The
 * others may have larger segments, of which two do not fit. Not inlined, because the stack of the programs has no room.
 */
static __noinline int floor_is_one_segment(const struct weir_flow *flow, const struct weir_port *port,
					   const struct weir_port_state *state, const struct rule_query *q)
{
	__u32 mss = q->mss, segment = flow_segment_to_fit(state, mss);
	__u64 flows = q->divisor, to_fit = flows;

	if (flow->member & WEIR_IN_TWO_SEGMENTS)
		return false;
	if (state->by_host_turns) /* the sum of the weights is that of the hosts, of which each may have many flows */
		to_fit += WEIR_FULL_WEIGHT * share_active_senders(port, state, q->now_ns);
	if (2 * (segment + WEIR_HEADERS) * to_fit > (__u64)port->buffer_bytes * share_full_weight(port))
		return true;
	if (!port->link_ns)
		return mss * flows > 2 * q->allowance;
	return !use_step(flow, WEIR_USE_LAST) && q->allowance < (2 * mss - q->headroom_bytes) * flows;
}

/*
 * Whether one flow's share may grow now: the queue is short, and the link has had twice the time that it needs for the
 * previous growth.
 */
static __always_inline bool share_may_grow(const struct weir_port *port, struct weir_port_state *state, __u64 bytes,
					   __u32 max_queue_bytes)
{
	__u64 now_ns = bpf_ktime_get_ns();

	if (!port->capacity_bps || state->queue_bytes > max_queue_bytes || now_ns < state->next_growth_ns)
		return false;
	state->next_growth_ns = now_ns + weir_drain_ns(2 * bytes, port->capacity_bps);
	return true;
}

/* The weight of the flows of the next round: each has a full one, except for punished flows that send now. */
static __always_inline __u64 crowd_weight(const struct weir_port *port, const struct weir_port_state *state,
					  __u64 now_ns)
{
	__u64 crowd = (__u64)share_full_weight(port) * crowd_now(state, now_ns);
	__u64 missing = port->link_ns ? share_missing_weight(port, state, now_ns) : 0;

	return crowd > missing ? crowd - missing : crowd;
}

/*
 * The flows among which the port is shared, for this flow: the sum of their weights. For a flow that waits for a round
 * it is the crowd, the flows of that round; in a round it is the active senders. At the start of a round those are few.
 * The first hundred flows would receive the whole BDP, a half, a third and so on: together five times the BDP. So they
 * receive the share of an active sender one after the other. Until then a flow has the share of an idle one, whose
 * weight is a full one; the caller multiplies by the flow's own. `weight`: the flow's, if it were not punished
 * and used its whole share. A global function, which the verifier checks once.
 */
__noinline __u64 share_divisor(struct weir_flow *flow, const struct weir_port *port, struct weir_port_state *state,
			       __u32 weight, __u64 now_ns)
{
	__u64 flows, share, crowd, as_idle;
	bool is_active;
	__u32 mss;

	if (!flow || !port || !state)
		return 1;
	if (!port->turn_shift)
		return state->n_i * share_full_weight(port);
	is_active = flow->max_payload && share_is_in_round(flow, port, state, now_ns);
	if (is_active && !(flow->flags & WEIR_RESUMED))
		return share_active_weight(port, state, now_ns);
	crowd = crowd_weight(port, state, now_ns);
	if (!is_active)
		return crowd;
	flows = share_active_weight(port, state, now_ns);
	if (flows >= crowd)
		return flows;
	mss = flow_mss(flow);
	if (port->link_ns && share_is_small(flow, port, state, now_ns))
		weight /= WEIR_PUNISHED_FRACTION;
	as_idle = weight < share_full_weight(port) ? (__u64)weight * crowd_now(state, now_ns) : crowd;
	if (flow->flags & WEIR_HALF_SEGMENTS)
		return as_idle; /* it receives two segments first, also one flow after the other (floor_of_one_segment)
				 */
	weight = share_used_weight(flow, port, state, weight, now_ns);
	/* N_i bounds the sum, and is 0 when the last ACK of the port's last flow comes. */
	share = (__u64)allowance_bytes(port, state) * weight / (flows ? flows : share_full_weight(port));
	if (!share_may_grow(port, state, share > 2 * mss ? share : 2 * mss, port->buffer_bytes / GROWTH_QUEUE_FRACTION))
		return as_idle;
	flow_clear(flow, WEIR_RESUMED);
	return flows;
}

/* Whether one flow may receive a window of two segments once. An eighth of the queue stays free. */
static __always_inline bool floor_may_grow(const struct weir_port *port, struct weir_port_state *state, __u32 mss)
{
	return share_may_grow(port, state, 2 * (mss + WEIR_HEADERS), weir_queue_room_bytes(port->buffer_bytes));
}

/*
 * The floor of a flow's window if it holds one segment. A sender that never saw a window of two segments sends two half
 * segments into a window of one (Linux: tcp_bound_to_half_wnd). These cost the queue as much as two segments, and the
 * sender repeats the second half if its ACK takes longer than the handshake (RFC 8985, tail loss probe). So each flow
 * receives a window of two segments once. The flows do so one after the other, while the queue has the spare eighth
 * that weir_fitted_segment leaves. Until then a flow receives a window so small that it sends one small segment. A
 * window between both would stop a sender that waits for half of the largest window it has seen (SWS avoidance).
 */
static __always_inline __u32 floor_of_one_segment(const struct weir_flow *flow, const struct weir_port *port,
						  struct weir_port_state *state, __u32 mss)
{
	if (!(flow->flags & WEIR_HALF_SEGMENTS) || mss <= WEIR_SMALL_WINDOW)
		return mss;
	return flow->max_payload && floor_may_grow(port, state, mss) ? 2 * mss : WEIR_SMALL_WINDOW;
}

/*
 * The ACK of the handshake, before the flow has sent payload, may carry a small window. The number of flows in the
 * round is known better when the request is sent, and that segment carries a new window, which can only be larger.
 */
static __always_inline bool floor_is_before_payload(const struct weir_flow *flow, const struct segment *s, __u32 mss)
{
	return flow->flags & WEIR_HALF_SEGMENTS && !flow->max_payload && !s->payload && mss > WEIR_SMALL_WINDOW;
}

/*
 * The window of a SYN-ACK: what a host that has connected may send before it receives an ACK. All flows that the port
 * expects fit into its queue with that. It has no scale (RFC 7323, section 2.2).
 */
static __always_inline __u32 flow_start_window(struct weir_flow *flow, const struct weir_port *port,
					       const struct weir_port_state *state, __u64 now_ns)
{
	__u32 mss = flow_mss(flow), flows = crowd_expected(state, flow, crowd_remembered(state, now_ns));
	__u64 room = allowance_payload_bytes(weir_queue_room_bytes(port->buffer_bytes), mss);
	__u64 window = room / (flows ? flows : 1) / mss * mss;

	if (window >= 2 * mss)
		return window < WEIR_MAX_FIELD ? window : WEIR_MAX_FIELD;
	if (mss <= WEIR_SMALL_WINDOW)
		return mss;
	flow_set(flow, WEIR_HALF_SEGMENTS);
	return WEIR_SMALL_WINDOW;
}

/* Notes whether the flow's window was last computed with a floor of one segment. */
static __always_inline void flow_note_one_segment(struct weir_flow *flow, bool one_segment)
{
	flow_note(flow, WEIR_ONE_SEGMENT, one_segment);
}

/*
 * Notes whether the remote host receives a window of two segments. One of more than two small windows counts
 * like one of two segments, for a small one would stop the sender from now on (floor_of_one_segment). Such a window
 * comes from another port on the way, which has its own state of the flow.
 */
static __always_inline void flow_note_advertised(struct weir_flow *flow, __u32 window_bytes, __u32 mss)
{
	if (flow->flags & WEIR_HALF_SEGMENTS && (window_bytes >= 2 * mss || window_bytes > 2 * WEIR_SMALL_WINDOW))
		flow_clear(flow, WEIR_HALF_SEGMENTS);
}

/* Not inlined, because its buffer would not fit into the stack of weir_ingress_tc. */
static __noinline int segment_edit(struct __sk_buff *skb, const struct segment *s, const struct header_edit *edit)
{
	__u16 before;

	if (edit->at && !bpf_skb_load_bytes(skb, s->tcp_offset + edit->at, &before, sizeof(before)))
		segment_replace_word(skb, s, edit->at, before, edit->after);
	return 0;
}

#endif
