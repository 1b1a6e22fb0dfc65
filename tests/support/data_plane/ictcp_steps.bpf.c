// SPDX-License-Identifier: GPL-2.0
// One step of ICTCP (weir_ictcp.h) for each packet, which states the step and its time: tests cannot set the clock and
// the sockets of the program ictcp.bpf.c. The result is the connection's window.
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_ictcp.h"

#define ETHERNET_BYTES 14
#define FLOWS 8

// tests/support/data_plane/ictcp_steps.py packs the same struct.
struct step {
	__u64 now_ns;
	__u64 received_bytes;
	__u32 arrived_bytes; // of a frame that arrives; 0: a segment of `flow` leaves
	__u32 flow;
	__u32 payload;
	__u32 mss;
	__u32 srtt_us;
	__u32 has_timestamps;
	__u32 value;
	__u32 echo;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_ictcp_port);
} port SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWS);
	__type(key, __u32);
	__type(value, struct weir_ictcp_flow);
} flows SEC(".maps");

SEC("tc")
int ictcp_step(struct __sk_buff *skb)
{
	struct weir_ictcp_departure seen = {};
	struct weir_ictcp_port *receiver;
	struct weir_ictcp_flow *flow;
	struct step step;
	__u32 zero = 0;

	receiver = bpf_map_lookup_elem(&port, &zero);
	if (!receiver || bpf_skb_load_bytes(skb, ETHERNET_BYTES, &step, sizeof(step)))
		return -1;
	if (step.arrived_bytes) {
		weir_ictcp_tick(receiver, step.now_ns);
		weir_ictcp_note_arrival(receiver, step.arrived_bytes);
		return 0;
	}
	flow = bpf_map_lookup_elem(&flows, &step.flow);
	if (!flow)
		return -1;
	seen.now_ns = step.now_ns;
	seen.received_bytes = step.received_bytes;
	seen.payload = step.payload;
	seen.mss = step.mss;
	seen.srtt_us = step.srtt_us;
	seen.has_timestamps = step.has_timestamps;
	seen.value = step.value;
	seen.echo = step.echo;
	weir_ictcp_depart(receiver, flow, &seen);
	return flow->window_bytes;
}

char _license[] SEC("license") = "GPL";
