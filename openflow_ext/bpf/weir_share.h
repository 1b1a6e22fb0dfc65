/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many flows share a port (SCCP, equation 1). Of the flows that are open only those take a share that send: a
 * flow that waits for the next query holds nothing back from one that runs beside it. Time goes in turns of
 * 2^turn_shift ns, long enough for every flow of a full queue to send in each; those that sent in this turn or in
 * the last one share, whichever are more. One that waits is told the share of a round to come (crowd_of in
 * weir_mss.h), for with what it is told last it begins.
 */
#ifndef WEIR_SHARE_H
#define WEIR_SHARE_H

/* A flow sends for the first time in this turn. */
static __always_inline void note_sharer(const struct weir_port *port, struct weir_port_state *state, __u64 now_ns)
{
	__u64 turn = now_ns >> (port->turn_shift & 63), last = state->turn;

	if (turn > last && __sync_val_compare_and_swap(&state->turn, last, turn) == last) {
		state->shared = turn == last + 1 ? state->sharing : 0;
		state->sharing = 0;
	}
	__sync_fetch_and_add(&state->sharing, 1);
}

/* It did in this turn or in the last one. */
static __always_inline bool sends(const struct weir_port *port, const struct weir_flow *flow, __u64 now_ns)
{
	__u32 shift = port->turn_shift & 63;

	return (flow->payload_ns >> shift) + 1 >= now_ns >> shift;
}

static __always_inline __u64 sharers(const struct weir_port *port, const struct weir_port_state *state, __u64 now_ns)
{
	__u64 turn = now_ns >> (port->turn_shift & 63), flows = state->sharing;

	if (turn > state->turn + 1)
		flows = 0;
	else if (turn <= state->turn && state->shared > flows)
		flows = state->shared;
	return flows < state->n_i ? flows : state->n_i;
}

#endif
