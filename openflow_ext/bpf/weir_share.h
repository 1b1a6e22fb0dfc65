/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many flows share a port (SCCP, equation 1). Of the flows that are open only those take a share that send: a
 * flow that waits for the next query holds nothing back from one that runs beside it. Time goes in turns of
 * 2^turn_shift ns, long enough for every flow of a full queue to send in each; those that sent in this turn or in
 * the last one share, whichever are more. One that waits is told the share of a round to come (divisor in
 * weir_mss.h), for with what it is told last it begins.
 */
#ifndef WEIR_SHARE_H
#define WEIR_SHARE_H

#define SHARERS_BITS 24 /* a count's; the turn that it is of stands above them, in the same word */

static __always_inline __u64 turn_of(const struct weir_port *port, __u64 ns)
{
	return ns >> (port->turn_shift & 63);
}

/* A flow sends for the first time in this turn, which two CPUs may begin at once. */
static __always_inline void note_sharer(const struct weir_port *port, struct weir_port_state *state, __u64 now_ns)
{
	__u64 turn = turn_of(port, now_ns), *count = &state->sharing[turn & 1], held = *count;

	if (held >> SHARERS_BITS != turn &&
	    __sync_val_compare_and_swap(count, held, turn << SHARERS_BITS | 1) == held)
		return;
	__sync_fetch_and_add(count, 1);
}

/* It did in this turn or in the last one. */
static __always_inline bool sends(const struct weir_port *port, const struct weir_flow *flow, __u64 now_ns)
{
	return turn_of(port, flow->payload_ns) + 1 >= turn_of(port, now_ns);
}

/* Payload of a flow: the first in a turn counts it. */
static __always_inline void note_turn(struct weir_flow *flow, const struct weir_port *port,
				      struct weir_port_state *state, __u64 now_ns)
{
	if (turn_of(port, flow->payload_ns) == turn_of(port, now_ns))
		return;
	note_sharer(port, state, now_ns);
	if (sends(port, flow, now_ns))
		flow->seen &= ~WEIR_BEGINS;
	else
		flow->seen |= WEIR_BEGINS;
}

/* How many did in a turn's count, if it is of this turn or of one beside it: now may be a tick's. */
static __always_inline __u64 sharers_of(__u64 count, __u64 turn)
{
	return (count >> SHARERS_BITS) + 1 - turn <= 2 ? count & ((1u << SHARERS_BITS) - 1) : 0;
}

/* As one of them asks: where none is known the port has only now been told how long a turn is: all of N_i share. */
static __always_inline __u64 sharers(const struct weir_port *port, const struct weir_port_state *state, __u64 now_ns)
{
	__u64 turn = turn_of(port, now_ns);
	__u64 even = sharers_of(state->sharing[0], turn), odd = sharers_of(state->sharing[1], turn);
	__u64 flows = even > odd ? even : odd;

	return flows && flows < state->n_i ? flows : state->n_i;
}

#endif
