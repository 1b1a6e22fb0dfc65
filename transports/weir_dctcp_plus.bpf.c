// SPDX-License-Identifier: GPL-2.0
// DCTCP+: DCTCP that delays packets by a random time if marks or losses go on although cwnd is at its floor.
#include "weir_ecn.bpf.h"
#include "weir_interval.bpf.h"

static __always_inline u32 weir_penalty(struct sock *sk, struct weir_flow *flow)
{
	return flow->dctcp.alpha;
}

// While a slow_time regulates the rate, cwnd stays at its floor.
static __always_inline u32 weir_growth(struct sock *sk, struct weir_flow *flow, u32 acked)
{
	return flow->slow.state == WEIR_SLOW_NORMAL ? acked : 0;
}

static __always_inline void weir_note_ack(struct sock *sk, struct weir_flow *flow, bool has_ece)
{
	struct tcp_sock *tp = tcp_sock_of(sk);
	bool is_congested = has_ece || tp->inet_conn.icsk_ca_state >= TCP_CA_Recovery;

	weir_slow_on_ack(&flow->slow, tp->snd_cwnd <= WEIR_DCTCP_LEAST_CWND, is_congested,
			 weir_slow_unit_ns(tp->rtt_min.s[0].v), bpf_get_prandom_u32());
}

SEC("struct_ops/weir_min_tso_segs")
u32 BPF_PROG(weir_min_tso_segs, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sock_of(sk);
	u32 interval_ns = weir_slow_interval_ns(&flow_of(sk)->slow, tp->snd_cwnd, tp->srtt_us >> SRTT_SHIFT);

	return interval_set(sk, interval_ns, interval_ns);
}

SEC(".struct_ops")
struct tcp_congestion_ops weir_dctcp_plus = {
	WEIR_ECN_OPS,
	.min_tso_segs = (void *)weir_min_tso_segs,
	.name = "weir_dctcp_plus",
};

char _license[] SEC("license") = "GPL";
