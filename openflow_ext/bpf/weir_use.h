/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How much of its window a flow uses. A flow that its application or another link limits needs no whole share. It is
 * offered about twice what it had in flight, and the rest goes to the flows that the window limits: max-min fairness
 * (docs/decisions/0101-flows-that-use-little.md). Only at a port that corrects its allowance.
 *
 * A flow has a step from 0 to WEIR_USE_STEPS. Each step divides its weight by the square root of two. The step rises
 * by one whenever the flow used little of a window (limit_of_little_use), and falls whenever the window limited it
 * (weir_limit.h), once per turn.
 *
 * The sums of weights count each flow once per turn, so a flow remembers with which step it was counted in the last two
 * turns. `member`, which holds the counts in which a flow is, has three steps: of the next count and of both turns.
 */
#ifndef WEIR_USE_H
#define WEIR_USE_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_flow_bits.h"
#include "weir_structs.h"

static __always_inline __u32 use_step(const struct weir_flow *flow, enum weir_use which)
{
	return flow->member >> which & WEIR_USE_STEPS;
}

/* Atomic, like each change of `member`. */
static __always_inline void use_set_step(struct weir_flow *flow, enum weir_use which, __u32 step)
{
	if (use_step(flow, which) == step)
		return;
	__sync_fetch_and_and(&flow->member, ~((__u32)WEIR_USE_STEPS << which));
	__sync_fetch_and_or(&flow->member, step << which);
}

/* The weight of a flow that is at this step; `full`: at the step 0. */
static __always_inline __u32 use_weight(__u32 full, __u32 step)
{
	__u32 weight = full >> (step / 2);

	return step & 1 ? weight - weight * USE_ROOT_PART / 256 : weight;
}

/* The flow was counted with its newest step. Until then its window shows nothing about that step. */
static __always_inline bool use_is_counted(const struct weir_flow *flow)
{
	return use_step(flow, WEIR_USE_NEXT) == use_step(flow, WEIR_USE_LAST);
}

/* The flow did not use the part of its window that WEIR_WATCHES_USE asks for. */
static __always_inline void use_note_little(struct weir_flow *flow)
{
	__u32 step = use_step(flow, WEIR_USE_NEXT);

	if (step < WEIR_USE_STEPS && use_is_counted(flow))
		use_set_step(flow, WEIR_USE_NEXT, step + 1);
}

/* The window limits the flow. At a deep step it has its least window, which says nothing about the step. */
static __always_inline void use_note_limited(struct weir_flow *flow)
{
	__u32 step = use_step(flow, WEIR_USE_NEXT), by = step < USE_DEEP_STEP ? 1 : 3;

	if (step && use_is_counted(flow))
		use_set_step(flow, WEIR_USE_NEXT, step - by);
}

/* A flow resumes: it has a whole share. It is in no sum now. */
static __always_inline void use_forget(struct weir_flow *flow)
{
	if (flow->member & WEIR_ALL_USE)
		__sync_fetch_and_and(&flow->member, ~(__u32)WEIR_ALL_USE);
}

/*
 * The flow is counted in a turn. If its weight grows, it receives the larger share like a flow that resumes: one after
 * the other, because the sum of the weights follows only as the others are counted.
 */
static __always_inline void use_note_counted(struct weir_flow *flow, bool sent_before)
{
	__u32 next = use_step(flow, WEIR_USE_NEXT), last = use_step(flow, WEIR_USE_LAST);

	if (!(flow->member & WEIR_ALL_USE))
		return;
	if (next < last)
		flow_set(flow, WEIR_RESUMED);
	use_set_step(flow, WEIR_USE_BEFORE, sent_before ? last : next);
	use_set_step(flow, WEIR_USE_LAST, next);
}

#endif
