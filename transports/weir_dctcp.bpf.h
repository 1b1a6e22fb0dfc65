/* SPDX-License-Identifier: GPL-2.0 */
/* DCTCP (RFC 8257): the penalty is alpha, and growth is Reno's (section 3.4). */
#ifndef WEIR_DCTCP_BPF_H
#define WEIR_DCTCP_BPF_H

#include "weir_ecn.bpf.h"

static __always_inline u32 weir_penalty(struct sock *sk, struct weir_flow *flow)
{
	return flow->dctcp.alpha;
}

static __always_inline u32 weir_growth(struct sock *sk, struct weir_flow *flow, u32 acked)
{
	return acked;
}

static __always_inline void weir_note_ack(struct sock *sk, struct weir_flow *flow, bool has_ece)
{
}

#endif
