/* SPDX-License-Identifier: GPL-2.0 */
/*
 * DCTCP's use of ECN (RFC 8257), which the controls of the DCTCP family share: the sender's estimate alpha (section
 * 3.3), and the receiver's echo (section 3.2). The kernel negotiates ECN because of the flag NEEDS_ECN, and sends ECE
 * and CWR.
 *
 * Not implemented: AccECN (RFC 9768); a g other than 1/16; resetting alpha after a loss (section 4.1, MAY).
 */
#ifndef WEIR_ECN_BPF_H
#define WEIR_ECN_BPF_H

#include "weir_sender.bpf.h"

#define TCP_CONG_NEEDS_ECN (1 << 1)
#define TCP_ECN_OK (1 << 0)
#define TCP_ECN_DEMAND_CWR (1 << 2) // while this is set, ACKs carry ECE

// Each control defines this. An ACK arrived; has_ece: it carries ECE.
static __always_inline void weir_note_ack(struct sock *sk, struct weir_flow *flow, bool has_ece);

// Without ECN on the connection there is nothing to estimate, and packets must not be ECN-capable: Reno takes over.
SEC("struct_ops/weir_init")
void BPF_PROG(weir_init, struct sock *sk)
{
	struct weir_dctcp *dctcp = dctcp_of(sk);
	struct tcp_sock *tp = tcp_sock_of(sk);
	char reno[] = "reno";

	if (!(tp->ecn_flags & TCP_ECN_OK)) {
		bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno));
		return;
	}
	sender_start(sk);
	dctcp->prior_rcv_nxt = tp->rcv_nxt;
	dctcp->ce = 0;
}

SEC("struct_ops/weir_in_ack_event")
void BPF_PROG(weir_in_ack_event, struct sock *sk, u32 flags)
{
	struct tcp_sock *tp = tcp_sock_of(sk);

	weir_dctcp_on_ack(dctcp_of(sk), tp->snd_una, flags & CA_ACK_ECE, tp->snd_nxt);
	weir_note_ack(sk, flow_of(sk), flags & CA_ACK_ECE);
}

static __always_inline void ecn_set_ece(struct sock *sk, u32 ce)
{
	struct tcp_sock *tp = tcp_sock_of(sk);

	if (ce)
		tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
	else
		tp->ecn_flags &= ~TCP_ECN_DEMAND_CWR;
}

static __always_inline bool seq_before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

// Section 3.2. If CE changes while data is not acknowledged, that data is acknowledged first, with its own ECE, so that
// each byte is echoed as it arrived. An ACK may be pending although rcv_wup is past the data: while a process owns the
// socket, ACKs wait without a timer, even with ACK_NOW (net.ipv4.tcp_backlog_ack_defer).
static __always_inline void ecn_receive_data(struct sock *sk, u32 ce)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct weir_dctcp *dctcp = dctcp_of(sk);
	struct tcp_sock *tp = tcp_sock_of(sk);

	if (dctcp->ce != ce) {
		if (seq_before(tp->rcv_wup, dctcp->prior_rcv_nxt) || icsk->icsk_ack.pending & ICSK_ACK_NOW) {
			ecn_set_ece(sk, dctcp->ce);
			bpf_tcp_send_ack(tp, dctcp->prior_rcv_nxt);
		}
		icsk->icsk_ack.pending |= ICSK_ACK_NOW;
	}
	dctcp->ce = ce;
	dctcp->prior_rcv_nxt = tp->rcv_nxt;
	ecn_set_ece(sk, ce);
}

SEC("struct_ops/weir_cwnd_event")
void BPF_PROG(weir_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	switch (event) {
	case CA_EVENT_ECN_IS_CE:
	case CA_EVENT_ECN_NO_CE:
		ecn_receive_data(sk, event == CA_EVENT_ECN_IS_CE);
		break;
	case CA_EVENT_LOSS:
		sender_timed_out(sk);
		break;
	case CA_EVENT_TX_START:
		sender_restart_after_idle(sk);
		break;
	default:
		break;
	}
}

#define WEIR_ECN_OPS                                                                                                   \
	WEIR_SENDER_OPS, .init = (void *)weir_init, .in_ack_event = (void *)weir_in_ack_event,                         \
			 .cwnd_event = (void *)weir_cwnd_event, .flags = TCP_CONG_NEEDS_ECN

#endif
