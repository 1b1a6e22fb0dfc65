/* SPDX-License-Identifier: GPL-2.0-only */
/* Flows of a port: what their handshakes offered, their part in N_i, and flows that need a window of two segments. */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_ato.h"
#include "weir_consts.h"
#include "weir_flow_bits.h"
#include "weir_port.h"
#include "weir_share.h"
#include "weir_structs.h"
#include "weir_window.h"

static __always_inline bool flow_scales_windows(const struct weir_flow *flow)
{
	return flow->local.scale != WEIR_NO_SCALE && flow->remote.scale != WEIR_NO_SCALE;
}

/* The options of a segment without SYN, SACK and signature. */
static __always_inline __u32 flow_options_bytes(const struct weir_flow *flow)
{
	return flow->local.timestamps && flow->remote.timestamps ? TIMESTAMPS_LEN : 0;
}

/* Payload of a segment towards the local host, if the remote host's own link holds segments of `remote_mss`. */
static __always_inline __u32 flow_payload_bytes(const struct weir_flow *flow, __u32 remote_mss)
{
	__u32 mss = (remote_mss < flow->local.mss ? remote_mss : flow->local.mss) - flow_options_bytes(flow);

	return mss < LEAST_MSS || mss > 0xffff ? LEAST_MSS : mss;
}

/*
 * Payload of a full segment towards the local host. It is at most what that host has offered. What the remote host has
 * offered is a sign of its own link's MTU, but a switch may have made it smaller, which limits the other direction
 * only. So a larger segment that has left counts more.
 */
static __always_inline __u32 flow_mss(const struct weir_flow *flow)
{
	__u32 seen = flow->max_payload + flow_options_bytes(flow);

	return flow_payload_bytes(flow, seen > flow->remote.mss ? seen : flow->remote.mss);
}

/* The mean segment of the flows of N_i, without headers; 0 if there is none. */
static __always_inline __u32 flow_mean_segment(const struct weir_port_state *state)
{
	__u32 flows = state->n_i;

	return flows ? state->segments_bytes / flows : 0;
}

/* The segment of which two have to fit for each flow, before a flow with segments of `mss` has two of its own. */
static __always_inline __u32 flow_segment_to_fit(const struct weir_port_state *state, __u32 mss)
{
	__u32 mean = flow_mean_segment(state);

	return mss > mean ? mss : mean;
}

/* A flow enters N_i (by 1) or leaves it (by -1). What the hosts have offered does not change between both. */
static __always_inline void flow_change_n_i(const struct weir_flow *flow, struct weir_port_state *state, __s32 by)
{
	__sync_fetch_and_add(&state->n_i, (__s64)by);
	__sync_fetch_and_add(&state->segments_bytes, by * (__s32)flow_payload_bytes(flow, flow->remote.mss));
}

/* The scale of the local host's windows as the remote host knows it; 0 unless both sides offered one. */
static __always_inline __u32 flow_window_scale(const struct weir_flow *flow)
{
	return flow_scales_windows(flow) ? flow->local.scale : 0;
}

/* The smallest segment that a window lets a flow send beside a full one: a step of the window. */
static __always_inline __u32 flow_runt_bytes(const struct weir_flow *flow)
{
	return 1u << (flow_window_scale(flow) & SCALE_MASK);
}

/*
 * A flow's equal part of what queue and link hold. As in weir_fitted_segment, an eighth stays free. Without a fair
 * share N_i may be 0, and the active senders count instead.
 */
static __always_inline __u64 flow_part_bytes(const struct weir_port *port, const struct weir_port_state *state)
{
	__u64 flows = port->bdp_bytes ? state->n_i : share_active_senders(port, state, state->tick_ns);

	return weir_queue_room_bytes(port->buffer_bytes + port->bdp_bytes) / (flows ? flows : 1);
}

/*
 * What a flow whose receiver delays ACKs gets, so that it does not wait for them: a least window of two segments, if
 * its part of queue and link holds it, because Linux delays no ACK for more than a segment. Its part does not hold two
 * small segments if two of the others do not fit. Otherwise keep-alives follow its segments. If the size of its queue
 * is unknown the port always grants two.
 */
static __always_inline __u32 flow_remedy(const struct weir_flow *flow, const struct weir_port *port,
					 const struct weir_port_state *state, __u32 mss)
{
	if (port->omits & WEIR_OMIT_TWO_SEGMENTS)
		return 0;
	if (!port->buffer_bytes || 2 * (flow_segment_to_fit(state, mss) + WEIR_HEADERS) <= flow_part_bytes(port, state))
		return WEIR_IN_TWO_SEGMENTS;
	return flow->flags & WEIR_FITTED ? WEIR_KEEP_ALIVES : 0;
}

/* `remedy`: WEIR_IN_TWO_SEGMENTS, WEIR_KEEP_ALIVES or 0. */
static __always_inline void flow_set_remedy(struct weir_flow *flow, struct weir_port_state *state, __u32 remedy)
{
	__u32 unwanted = flow->member & (WEIR_IN_TWO_SEGMENTS | WEIR_KEEP_ALIVES) & ~remedy;

	if (unwanted & WEIR_IN_TWO_SEGMENTS && flow_leave(flow, WEIR_IN_TWO_SEGMENTS))
		__sync_fetch_and_add(&state->two_segment_flows, -1);
	if (unwanted & WEIR_KEEP_ALIVES)
		flow_leave(flow, WEIR_KEEP_ALIVES);
	if (remedy & ~flow->member && flow_join(flow, remedy) && remedy == WEIR_IN_TWO_SEGMENTS)
		__sync_fetch_and_add(&state->two_segment_flows, 1);
}

/* The receiver delays ACKs, or may do so. */
static __always_inline void flow_grant_remedy(struct weir_flow *flow, const struct weir_port *port,
					      struct weir_port_state *state, __u32 mss)
{
	flow_set_remedy(flow, state, flow_remedy(flow, port, state, mss));
}

/* More or fewer flows may share the port than when the flow was granted a remedy. */
static __always_inline void flow_review_remedy(struct weir_flow *flow, const struct weir_port *port,
					       struct weir_port_state *state, __u32 mss)
{
	if (flow->member & (WEIR_IN_TWO_SEGMENTS | WEIR_KEEP_ALIVES))
		flow_grant_remedy(flow, port, state, mss);
}

/*
 * A keep-alive follows a segment. Its receiver acknowledges at once, and if it took the connection for interactive it
 * does so no longer. Then one is enough.
 */
static __always_inline void flow_note_keep_alive(struct weir_flow *flow)
{
	if (!(flow->member & WEIR_INTERACTIVE))
		return;
	ato_note_keep_alive(flow);
	if (!(flow->member & WEIR_DELAYS_ACKS))
		flow_leave(flow, WEIR_KEEP_ALIVES);
}

/*
 * Whether N_i counts flows. Otherwise it is the paper's integer, which packets alone change: flows that an earlier
 * agent has counted are still members, but must not change it.
 */
static __always_inline bool flow_changes_n_i(void)
{
	const struct weir_settings *host = host_settings();

	return host && !host->simple_count;
}

/* Counts a flow once per connection, when its handshake is complete. `host`: the address of its sender. */
static __always_inline void flow_count(struct weir_flow *flow, const struct weir_port *port,
				       struct weir_port_state *state, const __u32 *host, __u64 now_ns)
{
	if (flow->flags & WEIR_WAS_COUNTED || !flow_changes_n_i())
		return;
	if (flow_set(flow, WEIR_WAS_COUNTED) & WEIR_WAS_COUNTED || !flow_join(flow, WEIR_IN_N_I))
		return;
	flow_change_n_i(flow, state, 1);
	__sync_fetch_and_add(&state->syns_counted, 1);
	if (share_is_first_in_turn(flow, port, state, now_ns))
		share_count_sender(flow, port, state, host);
}

static __always_inline bool flow_uncount(struct weir_flow *flow, struct weir_port_state *state)
{
	flow_set_remedy(flow, state, 0);
	if (!flow_leave(flow, WEIR_IN_N_I))
		return false;
	if (flow_changes_n_i())
		flow_change_n_i(flow, state, -1);
	return true;
}

/* The flow has ended, so that it is not idle any more. */
static __always_inline void flow_end_count(struct weir_flow *flow, struct weir_port_state *state)
{
	flow_clear(flow, WEIR_IDLE);
	if (flow_uncount(flow, state) && flow_changes_n_i())
		__sync_fetch_and_add(&state->fins_counted, 1);
}

/* The flow is open and not idle, and no INCREMENT_NI has counted it: SDTCP alone sends no such entries. */
static __always_inline bool flow_is_open_uncounted(const struct weir_flow *flow)
{
	return (flow->flags & (WEIR_ESTABLISHED | WEIR_WAS_COUNTED | WEIR_IDLE | WEIR_FIN_OUT | WEIR_RST)) ==
	       WEIR_ESTABLISHED;
}

static __always_inline bool flow_may_become_idle(const struct weir_flow *flow)
{
	return flow->member & WEIR_IN_N_I || flow_is_open_uncounted(flow);
}

/* A flow without payload for long is idle until it sends again, and not in N_i. True if it was not idle before. */
static __always_inline bool flow_make_idle(struct weir_flow *flow, struct weir_port_state *state)
{
	if (!flow_uncount(flow, state) && !flow_is_open_uncounted(flow))
		return false;
	flow_set(flow, WEIR_IDLE);
	return true;
}

/* Exact, and wraps after more than an hour. */
static __always_inline __u32 flow_now_us(void)
{
	return bpf_ktime_get_ns() / NS_PER_US;
}

/*
 * Detects a receiver that delays its ACKs. A window of one segment leaves each segment to the delayed ACK (40 ms in
 * Linux) unless a keep-alive follows, and with such a window cwnd does not grow. The signs are: a pure ACK
 * for one segment comes long after the last payload, and more payload follows at once (flow_note_payload). An ACK for
 * more than one segment was not delayed. Neither says an ACK for a segment without PSH what the receiver does with PSH:
 * while a window becomes small, the last segment of the larger one waits. `bytes`: what it acknowledges for the first
 * time.
 */
static __always_inline void flow_note_ack(struct weir_flow *flow, const struct weir_port *port,
					  const struct weir_port_state *state, __u32 bytes, __u64 now_ns)
{
	__u64 late_ns = DELAYED_ACK_NS;

	if (!bytes)
		return;
	flow->delayed_ack_us = 0;
	if (now_ns - flow->last_payload_ns < late_ns || bytes > flow->max_payload)
		return;
	if (port->capacity_bps)
		late_ns += weir_drain_ns(state->queue_bytes, port->capacity_bps);
	if (now_ns - flow->last_payload_ns < late_ns || ato_note_timer(flow))
		return;
	if ((flow->flags & (WEIR_FITTED | WEIR_PUSHED)) == WEIR_FITTED && !(port->omits & WEIR_OMIT_PSH))
		return;
	flow->delayed_ack_us = flow_now_us();
}

/*
 * The local host sends payload, a request. If it comes so soon after payload that the connection becomes interactive
 * (weir_ato.h), each segment of the answer would take 40 ms with a window of one segment. A flow whose receiver delays
 * no ACK any more needs no remedy.
 */
static __always_inline void flow_note_request(struct weir_flow *flow, const struct weir_port *port,
					      struct weir_port_state *state, __u64 now_ns)
{
	flow->delayed_ack_us = 0; /* payload that follows answers this request, and did not wait for an ACK */
	if (!flow->max_payload)
		return;
	if (!(flow->member & WEIR_INTERACTIVE) && ato_makes_interactive(flow, port, now_ns - flow->last_payload_ns))
		flow_join(flow, WEIR_INTERACTIVE);
	if (flow->member & (WEIR_INTERACTIVE | WEIR_DELAYS_ACKS))
		flow_grant_remedy(flow, port, state, flow->max_payload);
	else if (flow->flags & WEIR_FITTED)
		flow_set_remedy(flow, state, 0);
}

/*
 * Payload leaves by the port: a flow that has left N_i because it was idle is in it again. True if the flow was idle.
 */
static __always_inline bool flow_note_payload(struct weir_flow *flow, const struct weir_port *port,
					      struct weir_port_state *state, const __u32 *host, __u32 segment,
					      bool pushed, __u64 now_ns)
{
	if (segment > flow->max_payload)
		flow->max_payload = segment;
	share_note_answer(flow, segment, flow_runt_bytes(flow), pushed);
	if (flow->delayed_ack_us && flow_now_us() - flow->delayed_ack_us < RESUME_US) {
		flow_join(flow, WEIR_DELAYS_ACKS);
		flow_grant_remedy(flow, port, state, flow->max_payload);
	}
	flow->delayed_ack_us = 0;
	ato_note_payload(flow, port, now_ns - flow->last_payload_ns);
	share_note_payload(flow, port, state, host, now_ns);
	flow->last_payload_ns = now_ns;
	if (!(flow->flags & WEIR_IDLE))
		return false;
	flow_clear(flow, WEIR_IDLE);
	if (flow->flags & WEIR_WAS_COUNTED && flow_changes_n_i() && flow_join(flow, WEIR_IN_N_I))
		flow_change_n_i(flow, state, 1);
	return true;
}

/*
 * The fair share is less than two segments, and two segments of this sender do not fit into the least window, so that
 * it would wait for delayed ACKs. Two half segments do fit: a sender that has seen no larger window sends those.
 */
static __always_inline bool flow_waits_for_delayed_ack(const struct weir_flow *flow, const struct weir_port *port,
						       __u64 allowance, __u64 flows, __u32 mss, __u32 scale)
{
	__u32 least_window = weir_field_above_one_segment(mss, scale) << scale;

	return port->bdp_bytes && port->buffer_bytes && 2 * flow->max_payload > least_window &&
	       allowance < 2ull * mss * flows;
}

static __always_inline bool flow_handshake_seen(const struct weir_flow *flow)
{
	return (flow->flags & (WEIR_SYN_IN | WEIR_SYN_OUT)) == (WEIR_SYN_IN | WEIR_SYN_OUT);
}

static __always_inline bool flow_ended(const struct weir_flow *flow)
{
	return flow->flags & WEIR_RST || (flow->flags & (WEIR_FIN_IN | WEIR_FIN_OUT)) == (WEIR_FIN_IN | WEIR_FIN_OUT);
}

/* The local host's window field, translated into the finer scale that the remote host knows. */
static __always_inline __u32 flow_translated_field(const struct weir_flow *flow, __u32 field)
{
	if (flow_scales_windows(flow))
		field <<= flow->scale_shift & SCALE_MASK;
	return field < WEIR_MAX_FIELD ? field : WEIR_MAX_FIELD;
}

#endif
