/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Adaptive Pacing on any control of this folder: before TCP sends, it computes the interval of equation (16)
 * (weir_ap.h) and sets the socket's pacing rate from it. A control includes this file first and adds WEIR_PACING_OPS.
 *
 * The kernel asks for the least size of a train of segments (min_tso_segs) each time before it sends. It then takes
 * the pacing rate for the train, and with TCP's own pacing it sends one train and waits. So each train has its own
 * random interval. TCP paces by its own timer; no fq is needed, and if there is one, fq paces.
 *
 * What the kernel adds: it does not pace the first ten segments of a connection, and it shortens an interval by up to
 * half if the one before was late (tcp_update_skb_after_send). A train of several segments is paced as one; on hosts
 * with net.ipv4.tcp_tso_rtt_log = 0 a train of a paced connection is one segment, if a millisecond of the rate is.
 */
#ifndef WEIR_PACING_BPF_H
#define WEIR_PACING_BPF_H

#include <bpf/bpf_endian.h>

#include "weir_sender.bpf.h"

#define AF_INET6 10
#define PATHS 16384
#define DESTINATIONS 16384
#define COOKIE_BITS 64
#define KEY_BITS (COOKIE_BITS + 128)
#define LEAST_TRAIN_PACED 1u
#define LEAST_TRAIN 2u // default of net.ipv4.tcp_min_tso_segs
#define NO_RATE_LIMIT (~0ul)

// A destination as a host sees it. In the lab each host is a network namespace of the same kernel.
struct ap_destination {
	__u32 netns_cookie[2];   // low half first
	struct in6_addr address; // IPv4 addresses are mapped
};

struct ap_path_key {
	__u32 prefix_bits;
	struct ap_destination to;
};

// Written by user space (transports/pacing_paths.py). The longest prefix of a destination counts.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PATHS);
	__type(key, struct ap_path_key);
	__type(value, struct weir_ap_path);
} weir_ap_paths SEC(".maps");

// The paced connections of this host that have sent data to a destination and are not closed. If the map is full, the
// kernel forgets the destination that was not used for longest, and its count begins again.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DESTINATIONS);
	__type(key, struct ap_destination);
	__type(value, __s64);
} weir_ap_senders SEC(".maps");

static __always_inline struct ap_destination pacing_destination(struct sock *sk)
{
	struct sock_common *common = &sk->__sk_common;
	__u64 cookie = common->skc_net.net->net_cookie;
	struct ap_destination to = {.netns_cookie = {(__u32)cookie, cookie >> 32}};

	if (common->skc_family == AF_INET6) {
		to.address = common->skc_v6_daddr;
	} else {
		to.address.in6_u.u6_addr32[2] = bpf_htonl(0xffff);
		to.address.in6_u.u6_addr32[3] = common->skc_daddr;
	}
	return to;
}

// Counts the connection as a sender of this host, once. Returns the number of senders to its destination, at least 1.
static __always_inline u32 pacing_count(struct weir_ap_state *ap, const struct ap_destination *to)
{
	__s64 one = 1, *senders = bpf_map_lookup_elem(&weir_ap_senders, to);

	if (!ap->is_counted) {
		ap->is_counted = 1;
		if (senders)
			__sync_fetch_and_add(senders, 1);
		else if (bpf_map_update_elem(&weir_ap_senders, to, &one, BPF_NOEXIST) &&
			 (senders = bpf_map_lookup_elem(&weir_ap_senders, to)))
			__sync_fetch_and_add(senders, 1); // another CPU was first
	}
	return senders && *senders > 1 ? *senders : 1;
}

SEC("struct_ops/weir_release")
void BPF_PROG(weir_release, struct sock *sk)
{
	struct weir_ap_state *ap = &flow_of(sk)->ap;
	struct ap_destination to = pacing_destination(sk);
	__s64 *senders;

	if (!ap->is_counted)
		return;
	ap->is_counted = 0;
	senders = bpf_map_lookup_elem(&weir_ap_senders, &to);
	if (senders)
		__sync_fetch_and_add(senders, -1);
}

// w: the congestion window, or the advertised one if that is smaller, in packets.
static __always_inline u32 pacing_window(const struct tcp_sock *tp, u32 mss)
{
	u32 advertised = (tp->snd_wnd + mss - 1) / mss;

	return tp->snd_cwnd < advertised ? tp->snd_cwnd : advertised;
}

static __always_inline u32 pacing_interval_ns(struct sock *sk, struct weir_ap_state *ap)
{
	struct ap_path_key key = {.prefix_bits = KEY_BITS, .to = pacing_destination(sk)};
	struct ap_destination to = key.to;
	struct tcp_sock *tp = tcp_sock_of(sk);
	u32 senders = pacing_count(ap, &to), mss = tp->mss_cache;
	struct weir_ap_path *path = bpf_map_lookup_elem(&weir_ap_paths, &key);

	ap->source = WEIR_AP_NOT_PACED;
	if (!path || !mss || !weir_ap_is_usable(path))
		return 0;
	if (weir_ap_has_flows(path, bpf_ktime_get_ns())) {
		ap->flows = path->flows;
		ap->source = path->source;
		ap->n_updated_ns = path->n_updated_ns;
	} else {
		ap->flows = senders;
		ap->source = WEIR_AP_COUNTED;
	}
	return weir_ap_interval_ns(path, ap->flows, pacing_window(tp, mss), mss + WEIR_AP_HEADER_BYTES,
				   tp->srtt_us >> SRTT_SHIFT);
}

static __always_inline void pacing_start(struct sock *sk, u32 interval_ns)
{
	u64 rate = weir_ap_rate(tcp_sock_of(sk)->mss_cache,
				weir_ap_random_interval_ns(interval_ns, bpf_get_prandom_u32()));

	if (rate > sk->sk_max_pacing_rate) // SO_MAX_PACING_RATE of the application
		rate = sk->sk_max_pacing_rate;
	sk->sk_pacing_rate = rate;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

// With t = 0 the connection sends as its base does, unless the application asked for pacing.
static __always_inline void pacing_stop(struct sock *sk)
{
	sender_set_pacing_rate(sk);
	if (sk->sk_pacing_status == SK_PACING_NEEDED && sk->sk_max_pacing_rate == NO_RATE_LIMIT)
		sk->sk_pacing_status = SK_PACING_NONE;
}

SEC("struct_ops/weir_min_tso_segs")
u32 BPF_PROG(weir_min_tso_segs, struct sock *sk)
{
	struct weir_ap_state *ap = &flow_of(sk)->ap;

	u32 before_ns = ap->interval_ns;

	ap->interval_ns = pacing_interval_ns(sk, ap);
	if (ap->interval_ns)
		pacing_start(sk, ap->interval_ns);
	else if (before_ns)
		pacing_stop(sk);
	return ap->interval_ns ? LEAST_TRAIN_PACED : LEAST_TRAIN;
}

#define WEIR_PACING_OPS .min_tso_segs = (void *)weir_min_tso_segs, .release = (void *)weir_release

#endif
