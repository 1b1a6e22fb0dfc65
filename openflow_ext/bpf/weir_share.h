/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Active senders: the flows among which a port is shared (SCCP, equation 1). A standing connection that waits for
 * the next query takes no share from a flow that sends (docs/decisions/0014-shares-of-active-senders.md).
 *
 * Time is divided into turns. A flow is an active sender if it sent payload in the current or in the previous turn,
 * and the port is shared by the larger number of both turns (weir_active_senders). A turn lasts 2^turn_shift ns, in
 * which a full queue drains, so that each flow of it sends once. While the queue is empty a turn is short: two common
 * RTTs, or the time of a corrected allowance on the link if that is longer (short_turn_ns). So finished flows release
 * their share quickly. An idle flow and one that has received a request get the share of the next round
 * (share_divisor in weir_mss.h), for they start with the window that they received last.
 *
 * A port that corrects its allowance divides it by weights (docs/decisions/0056-weights.md). A flow that SDTCP punishes
 * has a small one while it sends on and on, so that a burst gets nearly all at once. The sum of the weights of the
 * active senders is counted like their number. Among punished flows alone the division is as without weights. A port
 * that shares by host divides a flow's weight by the number of its host's flows (weir_host.h). A flow that uses little
 * of its share has a smaller weight (weir_use.h).
 */
#ifndef WEIR_SHARE_H
#define WEIR_SHARE_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_crowd.h"
#include "weir_flow_bits.h"
#include "weir_host.h"
#include "weir_structs.h"
#include "weir_use.h"
#include "weir_window.h"

static __always_inline __u32 share_turn_shift(const struct weir_port *port, const struct weir_port_state *state)
{
	return port->link_ns && state->turn_shift ? state->turn_shift : port->turn_shift;
}

static __always_inline __u64 share_short_turn_ns(const struct weir_port *port, const struct weir_port_state *state)
{
	return port->link_ns && state->short_turn_ns ? state->short_turn_ns : port->short_turn_ns;
}

/* The number of whole turns since the current turn began; -1 if it began after the clock's last tick. */
static __always_inline __s64 share_turns_passed(const struct weir_port *port, const struct weir_port_state *state,
						__u64 now_ns)
{
	return (__s64)(now_ns - state->turn_start_ns) >> (share_turn_shift(port, state) & 63);
}

/* More flows sent in the previous turn than so far in this one, so that the end of the turn would raise the share. */
static __always_inline bool share_last_turn_was_busier(const struct weir_port_state *state)
{
	return state->sent_in_turn[(state->turn + 1) & 1] > state->sent_in_turn[state->turn & 1];
}

/*
 * Called for each segment that leaves, before it is enqueued. Whether a short turn is over is checked once per tick,
 * and for each segment if the end of the turn would raise the share.
 */
static __always_inline bool share_turn_is_over(const struct weir_port *port, struct weir_port_state *state,
					       __u64 now_ns)
{
	if (share_turns_passed(port, state, now_ns) > 0)
		return true;
	if (state->queue_bytes || (now_ns == state->turn_checked_ns && !share_last_turn_was_busier(state)))
		return false;
	state->turn_checked_ns = now_ns;
	return bpf_ktime_get_ns() - state->turn_start_ns >= share_short_turn_ns(port, state);
}

static __always_inline void share_clear_turn(struct weir_port_state *state, __u32 turn)
{
	state->sent_in_turn[turn & 1] = state->weight_in_turn[turn & 1] = state->full_in_turn[turn & 1] = 0;
	state->little_in_turn[turn & 1] = 0;
	state->host_most_in_turn[turn & 1] = 0;
}

/* Begins a turn; if two CPUs try, one does. If a whole turn passed without payload, that turn is skipped. */
static __always_inline void share_next_turn(const struct weir_port *port, struct weir_port_state *state, __u64 now_ns)
{
	__u64 began_ns = state->turn_start_ns;
	__s64 age = share_turns_passed(port, state, now_ns);

	if (__sync_val_compare_and_swap(&state->turn_start_ns, began_ns, bpf_ktime_get_ns()) != began_ns)
		return;
	if (age > 1)
		share_clear_turn(state, state->turn);
	share_clear_turn(state, state->turn + 1);
	state->by_host_turns = (state->by_host_turns << 1 | !!port->by_host) & 3;
	__sync_fetch_and_add(&state->turn, age > 1 ? 2 : 1);
}

/* A flow sends, or is new: true if it was not counted in this turn before. */
static __always_inline bool share_is_first_in_turn(const struct weir_flow *flow, const struct weir_port *port,
						   struct weir_port_state *state, __u64 now_ns)
{
	if (!port->turn_shift)
		return false;
	if (share_turn_is_over(port, state, now_ns))
		share_next_turn(port, state, now_ns);
	return flow->last_turn != state->turn;
}

/* The weight of most flows; 1 if the port has no weights, so that weights are numbers of flows. */
static __always_inline __u32 share_full_weight(const struct weir_port *port)
{
	return port->link_ns ? WEIR_FULL_WEIGHT : 1;
}

/*
 * The weight that a flow of this host has if it is not punished. After a port began or ceased to share by host, that
 * holds for flows while it holds for one of the turns that the sums count, so that no flow gets more than its part.
 */
static __always_inline __u32 share_unpunished_weight(const struct weir_port *port, const struct weir_port_state *state,
						     const __u32 *host)
{
	if (!port->link_ns || !state->by_host_turns)
		return share_full_weight(port);
	return host_find_weight(port->ifindex, state->turn, host);
}

/*
 * Whether the flow is counted in a turn with a small weight. A punished flow is only after it has sent as much as
 * the queue holds since it was last asked for something or was idle: until then it may be part of a burst, whatever its
 * age. A pause for another reason, such as a delayed ACK, does not count.
 */
static __always_inline bool share_becomes_small(const struct weir_flow *flow, const struct weir_port *port)
{
	return flow->flags & WEIR_PUNISHED && (__u32)flow->out_bytes - flow->out_before_resume > port->buffer_bytes;
}

/* `host`: the address of the host that sends the flow. */
static __always_inline void share_count_sender(struct weir_flow *flow, const struct weir_port *port,
					       struct weir_port_state *state, const __u32 *host)
{
	__u32 weight, odd = state->turn & 1;
	bool sent_before = flow->last_turn == state->turn - 1;
	bool small_before = sent_before && flow->flags & WEIR_SMALL_WEIGHT;

	flow_note(flow, WEIR_SENT_BEFORE, sent_before);
	flow_note(flow, WEIR_SMALL_BEFORE, small_before);
	if (flow->flags & WEIR_SMALL_WEIGHT)
		flow_clear(flow, WEIR_SMALL_WEIGHT);
	flow->last_turn = state->turn;
	use_note_counted(flow, sent_before);
	__sync_fetch_and_add(&state->sent_in_turn[odd], 1);
	if (!port->link_ns)
		return;
	if (!port->bdp_bytes)
		crowd_note(port, state, state->sent_in_turn[odd], state->tick_ns);
	weight = state->by_host_turns & 1 ? host_count_sender(port->ifindex, state, host) : WEIR_FULL_WEIGHT;
	weight = use_weight(weight, use_step(flow, WEIR_USE_LAST));
	__sync_fetch_and_add(&state->full_in_turn[odd], weight);
	if (share_becomes_small(flow, port)) {
		flow_set(flow, WEIR_SMALL_WEIGHT);
		weight /= WEIR_PUNISHED_FRACTION;
	}
	__sync_fetch_and_add(&state->weight_in_turn[odd], weight);
	if (use_step(flow, WEIR_USE_LAST))
		__sync_fetch_and_add(&state->little_in_turn[odd], weight);
}

/* The flow was counted in the current turn and in the one before. */
static __always_inline bool share_counts_twice(const struct weir_flow *flow, const struct weir_port *port,
					       const struct weir_port_state *state, __u64 now_ns)
{
	return flow->flags & WEIR_SENT_BEFORE && flow->last_turn == state->turn &&
	       share_turns_passed(port, state, now_ns) < 1;
}

/*
 * The weight of an active sender, if it were not punished; `full`: if it used its whole share. Of the last two turns it
 * is the larger one, as in share_is_small.
 */
static __always_inline __u32 share_used_weight(const struct weir_flow *flow, const struct weir_port *port,
					       const struct weir_port_state *state, __u32 full, __u64 now_ns)
{
	__u32 step = use_step(flow, WEIR_USE_LAST), before = use_step(flow, WEIR_USE_BEFORE);

	if (before < step && share_counts_twice(flow, port, state, now_ns))
		step = before;
	return use_weight(full, step);
}

/*
 * Whether an active sender shares the allowance with a small weight. Its weight is that with which it is counted in the
 * last two turns, of which the larger sum divides. If it were small as soon as the flow is punished, its window would
 * be a sixteenth until the sums have followed, and the link idle. A flow that has not sent in this turn yet was counted
 * last in the turn before; what it was before that is in no sum any more.
 */
static __always_inline bool share_is_small(const struct weir_flow *flow, const struct weir_port *port,
					   const struct weir_port_state *state, __u64 now_ns)
{
	bool full_before = share_counts_twice(flow, port, state, now_ns) && !(flow->flags & WEIR_SMALL_BEFORE);

	return flow->flags & WEIR_SMALL_WEIGHT && !full_before && !state->gives_back;
}

static __always_inline void share_take_off(__u64 *sum, __u32 less)
{
	if (*sum >= less)
		__sync_fetch_and_add(sum, -(__u64)less);
}

/* `full`: the weight of the flow at the step 0. */
static __always_inline void share_take_off_turn(struct weir_port_state *state, __u32 turn, __u32 full, __u32 step,
						bool small)
{
	__u32 used = use_weight(full, step), weight = small ? used / WEIR_PUNISHED_FRACTION : used;

	share_take_off(&state->sent_in_turn[turn & 1], 1);
	share_take_off(&state->full_in_turn[turn & 1], used);
	share_take_off(&state->weight_in_turn[turn & 1], weight);
	if (step)
		share_take_off(&state->little_in_turn[turn & 1], weight);
}

/*
 * The flow has sent its last byte: it releases its share now instead of after two turns. Its last segments may still be
 * in the queue, beside which the other flows send more at once. So it does so only while the spare part of the queue
 * holds all that waits there. If the flow goes on nevertheless, its next payload counts it again.
 */
static __always_inline void share_end_sender(struct weir_flow *flow, const struct weir_port *port,
					     struct weir_port_state *state, const __u32 *host)
{
	__u32 turn = flow->last_turn, full;

	if (state->turn - turn > 1 || state->queue_bytes > port->buffer_bytes / WEIR_SPARE_FRACTION)
		return;
	full = share_unpunished_weight(port, state, host);
	share_take_off_turn(state, turn, full, use_step(flow, WEIR_USE_LAST), flow->flags & WEIR_SMALL_WEIGHT);
	if (turn == state->turn && flow->flags & WEIR_SENT_BEFORE)
		share_take_off_turn(state, turn - 1, full, use_step(flow, WEIR_USE_BEFORE),
				    flow->flags & WEIR_SMALL_BEFORE);
	flow->last_turn = state->turn - 2;
}

/* True if the flow sent in the current or in the previous turn. */
static __always_inline bool share_is_active(const struct weir_flow *flow, const struct weir_port *port,
					    const struct weir_port_state *state, __u64 now_ns)
{
	__s64 age = share_turns_passed(port, state, now_ns);

	return (__u32)(state->turn - flow->last_turn) + (age > 0 ? age : 0) < 2;
}

/*
 * The local host sends payload. It is a request if the host has acknowledged all that left to it. Two hosts that both
 * send on and on do not ask each other.
 */
static __always_inline void share_note_request(struct weir_flow *flow)
{
	if (!(flow->flags & WEIR_ASKED) && flow->remote_edges.end == flow->local_edges.ack)
		flow_set(flow, WEIR_ASKED);
}

/*
 * Payload of the flow leaves by the port. An answer seems to end with a pushed segment that is shorter than others, if
 * the port has not granted a runt segment of that size. The end of an answer of whole segments is not seen.
 */
static __always_inline void share_note_answer(struct weir_flow *flow, __u32 segment, __u32 runt_bytes, bool pushed)
{
	bool ends = pushed && segment < flow->max_payload && segment != runt_bytes;

	if (ends == !!(flow->member & WEIR_ANSWERED))
		return; /* most segments change nothing, and a write would wait for the other CPU */
	if (ends)
		flow_join(flow, WEIR_ANSWERED);
	else
		flow_leave(flow, WEIR_ANSWERED);
}

/*
 * The flow waits for the next round: its receiver has asked for an answer, or has acknowledged the end of one. Linux
 * keeps the window of that ACK if the request has a lower one, because both have the same sequence number
 * (docs/decisions/0118-windows-of-requests.md).
 */
static __always_inline bool share_waits(const struct weir_flow *flow)
{
	return flow->flags & WEIR_ASKED ||
	       (flow->member & WEIR_ANSWERED && flow->remote_edges.end == flow->local_edges.ack);
}

/*
 * True if the flow is in the midst of a round. An answer belongs to the next round, also if the flow's last payload was
 * a moment ago: the others of that round may receive their requests now, while the flows that still send are few.
 */
static __always_inline bool share_is_in_round(const struct weir_flow *flow, const struct weir_port *port,
					      const struct weir_port_state *state, __u64 now_ns)
{
	return !share_waits(flow) && share_is_active(flow, port, state, now_ns);
}

/* The flow sends payload. It is counted at its first in a turn. */
static __always_inline void share_note_payload(struct weir_flow *flow, const struct weir_port *port,
					       struct weir_port_state *state, const __u32 *host, __u64 now_ns)
{
	if (flow->flags & WEIR_ASKED)
		flow_set(flow, WEIR_RESUMED);
	if (!share_is_first_in_turn(flow, port, state, now_ns))
		return;
	if (!share_is_active(flow, port, state, now_ns)) {
		flow_set(flow, WEIR_RESUMED);
		if (flow->flags & (WEIR_ASKED | WEIR_IDLE)) {
			flow->out_before_resume = flow->out_bytes;
			use_forget(flow);
		}
	}
	share_count_sender(flow, port, state, host);
}

/*
 * As weir_active_senders, whose result includes the flow that asks. A port that corrects its allowance without setting
 * a fair share may count no N_i: there all that sent are active.
 */
static __always_inline __u64 share_active_senders(const struct weir_port *port, const struct weir_port_state *state,
						  __u64 now_ns)
{
	__s64 age = share_turns_passed(port, state, now_ns);

	if (!port->bdp_bytes)
		return weir_most_in_turn(state->sent_in_turn, state->turn, age);
	return weir_active_senders(state->sent_in_turn, state->turn, age, state->n_i);
}

/* The sum of weight_in_turn or full_in_turn of a port that corrects its allowance. */
static __always_inline __u64 share_sum(const __u64 *in_turn, const struct weir_port *port,
				       const struct weir_port_state *state, __u64 now_ns)
{
	__s64 age = share_turns_passed(port, state, now_ns);

	if (!port->bdp_bytes)
		return weir_most_in_turn(in_turn, state->turn, age);
	return weir_active_senders(in_turn, state->turn, age, (__u64)WEIR_FULL_WEIGHT * state->n_i);
}

/* The weights by which the port is divided. Punished flows have full ones while the link would be idle otherwise. */
static __always_inline const __u64 *share_weights_in_turn(const struct weir_port_state *state)
{
	return state->gives_back ? state->full_in_turn : state->weight_in_turn;
}

/* The sum of the weights of the active senders. */
static __always_inline __u64 share_active_weight(const struct weir_port *port, const struct weir_port_state *state,
						 __u64 now_ns)
{
	return port->link_ns ? share_sum(share_weights_in_turn(state), port, state, now_ns)
			     : share_active_senders(port, state, now_ns);
}

/*
 * The part of an allowance that flows have which use little of it; only with weights. The sums are compared as counted:
 * share_sum takes N_i for a sum of 0.
 */
static __always_inline __u64 share_of_little_use(const struct weir_port *port, const struct weir_port_state *state,
						 __u64 allowance, __u64 now_ns)
{
	__s64 age = share_turns_passed(port, state, now_ns);
	__u64 little = weir_most_in_turn(state->little_in_turn, state->turn, age);
	__u64 all = weir_most_in_turn(share_weights_in_turn(state), state->turn, age);

	if (little >= all)
		return little ? allowance : 0;
	return allowance * little / all;
}

/* The weight of the active senders that is missing because some of them are punished; only with weights. */
static __always_inline __u64 share_missing_weight(const struct weir_port *port, const struct weir_port_state *state,
						  __u64 now_ns)
{
	__u64 full = share_sum(state->full_in_turn, port, state, now_ns);
	__u64 active = share_sum(share_weights_in_turn(state), port, state, now_ns);

	return full > active ? full - active : 0;
}

/* Each active sender is punished, so that the division is as without weights; only with weights. */
static __always_inline bool share_all_are_small(const struct weir_port *port, const struct weir_port_state *state,
						__u64 now_ns)
{
	return share_sum(state->weight_in_turn, port, state, now_ns) * WEIR_PUNISHED_FRACTION <=
	       share_sum(state->full_in_turn, port, state, now_ns);
}

#endif
