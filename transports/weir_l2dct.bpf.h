/* SPDX-License-Identifier: GPL-2.0 */
/*
 * L2DCT: with a weight wc that falls with the bytes that the flow has sent, the penalty is alpha^wc, and cwnd grows by
 * wc / 2.5 segments per RTT. Slow start is Reno's. On a standing connection a pause of more than an RTO begins a new
 * flow: the paper has one flow per connection.
 */
#ifndef WEIR_L2DCT_BPF_H
#define WEIR_L2DCT_BPF_H

#include "weir_ecn.bpf.h"
#include "weir_l2dct.h"
#include "weir_power.h"

static __always_inline u32 l2dct_weight(struct sock *sk, struct weir_flow *flow)
{
	return weir_l2dct_weight(sender_sent_bytes(tcp_sock_of(sk)) - flow->start_bytes);
}

static __always_inline u32 weir_penalty(struct sock *sk, struct weir_flow *flow)
{
	flow->exponent = l2dct_weight(sk, flow);
	return weir_power(flow->dctcp.alpha, flow->exponent);
}

static __always_inline u32 weir_growth(struct sock *sk, struct weir_flow *flow, u32 acked)
{
	struct tcp_sock *tp = tcp_sock_of(sk);

	if (tp->snd_cwnd < tp->snd_ssthresh)
		return acked;
	return weir_l2dct_counted(acked, l2dct_weight(sk, flow), &flow->credit);
}

static __always_inline void weir_note_ack(struct sock *sk, struct weir_flow *flow, bool has_ece)
{
}

#endif
