// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lower bound of what a flow table costs a packet (data_plane.py): the program only adds one to a counter of the
 * packet's flow, which has a cache line of its own. It knows the flows of frames.py, in plain IPv4.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define FIRST_SOURCE 0x0a010000
#define FIRST_PORT 1024
#define FLOWS_A_SOURCE 50000

struct flow_line {
	__u64 packets;
	__u64 rest[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);            /* data_plane.py sets it */
	__uint(map_flags, BPF_F_MMAPABLE); /* aligns the values to a page */
	__type(key, __u32);
	__type(value, struct flow_line);
} lines SEC(".maps");

struct plain_ipv4 {
	struct ethhdr eth;
	struct iphdr ip;
	struct tcphdr tcp;
} __attribute__((packed));

SEC("xdp")
int flow_counter(struct xdp_md *ctx)
{
	struct plain_ipv4 *frame = (void *)(long)ctx->data;
	struct flow_line *line;
	__u32 flow;

	if ((void *)(frame + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	flow = (bpf_ntohl(frame->ip.daddr) - FIRST_SOURCE) * FLOWS_A_SOURCE + bpf_ntohs(frame->tcp.dest) - FIRST_PORT;
	line = bpf_map_lookup_elem(&lines, &flow);
	if (line)
		line->packets++;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
