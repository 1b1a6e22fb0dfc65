// SPDX-License-Identifier: GPL-2.0
// Adaptive Pacing on NewReno (RFC 5681, RFC 6582). With ECN, marks halve cwnd (RFC 3168).
//
// A reduction takes effect at once; the kernel's own Reno spreads it over an RTT (RFC 6937).
#include "weir_pacing.bpf.h"

static __always_inline u32 weir_penalty(struct sock *sk, struct weir_flow *flow)
{
	return WEIR_DCTCP_ONE;
}

static __always_inline u32 weir_growth(struct sock *sk, struct weir_flow *flow, u32 acked)
{
	return acked;
}

SEC("struct_ops/weir_init")
void BPF_PROG(weir_init, struct sock *sk)
{
	sender_start(sk);
}

SEC("struct_ops/weir_cwnd_event")
void BPF_PROG(weir_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_LOSS)
		sender_timed_out(sk);
	else if (event == CA_EVENT_TX_START)
		sender_restart_after_idle(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops weir_ap_reno = {
	WEIR_SENDER_OPS,        WEIR_PACING_OPS, .init = (void *)weir_init, .cwnd_event = (void *)weir_cwnd_event,
	.name = "weir_ap_reno",
};

char _license[] SEC("license") = "GPL";
