// SPDX-License-Identifier: GPL-2.0
// ICTCP (Wu, Feng, Guo and Zhang, CoNEXT 2010): the receiving host chooses the windows of its connections, so that
// their sum fits its link. No switch and no sender takes part.
//
// The programs are attached to the receiver's interface. ictcp_ingress measures what arrives. ictcp_egress finds the
// socket of each segment that leaves, chooses the connection's window (weir_ictcp.h), and lowers the window field. What
// is known of a connection is stored at its socket, and is freed with it. So connections that were open before the
// programs were attached are limited too, and the window scale is always the connection's own.
//
// Inferred, because the paper does not state it, or because Linux differs from its driver for Windows:
// - an RTT is the time from the first segment with a new TCP timestamp to its echo; without timestamps it is the
//   host's own smoothed RTT. The last sample counts; it is not smoothed;
// - the weight of the earlier throughput is 3/4;
// - a connection without payload for six RTTs, and at least 50 ms, is idle and restarts with the least window;
// - windows and sub-slots change when a packet passes, not by a timer;
// - T is at least 100 us and at most 1 s, and 1 ms before the first slot;
// - the MSS is that which the host offered, without the room for timestamps.
//
// Not implemented: a measurement of the link's rate, which the user states; protection from UDP beyond its share of the
// measured traffic. A lowered window may move the right edge back. The host still accepts what a sender has sent.
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "weir_edit.h"
#include "weir_ictcp.h"
#include "weir_parse.h"

#define TCP_HEADER_BYTES 20
#define TIMESTAMPS_BYTES 12 // with the two NOPs
#define SRTT_SHIFT 3        // the kernel keeps eight times the smoothed RTT

struct ictcp_interface {
	struct bpf_spin_lock lock;
	__u32 lowered; // segments whose window the program lowered
	struct weir_ictcp_port port;
};

// transports/ictcp.py declares the same struct, and writes the capacity.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ictcp_interface);
} ictcp_interfaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct weir_ictcp_flow);
} ictcp_flows SEC(".maps");

struct window {
	__u32 bytes; // 0: leave the segment as it is
	__u32 mss;
	__u32 scale;
};

static __always_inline struct ictcp_interface *interface_find(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ictcp_interfaces, &zero);
}

SEC("tc")
int ictcp_ingress(struct __sk_buff *skb)
{
	struct ictcp_interface *interface = interface_find();
	__u64 now_ns = bpf_ktime_get_ns();

	if (!interface)
		return TC_ACT_UNSPEC;
	bpf_spin_lock(&interface->lock);
	weir_ictcp_tick(&interface->port, now_ns);
	weir_ictcp_note_arrival(&interface->port, skb->len);
	bpf_spin_unlock(&interface->lock);
	return TC_ACT_UNSPEC;
}

// The window of a connection. A SYN states it without scale.
static __always_inline struct window window_of_socket(struct ictcp_interface *interface, struct tcp_sock *tp,
						      const struct segment *s, const struct timestamps_option *times)
{
	struct weir_ictcp_departure seen = {
		.now_ns = bpf_ktime_get_ns(),
		.received_bytes = tp->bytes_received,
		.payload = s->payload,
		.mss = tp->advmss + TCP_HEADER_BYTES - tp->tcp_header_len,
		.srtt_us = tp->srtt_us >> SRTT_SHIFT,
		.has_timestamps = times != NULL,
		.value = times ? bpf_ntohl(times->value) : 0,
		.echo = tp->rx_opt.rcv_tsecr + tp->tsoffset,
	};
	struct weir_ictcp_flow *flow = bpf_sk_storage_get(&ictcp_flows, tp, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	struct window chosen = {};

	if (!flow)
		return chosen;
	bpf_spin_lock(&interface->lock);
	weir_ictcp_depart(&interface->port, flow, &seen);
	chosen.bytes = flow->window_bytes;
	bpf_spin_unlock(&interface->lock);
	chosen.mss = seen.mss;
	if (!(s->flags & TCP_SYN))
		chosen.scale = BPF_CORE_READ_BITFIELD(tp, rx_opt.rcv_wscale);
	return chosen;
}

// The window of a SYN-ACK, whose connection has no socket of its own until its handshake is complete.
static __always_inline struct window window_of_request(struct tcp_request_sock *request)
{
	__u32 times = BPF_CORE_READ_BITFIELD(&request->req, tstamp_ok) ? TIMESTAMPS_BYTES : 0;
	__u32 mss = request->req.req.mss - times;

	return (struct window){.bytes = WEIR_ICTCP_LEAST_SEGMENTS * mss, .mss = mss};
}

SEC("tc")
int ictcp_egress(struct __sk_buff *skb)
{
	struct ictcp_interface *interface = interface_find();
	struct bpf_sock *sk = skb->sk;
	struct tcp_request_sock *request;
	struct window chosen = {};
	struct tcp_sock *tp;
	struct tcphdr *tcp;
	struct segment s;
	struct cursor c;
	__u16 field, lowered;

	if (!interface || !sk || !(parse_segment(CURSOR_OF(skb), &s, true, skb->len) || parse_skb(skb, &s)) ||
	    s.flags & TCP_RST)
		return TC_ACT_UNSPEC;
	c = CURSOR_OF(skb);
	tcp = parse_tcp_header(&c, &s);
	if (!tcp)
		return TC_ACT_UNSPEC;
	field = bpf_ntohs(tcp->window);
	if ((tp = bpf_skc_to_tcp_sock(sk)))
		chosen = window_of_socket(interface, tp, &s, parse_timestamps(c, tcp));
	else if ((request = bpf_skc_to_tcp_request_sock(sk)))
		chosen = window_of_request(request);
	if (!chosen.bytes)
		return TC_ACT_UNSPEC;
	lowered = weir_ictcp_field(field, chosen.bytes, chosen.mss, chosen.scale);
	if (lowered == field)
		return TC_ACT_UNSPEC;
	segment_replace_word(skb, &s, offsetof(struct tcphdr, window), bpf_htons(field), bpf_htons(lowered));
	__sync_fetch_and_add(&interface->lowered, 1);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "GPL";
