// SPDX-License-Identifier: GPL-2.0
// DCTCP (RFC 8257) as a congestion control for sockets: TCP_CONGESTION=weir_dctcp, on both ends.
//
// The kernel negotiates ECN (because of the flag NEEDS_ECN), sends ECE and CWR, separates the windows of data (its
// states CWR and Recovery), and falls to the loss window after a timeout. This program decides how far cwnd falls and
// which ACKs carry ECE. Growth is Reno's (section 3.4).
//
// cong_control() sets cwnd; the kernel does not set it from the result of ssthresh(). The reason: some kernels skip
// calls of BPF programs (docs/decisions/0030-missed-program-calls.md) and then use a value from the stack as the
// result. If a call of cong_control() is skipped, the next call corrects that.
//
// Not implemented: AccECN (RFC 9768); a g other than 1/16; resetting alpha after a loss (section 4.1, MAY).
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "weir_dctcp.h"

#define TCP_CONG_NEEDS_ECN (1 << 1)
#define TCP_ECN_OK (1 << 0)
#define TCP_ECN_DEMAND_CWR (1 << 2) // while this is set, ACKs carry ECE
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define INITIAL_CWND 10               // RFC 6928
#define SLOW_START_PACING_PERCENT 200 // default of net.ipv4.tcp_pacing_ss_ratio
#define PACING_PERCENT 120            // default of net.ipv4.tcp_pacing_ca_ratio
#define MAX_HALVINGS 32
#define USEC_PER_SEC 1000000ull

extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

static __always_inline struct tcp_sock *tcp_sock_of(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct weir_dctcp *dctcp_of(struct sock *sk)
{
	return (struct weir_dctcp *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

// Without ECN on the connection there is nothing to estimate, and packets must not be ECN-capable: Reno takes over.
SEC("struct_ops/weir_dctcp_init")
void BPF_PROG(weir_dctcp_init, struct sock *sk)
{
	struct weir_dctcp *dctcp = dctcp_of(sk);
	struct tcp_sock *tp = tcp_sock_of(sk);
	char reno[] = "reno";

	if (!(tp->ecn_flags & TCP_ECN_OK)) {
		bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno));
		return;
	}
	weir_dctcp_start_window(dctcp, tp->snd_una);
	dctcp->alpha = WEIR_DCTCP_ONE;
	dctcp->prior_rcv_nxt = tp->rcv_nxt;
	dctcp->ce = 0;
	dctcp->reduction = WEIR_DCTCP_NOT_REDUCED;
	dctcp->high_seq = tp->high_seq;
	dctcp->delivered = tp->delivered;
}

SEC("struct_ops/weir_dctcp_in_ack_event")
void BPF_PROG(weir_dctcp_in_ack_event, struct sock *sk, u32 flags)
{
	struct tcp_sock *tp = tcp_sock_of(sk);

	weir_dctcp_on_ack(dctcp_of(sk), tp->snd_una, flags & CA_ACK_ECE, tp->snd_nxt);
}

// The kernel calls this when a reduction begins; cong_control() computes the reduction.
SEC("struct_ops/weir_dctcp_ssthresh")
u32 BPF_PROG(weir_dctcp_ssthresh, struct sock *sk)
{
	return tcp_sock_of(sk)->snd_ssthresh;
}

// A loss halves the cwnd from before the first reduction of this window. So marks and losses of one window together
// reduce cwnd no further than a loss alone (section 3.5).
static __always_inline void dctcp_reduce(struct tcp_sock *tp, struct weir_dctcp *dctcp, u8 state)
{
	u32 reduction = state == TCP_CA_CWR ? WEIR_DCTCP_REDUCED_BY_MARKS : WEIR_DCTCP_REDUCED_BY_LOSS;

	if (dctcp->high_seq != tp->high_seq) { // the kernel has begun another window
		dctcp->high_seq = tp->high_seq;
		dctcp->reduction = WEIR_DCTCP_NOT_REDUCED;
	}
	if (dctcp->reduction >= reduction)
		return;
	dctcp->reduction = reduction;
	if (reduction == WEIR_DCTCP_REDUCED_BY_MARKS)
		tp->snd_ssthresh = weir_dctcp_cwnd_after_marks(tp->prior_cwnd, dctcp->alpha);
	else
		tp->snd_ssthresh = weir_dctcp_cwnd_after_loss(tp->prior_cwnd);
	if (state != TCP_CA_Loss) // in that state the kernel has set the loss window
		tp->snd_cwnd = tp->snd_ssthresh;
}

// A reduction may end with the ACK that began it, if a tail loss probe has repaired a loss. cong_control() then does
// not see the state CWR.
SEC("struct_ops/weir_dctcp_set_state")
void BPF_PROG(weir_dctcp_set_state, struct sock *sk, u8 state)
{
	struct tcp_sock *tp = tcp_sock_of(sk);

	if (state <= TCP_CA_Disorder && tp->inet_conn.icsk_ca_state == TCP_CA_CWR &&
	    tp->high_seq != dctcp_of(sk)->high_seq)
		dctcp_reduce(tp, dctcp_of(sk), TCP_CA_Recovery);
}

// The pacing rate that the kernel sets (tcp_update_pacing_rate) for congestion controls without cong_control(). TCP
// small queues and the size of bursts depend on it.
static __always_inline void dctcp_set_pacing_rate(struct sock *sk, struct tcp_sock *tp)
{
	u64 percent = tp->snd_cwnd < tp->snd_ssthresh / 2 ? SLOW_START_PACING_PERCENT : PACING_PERCENT;

	if (tp->srtt_us)
		sk->sk_pacing_rate = (u64)tp->mss_cache * tp->snd_cwnd * 8 * USEC_PER_SEC / tp->srtt_us * percent / 100;
}

SEC("struct_ops/weir_dctcp_cong_control")
void BPF_PROG(weir_dctcp_cong_control, struct sock *sk)
{
	struct weir_dctcp *dctcp = dctcp_of(sk);
	struct tcp_sock *tp = tcp_sock_of(sk);
	u8 state = tp->inet_conn.icsk_ca_state;
	u32 acked = tp->delivered - dctcp->delivered;

	dctcp->delivered = tp->delivered;
	if (state != TCP_CA_Open && state != TCP_CA_Disorder)
		dctcp_reduce(tp, dctcp, state);
	if (state != TCP_CA_CWR && state != TCP_CA_Recovery)
		tcp_reno_cong_avoid(sk, tp->snd_una, acked);
	dctcp_set_pacing_rate(sk, tp);
}

static __always_inline void dctcp_set_ece(struct sock *sk, u32 ce)
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
static __always_inline void dctcp_receive_data(struct sock *sk, u32 ce)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct weir_dctcp *dctcp = dctcp_of(sk);
	struct tcp_sock *tp = tcp_sock_of(sk);

	if (dctcp->ce != ce) {
		if (seq_before(tp->rcv_wup, dctcp->prior_rcv_nxt) || icsk->icsk_ack.pending & ICSK_ACK_NOW) {
			dctcp_set_ece(sk, dctcp->ce);
			bpf_tcp_send_ack(tp, dctcp->prior_rcv_nxt);
		}
		icsk->icsk_ack.pending |= ICSK_ACK_NOW;
	}
	dctcp->ce = ce;
	dctcp->prior_rcv_nxt = tp->rcv_nxt;
	dctcp_set_ece(sk, ce);
}

// RFC 5681, section 4.1, as the kernel does it for its own congestion controls: for each idle RTO the window is halved,
// down to the initial one. Marks from before the pause are discarded.
static __always_inline void dctcp_restart_after_idle(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sock_of(sk);
	u32 rto = tp->inet_conn.icsk_rto, idle = (u32)bpf_jiffies64() - tp->lsndtime;
	u32 cwnd = tp->snd_cwnd, slow = cwnd / 2 + cwnd / 4;

	if (!tp->snd_nxt || !tp->lsndtime || idle <= rto)
		return;
	for (int halvings = 0; halvings < MAX_HALVINGS && idle > rto && cwnd > INITIAL_CWND; halvings++) {
		idle -= rto;
		cwnd /= 2;
	}
	if (slow > tp->snd_ssthresh)
		tp->snd_ssthresh = slow;
	if (tp->snd_cwnd > INITIAL_CWND)
		tp->snd_cwnd = cwnd > INITIAL_CWND ? cwnd : INITIAL_CWND;
	weir_dctcp_start_window(dctcp_of(sk), tp->snd_una);
}

SEC("struct_ops/weir_dctcp_cwnd_event")
void BPF_PROG(weir_dctcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	switch (event) {
	case CA_EVENT_ECN_IS_CE:
	case CA_EVENT_ECN_NO_CE:
		dctcp_receive_data(sk, event == CA_EVENT_ECN_IS_CE);
		break;
	case CA_EVENT_LOSS: // each timeout begins a new window
		dctcp_of(sk)->reduction = WEIR_DCTCP_NOT_REDUCED;
		dctcp_reduce(tcp_sock_of(sk), dctcp_of(sk), TCP_CA_Loss);
		break;
	case CA_EVENT_TX_START:
		dctcp_restart_after_idle(sk);
		break;
	default:
		break;
	}
}

SEC("struct_ops/weir_dctcp_undo_cwnd")
u32 BPF_PROG(weir_dctcp_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops weir_dctcp = {
	.init = (void *)weir_dctcp_init,
	.in_ack_event = (void *)weir_dctcp_in_ack_event,
	.ssthresh = (void *)weir_dctcp_ssthresh,
	.set_state = (void *)weir_dctcp_set_state,
	.cwnd_event = (void *)weir_dctcp_cwnd_event,
	.cong_control = (void *)weir_dctcp_cong_control,
	.undo_cwnd = (void *)weir_dctcp_undo_cwnd,
	.flags = TCP_CONG_NEEDS_ECN,
	.name = "weir_dctcp",
};

char _license[] SEC("license") = "GPL";
