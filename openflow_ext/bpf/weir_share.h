/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Active senders: the flows among which a port is shared (SCCP, equation 1). A standing connection that waits for
 * the next query takes no share from a flow that sends (docs/decisions/0014-shares-of-active-senders.md).
 *
 * Time is divided into turns. A flow is an active sender if it sent payload in the current or in the previous turn,
 * and the port is shared by the larger number of both turns (weir_active_senders). A turn lasts 2^turn_shift ns, in
 * which a full queue drains, so that each flow of it sends once. While the queue is empty a turn lasts only two RTTs
 * (short_turn_ns), so that finished flows release their share quickly. An idle flow gets the share of the next round
 * (share_divisor in weir_mss.h), for it starts with the window that it received last.
 */
#ifndef WEIR_SHARE_H
#define WEIR_SHARE_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_structs.h"
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

/* Begins a turn; if two CPUs try, one does. If a whole turn passed without payload, that turn is skipped. */
static __always_inline void share_next_turn(const struct weir_port *port, struct weir_port_state *state, __u64 now_ns)
{
	__u64 began_ns = state->turn_start_ns;
	__s64 age = share_turns_passed(port, state, now_ns);

	if (__sync_val_compare_and_swap(&state->turn_start_ns, began_ns, bpf_ktime_get_ns()) != began_ns)
		return;
	if (age > 1)
		state->sent_in_turn[state->turn & 1] = 0;
	state->sent_in_turn[(state->turn + 1) & 1] = 0;
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

static __always_inline void share_count_sender(struct weir_flow *flow, struct weir_port_state *state)
{
	flow->last_turn = state->turn;
	__sync_fetch_and_add(&state->sent_in_turn[state->turn & 1], 1);
}

/* True if the flow sent in the current or in the previous turn. */
static __always_inline bool share_is_active(const struct weir_flow *flow, const struct weir_port *port,
					    const struct weir_port_state *state, __u64 now_ns)
{
	__s64 age = share_turns_passed(port, state, now_ns);

	return (__u32)(state->turn - flow->last_turn) + (age > 0 ? age : 0) < 2;
}

/* The flow sends payload. It is counted at its first in a turn. */
static __always_inline void share_note_payload(struct weir_flow *flow, const struct weir_port *port,
					       struct weir_port_state *state, __u64 now_ns)
{
	if (!share_is_first_in_turn(flow, port, state, now_ns))
		return;
	if (!share_is_active(flow, port, state, now_ns))
		flow->flags |= WEIR_RESUMED;
	share_count_sender(flow, state);
}

/* As weir_active_senders, whose result includes the flow that asks. */
static __always_inline __u64 share_active_senders(const struct weir_port *port, const struct weir_port_state *state,
						  __u64 now_ns)
{
	__s64 age = share_turns_passed(port, state, now_ns);

	return weir_active_senders(state->sent_in_turn, state->turn, age, state->n_i);
}

#endif
