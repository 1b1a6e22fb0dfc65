/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The crowd: the flows of the next round, as far as the port knows. It is the remembered peak of N_i, because rounds
 * repeat. A port that corrects its allowance without setting a fair share, as under SDTCP alone, may count no N_i. Its
 * crowd is the remembered peak of the active senders of a turn.
 */
#ifndef WEIR_CROWD_H
#define WEIR_CROWD_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_structs.h"

static __always_inline __u32 crowd_remembered(const struct weir_port_state *state, __u64 now_ns)
{
	__u64 age_ns = now_ns > state->crowd_ns ? now_ns - state->crowd_ns : 0; /* it may be that of the last tick */
	__u64 halvings;

	if (age_ns < CROWD_HALVING_NS) /* a division costs as much as the rest */
		return state->crowd;
	halvings = age_ns / CROWD_HALVING_NS;
	return halvings < MAX_HALVINGS ? state->crowd >> halvings : 0;
}

/* So many flows are counted now, one more than before. */
static __always_inline void crowd_note(const struct weir_port *port, struct weir_port_state *state, __u64 flows,
				       __u64 now_ns)
{
	if (port->omits & WEIR_OMIT_CROWD || flows < crowd_remembered(state, now_ns))
		return;
	state->crowd = flows;
	state->crowd_ns = now_ns;
}

/* The number of flows in the next round, as far as the port knows. */
static __always_inline __u32 crowd_now(const struct weir_port_state *state, __u64 now_ns)
{
	__u32 crowd = crowd_remembered(state, now_ns);

	return state->n_i > crowd ? state->n_i : crowd;
}

#endif
