/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The flags of a flow, and the counts in which it is. Two CPUs may handle segments of one flow at the same time, for
 * example one of each direction. So each change is atomic: otherwise one CPU would undo what the other one has noted.
 */
#ifndef WEIR_FLOW_BITS_H
#define WEIR_FLOW_BITS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_structs.h"

/* `flags`: of enum weir_flow_flag. Returns the flags before. */
static __always_inline __u32 flow_set(struct weir_flow *flow, __u32 flags)
{
	return __sync_fetch_and_or(&flow->flags, flags);
}

static __always_inline void flow_clear(struct weir_flow *flow, __u32 flags)
{
	__sync_fetch_and_and(&flow->flags, ~flags);
}

/*
 * Writes only if the flag changes. The flag is toggled, because a branch by `on` costs the verifier much. If two CPUs
 * note the same change at once, it stays as it was, and the next segment notes the change.
 */
static __always_inline void flow_note(struct weir_flow *flow, enum weir_flow_flag flag, bool on)
{
	if (on != !!(flow->flags & flag))
		__sync_fetch_and_xor(&flow->flags, flag);
}

/* False: the flow was a member already. */
static __always_inline bool flow_join(struct weir_flow *flow, enum weir_member member)
{
	return !(__sync_fetch_and_or(&flow->member, member) & member);
}

/* False: the flow was no member. */
static __always_inline bool flow_leave(struct weir_flow *flow, enum weir_member member)
{
	return __sync_fetch_and_and(&flow->member, ~(__u32)member) & member;
}

#endif
