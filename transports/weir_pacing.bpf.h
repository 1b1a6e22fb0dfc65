/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Adaptive Pacing on any control of this folder: before TCP sends, it computes the interval of equation (16)
 * (weir_ap.h) and sets the socket's pacing rate from it. A control includes this file first and adds WEIR_PACING_OPS.
 * Each train of segments has its own random interval; weir_interval.bpf.h states what the kernel makes of it.
 */
#ifndef WEIR_PACING_BPF_H
#define WEIR_PACING_BPF_H

#include <bpf/bpf_endian.h>

#include "weir_interval.bpf.h"

#define AF_INET6 10
#define PATHS 16384
#define DESTINATIONS 16384
#define COOKIE_BITS 64
#define KEY_BITS (COOKIE_BITS + 128)

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

// The last ACK, and so the advertised window, is of before a pause.
static __always_inline bool pacing_has_old_window(const struct tcp_sock *tp)
{
	return (u32)bpf_jiffies64() - tp->rcv_tstamp > tp->inet_conn.icsk_rto;
}

// The kernel does not pace the first packets of a connection. They may be as many as need no pacing.
static __always_inline void pacing_limit_start(struct tcp_sock *tp, const struct weir_ap_path *path, u32 flows,
					       u32 packet_bytes)
{
	u32 most = weir_ap_unpaced_window(path, flows, packet_bytes);

	if (!tp->data_segs_out && tp->snd_cwnd > most)
		tp->snd_cwnd = most;
}

static __always_inline u32 pacing_interval_ns(struct sock *sk, struct weir_ap_state *ap)
{
	struct ap_path_key key = {.prefix_bits = KEY_BITS, .to = pacing_destination(sk)};
	struct ap_destination to = key.to;
	struct tcp_sock *tp = tcp_sock_of(sk);
	u32 senders = pacing_count(ap, &to), mss = tp->mss_cache;
	struct weir_ap_path *path = bpf_map_lookup_elem(&weir_ap_paths, &key);
	u64 now_ns = bpf_ktime_get_ns();

	ap->source = WEIR_AP_NOT_PACED;
	ap->flows = 0;
	if (!path || !mss || !weir_ap_is_usable(path))
		return 0;
	ap->flows = weir_ap_flows(path, senders, tp->snd_wnd, pacing_has_old_window(tp), mss, now_ns, &ap->source);
	ap->n_updated_ns = ap->source == WEIR_AP_WINDOW ? now_ns : path->n_updated_ns;
	pacing_limit_start(tp, path, ap->flows, mss + WEIR_AP_HEADER_BYTES);
	return weir_ap_interval_ns(path, ap->flows, pacing_window(tp, mss), mss + WEIR_AP_HEADER_BYTES,
				   tp->srtt_us >> SRTT_SHIFT);
}

SEC("struct_ops/weir_min_tso_segs")
u32 BPF_PROG(weir_min_tso_segs, struct sock *sk)
{
	u32 interval_ns = pacing_interval_ns(sk, &flow_of(sk)->ap);

	return interval_set(sk, interval_ns, weir_ap_random_interval_ns(interval_ns, bpf_get_prandom_u32()));
}

#define WEIR_PACING_OPS .min_tso_segs = (void *)weir_min_tso_segs, .release = (void *)weir_release

#endif
