/* SPDX-License-Identifier: GPL-2.0 */
/*
 * D2TCP: the penalty is p = alpha^d, and growth is Reno's. d is 1 without a deadline, and once the message is
 * acknowledged; it is 1/2 after the deadline.
 */
#ifndef WEIR_D2TCP_BPF_H
#define WEIR_D2TCP_BPF_H

#include "weir_deadlines.bpf.h"
#include "weir_ecn.bpf.h"
#include "weir_power.h"

static __always_inline u32 d2tcp_imminence(struct sock *sk)
{
	struct weir_deadline *deadline = bpf_sk_storage_get(&weir_deadlines, sk, NULL, 0);
	struct tcp_sock *tp = tcp_sock_of(sk);
	u64 now_ns = bpf_ktime_get_ns(), needed_us;

	if (!deadline || tp->bytes_acked >= deadline->end_byte)
		return WEIR_DCTCP_ONE;
	needed_us = weir_d2tcp_time_needed_us(deadline->end_byte - tp->bytes_acked, tp->prior_cwnd, tp->mss_cache,
					      tp->srtt_us >> SRTT_SHIFT);
	return weir_d2tcp_imminence(needed_us, now_ns < deadline->at_ns ? (deadline->at_ns - now_ns) / 1000 : 0);
}

static __always_inline u32 weir_penalty(struct sock *sk, struct weir_flow *flow)
{
	flow->exponent = d2tcp_imminence(sk);
	return weir_power(flow->dctcp.alpha, flow->exponent);
}

static __always_inline u32 weir_growth(struct sock *sk, struct weir_flow *flow, u32 acked)
{
	return acked;
}

static __always_inline void weir_note_ack(struct sock *sk, struct weir_flow *flow, bool has_ece)
{
}

#endif
