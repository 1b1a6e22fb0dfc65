// SPDX-License-Identifier: GPL-2.0
// The state of each connection that uses a congestion control of Weir, as an iterator: the kernel runs it when it is
// read. It covers one network namespace.
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "weir_flow.h"

#define AF_INET6 10

// sockets.py declares the same struct and reads these records.
struct dctcp_socket {
	struct in6_addr local, remote;    // IPv4 addresses are mapped
	__u16 local_port, remote_port;    // host order
	__u32 cwnd, ssthresh, prior_cwnd; // segments
	__u32 srtt_us, padding;
	__u64 pacing_bytes_per_s;
	char name[16]; // of the congestion control; if it is not one with struct weir_flow, sockets.py leaves it out
	struct weir_flow flow;
};

static __always_inline bool is_of_weir(const struct tcp_sock *tp)
{
	const char prefix[] = "weir_";
	const struct tcp_congestion_ops *ops = tp->inet_conn.icsk_ca_ops;

	for (int i = 0; i < sizeof(prefix) - 1; i++)
		if (ops->name[i] != prefix[i])
			return false;
	return true;
}

static __always_inline struct in6_addr mapped_address(__be32 address)
{
	struct in6_addr mapped = {};

	mapped.in6_u.u6_addr32[2] = bpf_htonl(0xffff);
	mapped.in6_u.u6_addr32[3] = address;
	return mapped;
}

SEC("iter/tcp")
int dctcp_sockets(struct bpf_iter__tcp *ctx)
{
	struct dctcp_socket record = {};
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp;

	tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	if (!tp || !is_of_weir(tp))
		return 0;
	if (common->skc_family == AF_INET6) {
		record.local = common->skc_v6_rcv_saddr;
		record.remote = common->skc_v6_daddr;
	} else {
		record.local = mapped_address(common->skc_rcv_saddr);
		record.remote = mapped_address(common->skc_daddr);
	}
	record.local_port = common->skc_num;
	record.remote_port = bpf_ntohs(common->skc_dport);
	record.cwnd = tp->snd_cwnd;
	record.ssthresh = tp->snd_ssthresh;
	record.prior_cwnd = tp->prior_cwnd;
	record.srtt_us = tp->srtt_us >> 3; // the kernel stores eighths of a microsecond
	record.pacing_bytes_per_s = ((struct sock *)tp)->sk_pacing_rate;
	bpf_probe_read_kernel_str(record.name, sizeof(record.name), tp->inet_conn.icsk_ca_ops->name);
	record.flow = *(struct weir_flow *)tp->inet_conn.icsk_ca_priv;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

char _license[] SEC("license") = "GPL";
