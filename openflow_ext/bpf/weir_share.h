/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many flows share a port (SCCP, equation 1). Of the flows that are open only those take a share that send: a
 * flow that waits for the next query holds nothing back from one that runs beside it. Those that sent in this turn or
 * in the last one share, whichever are more. A turn lasts 2^turn_shift ns, long enough for every flow of a full queue
 * to send in it; where the queue is empty, some round trips: whoever sends yet has sent in them. One that waits is
 * told the share of a round to come (divisor in weir_mss.h), for with what it is told last it begins.
 */
#ifndef WEIR_SHARE_H
#define WEIR_SHARE_H

/* For how many turns' time the port's last one has lasted; -1: it began within this tick of the clock. */
static __always_inline __s64 age_of(const struct weir_port *port, const struct weir_port_state *state, __u64 now_ns)
{
	return (__s64)(now_ns - state->turn_ns) >> (port->turn_shift & 63);
}

/* More shared the last turn than have sent in this one. */
static __always_inline bool held_back(const struct weir_port_state *state)
{
	return state->sharing[(state->turn + 1) & 1] > state->sharing[state->turn & 1];
}

/*
 * Asked by a segment that leaves, before the queue has it. An empty queue is looked at once a tick of the clock, and
 * each time while somebody is held back.
 */
static __always_inline bool turn_is_over(const struct weir_port *port, struct weir_port_state *state, __u64 now_ns)
{
	if (age_of(port, state, now_ns) > 0)
		return true;
	if (state->queue_bytes || (now_ns == state->emptied_ns && !held_back(state)))
		return false;
	state->emptied_ns = now_ns;
	return bpf_ktime_get_ns() - state->turn_ns >= port->round_trips_ns;
}

/* A new turn, begun once where two CPUs would; one that nobody sent in is passed over. */
static __always_inline void next_turn(const struct weir_port *port, struct weir_port_state *state, __u64 now_ns)
{
	__u64 began_ns = state->turn_ns;
	__s64 age = age_of(port, state, now_ns);

	if (__sync_val_compare_and_swap(&state->turn_ns, began_ns, bpf_ktime_get_ns()) != began_ns)
		return;
	if (age > 1)
		state->sharing[state->turn & 1] = 0;
	state->sharing[(state->turn + 1) & 1] = 0;
	__sync_fetch_and_add(&state->turn, age > 1 ? 2 : 1);
}

/* A flow sends, or will: true where that is the first time in a turn. */
static __always_inline bool joins(const struct weir_flow *flow, const struct weir_port *port,
				  struct weir_port_state *state, __u64 now_ns)
{
	if (!port->turn_shift)
		return false;
	if (turn_is_over(port, state, now_ns))
		next_turn(port, state, now_ns);
	return flow->turn != state->turn;
}

static __always_inline void count_sharer(struct weir_flow *flow, struct weir_port_state *state)
{
	flow->turn = state->turn;
	__sync_fetch_and_add(&state->sharing[state->turn & 1], 1);
}

/* It did in this turn or in the last one. */
static __always_inline bool sends(const struct weir_flow *flow, const struct weir_port *port,
				  const struct weir_port_state *state, __u64 now_ns)
{
	__s64 age = age_of(port, state, now_ns);

	return (__u32)(state->turn - flow->turn) + (age > 0 ? age : 0) < 2;
}

/* Payload of a flow: the first in a turn counts it. */
static __always_inline void note_turn(struct weir_flow *flow, const struct weir_port *port,
				      struct weir_port_state *state, __u64 now_ns)
{
	if (!joins(flow, port, state, now_ns))
		return;
	if (!sends(flow, port, state, now_ns))
		flow->seen |= WEIR_BEGINS;
	count_sharer(flow, state);
}

/* As one of them asks: where none is known the port has only now been told how long a turn is: all of N_i share. */
static __always_inline __u64 sharers(const struct weir_port *port, const struct weir_port_state *state, __u64 now_ns)
{
	__s64 age = age_of(port, state, now_ns);
	__u64 flows = age < 2 ? state->sharing[state->turn & 1] : 0;
	__u64 before = age < 1 ? state->sharing[(state->turn + 1) & 1] : 0;

	if (before > flows)
		flows = before;
	return flows && flows < state->n_i ? flows : state->n_i;
}

#endif
