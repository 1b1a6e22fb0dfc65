/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An interval between the trains of segments of a connection, by the socket's pacing rate. The control calls
 * interval_set() from min_tso_segs().
 *
 * The kernel asks for the least size of a train of segments (min_tso_segs) each time before it sends. It then takes
 * the pacing rate for the train, and with TCP's own pacing it sends one train and waits. So each train has its own
 * interval. TCP paces by its own timer; no fq is needed, and if there is one, fq paces.
 *
 * What the kernel adds: it does not pace the first ten segments of a connection, and it shortens an interval by up to
 * half if the one before was late (tcp_update_skb_after_send). A train of several segments is paced as one; on hosts
 * with net.ipv4.tcp_tso_rtt_log = 0 a train of a paced connection is one segment, if a millisecond of the rate is.
 */
#ifndef WEIR_INTERVAL_BPF_H
#define WEIR_INTERVAL_BPF_H

#include "weir_sender.bpf.h"

#define LEAST_TRAIN_PACED 1u
#define LEAST_TRAIN 2u // default of net.ipv4.tcp_min_tso_segs
#define NO_RATE_LIMIT (~0ul)

static __always_inline void interval_start(struct sock *sk, u64 next_ns)
{
	sender_pace_at(sk, weir_ap_rate(tcp_sock_of(sk)->mss_cache, next_ns));
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

// The connection sends as without an interval, unless the application asked for pacing.
static __always_inline void interval_stop(struct sock *sk)
{
	sender_set_pacing_rate(sk);
	if (sk->sk_pacing_status == SK_PACING_NEEDED && sk->sk_max_pacing_rate == NO_RATE_LIMIT)
		sk->sk_pacing_status = SK_PACING_NONE;
}

// interval_ns: between trains, on average; 0: none. next_ns: after the next train. Returns the least train.
static __always_inline u32 interval_set(struct sock *sk, u32 interval_ns, u64 next_ns)
{
	struct weir_ap_state *ap = &flow_of(sk)->ap;
	u32 before_ns = ap->interval_ns;

	ap->interval_ns = interval_ns;
	if (interval_ns)
		interval_start(sk, next_ns);
	else if (before_ns)
		interval_stop(sk);
	return interval_ns ? LEAST_TRAIN_PACED : LEAST_TRAIN;
}

#endif
