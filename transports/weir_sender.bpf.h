/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The sender that all congestion controls of this folder share: reaction to marks and losses (RFC 8257, section 3.5),
 * growth, restart after idle time, pacing rate. A control includes it once and defines weir_penalty() and
 * weir_growth().
 *
 * The kernel separates the windows of data (its states CWR and Recovery), and falls to the loss window after a timeout.
 * weir_cong_control() sets cwnd; the kernel does not set it from the result of ssthresh(). The reason: some kernels
 * skip calls of BPF programs (docs/decisions/0030-missed-program-calls.md) and then use a value from the stack as the
 * result. If a call of cong_control() is skipped, the next call corrects that.
 */
#ifndef WEIR_SENDER_BPF_H
#define WEIR_SENDER_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "weir_flow.h"

#define SOL_TCP 6
#define TCP_CONGESTION 13
#define INITIAL_CWND 10               // RFC 6928
#define DST_METRICS_FLAGS 3ul         // the lowest bits of a route's pointer to its metrics
#define SLOW_START_PACING_PERCENT 200 // default of net.ipv4.tcp_pacing_ss_ratio
#define PACING_PERCENT 120            // default of net.ipv4.tcp_pacing_ca_ratio
#define MAX_HALVINGS 32
#define SRTT_SHIFT 3 // the kernel stores eighths of a microsecond
#define USEC_PER_SEC 1000000ull

extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

static __always_inline struct tcp_sock *tcp_sock_of(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct weir_flow *flow_of(struct sock *sk)
{
	return (struct weir_flow *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline struct weir_dctcp *dctcp_of(struct sock *sk)
{
	return &flow_of(sk)->dctcp;
}

// Each control defines these two. The penalty p, a fraction of WEIR_DCTCP_ONE: marks reduce cwnd to cwnd (1 - p/2).
static __always_inline u32 weir_penalty(struct sock *sk, struct weir_flow *flow);
// How many of `acked` segments count for Reno's growth.
static __always_inline u32 weir_growth(struct sock *sk, struct weir_flow *flow, u32 acked);

static __always_inline void sender_start(struct sock *sk)
{
	struct weir_dctcp *dctcp = dctcp_of(sk);
	struct tcp_sock *tp = tcp_sock_of(sk);

	weir_dctcp_start_window(dctcp, tp->snd_una);
	dctcp->alpha = WEIR_DCTCP_ONE;
	dctcp->reduction = WEIR_DCTCP_NOT_REDUCED;
	dctcp->high_seq = tp->high_seq;
	dctcp->delivered = tp->delivered;
}

// The kernel calls this when a reduction begins; cong_control() computes the reduction.
SEC("struct_ops/weir_ssthresh")
u32 BPF_PROG(weir_ssthresh, struct sock *sk)
{
	return tcp_sock_of(sk)->snd_ssthresh;
}

// A loss halves the cwnd from before the first reduction of this window. So marks and losses of one window together
// reduce cwnd no further than a loss alone (section 3.5).
static __always_inline void sender_reduce(struct sock *sk, u8 state)
{
	u32 reduction = state == TCP_CA_CWR ? WEIR_DCTCP_REDUCED_BY_MARKS : WEIR_DCTCP_REDUCED_BY_LOSS;
	struct weir_dctcp *dctcp = dctcp_of(sk);
	struct tcp_sock *tp = tcp_sock_of(sk);

	if (dctcp->high_seq != tp->high_seq) { // the kernel has begun another window
		dctcp->high_seq = tp->high_seq;
		dctcp->reduction = WEIR_DCTCP_NOT_REDUCED;
	}
	if (dctcp->reduction >= reduction)
		return;
	dctcp->reduction = reduction;
	if (reduction == WEIR_DCTCP_REDUCED_BY_MARKS)
		tp->snd_ssthresh = weir_dctcp_cwnd_after_marks(tp->prior_cwnd, weir_penalty(sk, flow_of(sk)));
	else
		tp->snd_ssthresh = weir_dctcp_cwnd_after_loss(tp->prior_cwnd);
	if (state != TCP_CA_Loss) // in that state the kernel has set the loss window
		tp->snd_cwnd = tp->snd_ssthresh;
}

// The MTU of the path shrank (tcp_simple_retransmit): the kernel sends the lost segments again in the state Loss.
// Nothing is congested, so cong_control() reduces nothing, and prior_cwnd is not of this window. After a timeout that
// begins a reduction, undo_marker is not 0.
static __always_inline bool sender_is_path_change(const struct tcp_sock *tp, u8 state)
{
	return state == TCP_CA_Loss && tp->inet_conn.icsk_ca_state <= TCP_CA_Disorder && !tp->undo_marker;
}

// A reduction may end with the ACK that began it, if a tail loss probe has repaired a loss. cong_control() then does
// not see the state CWR.
SEC("struct_ops/weir_set_state")
void BPF_PROG(weir_set_state, struct sock *sk, u8 state)
{
	struct weir_dctcp *dctcp = dctcp_of(sk);
	struct tcp_sock *tp = tcp_sock_of(sk);

	if (sender_is_path_change(tp, state)) {
		dctcp->high_seq = tp->high_seq;
		dctcp->reduction = WEIR_DCTCP_REDUCED_BY_LOSS;
		return;
	}
	if (state <= TCP_CA_Disorder && tp->inet_conn.icsk_ca_state == TCP_CA_CWR && tp->high_seq != dctcp->high_seq)
		sender_reduce(sk, TCP_CA_Recovery);
}

// The kernel does not limit the rate of a congestion control with cong_control().
static __always_inline void sender_pace_at(struct sock *sk, u64 rate)
{
	u64 most = sk->sk_max_pacing_rate; // SO_MAX_PACING_RATE of the application

	sk->sk_pacing_rate = rate < most ? rate : most;
}

// The pacing rate that the kernel sets (tcp_update_pacing_rate) for congestion controls without cong_control(). TCP
// small queues and the size of bursts depend on it.
static __always_inline void sender_set_pacing_rate(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sock_of(sk);
	u64 percent = tp->snd_cwnd < tp->snd_ssthresh / 2 ? SLOW_START_PACING_PERCENT : PACING_PERCENT;

	if (tp->srtt_us)
		sender_pace_at(sk, (u64)tp->mss_cache * tp->snd_cwnd * 8 * USEC_PER_SEC / tp->srtt_us * percent / 100);
}

SEC("struct_ops/weir_cong_control")
void BPF_PROG(weir_cong_control, struct sock *sk)
{
	struct weir_dctcp *dctcp = dctcp_of(sk);
	struct tcp_sock *tp = tcp_sock_of(sk);
	u8 state = tp->inet_conn.icsk_ca_state;
	u32 acked = tp->delivered - dctcp->delivered;

	dctcp->delivered = tp->delivered;
	if (state != TCP_CA_Open && state != TCP_CA_Disorder)
		sender_reduce(sk, state);
	if (state != TCP_CA_CWR && state != TCP_CA_Recovery)
		tcp_reno_cong_avoid(sk, tp->snd_una, weir_growth(sk, flow_of(sk), acked));
	sender_set_pacing_rate(sk);
}

// Each timeout begins a new window.
static __always_inline void sender_timed_out(struct sock *sk)
{
	dctcp_of(sk)->reduction = WEIR_DCTCP_NOT_REDUCED;
	sender_reduce(sk, TCP_CA_Loss);
}

// The bytes that the connection has sent, without retransmissions.
static __always_inline u64 sender_sent_bytes(const struct tcp_sock *tp)
{
	return tp->bytes_sent - tp->bytes_retrans;
}

// The initial window: the route's attribute initcwnd, or that of RFC 6928 (tcp_init_cwnd of the kernel).
static __always_inline u32 sender_initial_cwnd(const struct sock *sk)
{
	const struct dst_entry *route = sk->sk_dst_cache;
	const u32 *metrics;
	u32 cwnd = 0;

	if (route) {
		metrics = (const u32 *)(route->_metrics & ~DST_METRICS_FLAGS);
		bpf_probe_read_kernel(&cwnd, sizeof(cwnd), &metrics[RTAX_INITCWND - 1]);
	}
	return cwnd ? cwnd : INITIAL_CWND;
}

// RFC 5681, section 4.1, as the kernel does it for its own congestion controls: for each idle RTO the window is halved,
// down to the initial one.
static __always_inline void sender_reduce_after_idle(struct tcp_sock *tp, u32 idle, u32 rto, u32 initial)
{
	u32 cwnd = tp->snd_cwnd, slow = cwnd / 2 + cwnd / 4;

	for (int halvings = 0; halvings < MAX_HALVINGS && idle > rto && cwnd > initial; halvings++) {
		idle -= rto;
		cwnd /= 2;
	}
	if (slow > tp->snd_ssthresh)
		tp->snd_ssthresh = slow;
	if (tp->snd_cwnd > initial)
		tp->snd_cwnd = cwnd > initial ? cwnd : initial;
}

// After a pause of more than an RTO. net.ipv4.tcp_slow_start_after_idle states whether it reduces the window; the
// kernel leaves that to a control with cong_control(). Marks from before the pause are discarded, with slow_time, and a
// new flow begins.
static __always_inline void sender_restart_after_idle(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sock_of(sk);
	u32 rto = tp->inet_conn.icsk_rto, idle = (u32)bpf_jiffies64() - tp->lsndtime;

	if (!tp->snd_nxt || !tp->lsndtime || idle <= rto)
		return;
	if (sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_slow_start_after_idle)
		sender_reduce_after_idle(tp, idle, rto, sender_initial_cwnd(sk));
	weir_dctcp_start_window(dctcp_of(sk), tp->snd_una);
	flow_of(sk)->start_bytes = sender_sent_bytes(tp);
	flow_of(sk)->slow = (struct weir_slow){.state = WEIR_SLOW_NORMAL};
}

SEC("struct_ops/weir_undo_cwnd")
u32 BPF_PROG(weir_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

// What every control passes to the kernel.
#define WEIR_SENDER_OPS                                                                                                \
	.ssthresh = (void *)weir_ssthresh, .set_state = (void *)weir_set_state,                                        \
	.cong_control = (void *)weir_cong_control, .undo_cwnd = (void *)weir_undo_cwnd

#endif
