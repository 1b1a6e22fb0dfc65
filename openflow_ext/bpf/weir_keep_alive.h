/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A keep-alive segment behind a segment, so that its receiver acknowledges at once. A keep-alive holds one garbage
 * octet, whose sequence number the receiver has acknowledged already (RFC 9293, sections 3.8.4 and 3.10.7.4). A host
 * answers it at once with an ACK for all that has arrived, also if it delays its ACKs. Linux takes the connection for
 * interactive no longer then, and delays none of its next ACKs, up to 16 (tcp_enter_quickack_mode). The ACK reports the
 * octet as a duplicate (RFC 2883).
 *
 * So a flow with a window of one segment, whose receiver would keep back each ACK for 40 ms, costs the port one small
 * packet (docs/decisions/0123-keep-alives.md).
 */
#ifndef WEIR_KEEP_ALIVE_H
#define WEIR_KEEP_ALIVE_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_checksum.h"
#include "weir_edit.h"
#include "weir_flow.h"
#include "weir_parse.h"
#include "weir_structs.h"

#define TC_ACT_SHOT 2
#define TC_ACT_STOLEN 4 /* the packet in hand is dropped, and does not count as lost */
#define KEEP_ALIVE_BYTES 1
#define IPV4_LENGTH_OFFSET 2
#define IPV4_CHECKSUM_OFFSET 10
#define IPV6_LENGTH_OFFSET 4
#define MOST_KEEP_ALIVE 36 /* with timestamps, in whole words from the TCP header on */

/* On this CPU: 1 while weir_egress sends a segment itself. The program then runs for that packet too. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sends_itself SEC(".maps");

static __always_inline __u32 *keep_alive_sends_itself(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sends_itself, &zero);
}

/* This packet is one that the program itself sends: it was handled before. Not inlined, for the stack. */
static __noinline int keep_alive_is_within(void)
{
	__u32 *itself = keep_alive_sends_itself();

	return itself && *itself;
}

/*
 * Only behind one packet of payload without other flags than ACK and PSH. It has no options but timestamps, because
 * others may refer to its payload. The receiver has acknowledged all before it. Otherwise a host might take the octet
 * for data that it misses.
 */
static __always_inline bool keep_alive_is_safe(const struct weir_flow *flow, const struct segment *s,
					       const struct tcphdr *tcp, __u32 packets)
{
	return packets == 1 && !s->is_fragment && (s->flags & ~(__u32)TCP_PSH) == TCP_ACK && s->payload &&
	       tcp->doff * 4 == sizeof(*tcp) + flow_options_bytes(flow) && bpf_ntohl(tcp->seq) == flow->local_edges.ack;
}

/* Writes the length of the IP packet that is left. */
static __always_inline void keep_alive_set_length(struct __sk_buff *skb, const struct segment *s, __u32 tcp_bytes)
{
	__u32 ip_offset = parse_ip_offset(s), ip_header = s->tcp_offset - ip_offset;
	__u32 at = ip_offset + (s->ip_version == 4 ? IPV4_LENGTH_OFFSET : IPV6_LENGTH_OFFSET);
	__u16 before, after;

	after = bpf_htons(s->ip_version == 4 ? ip_header + tcp_bytes : ip_header - sizeof(struct ipv6hdr) + tcp_bytes);
	if (bpf_skb_load_bytes(skb, at, &before, sizeof(before)))
		return;
	if (s->ip_version == 4)
		bpf_l3_csum_replace(skb, ip_offset + IPV4_CHECKSUM_OFFSET, before, after, sizeof(after));
	bpf_skb_store_bytes(skb, at, &after, sizeof(after), 0);
}

/*
 * Writes the TCP header of a packet that is cut: the sequence number before, no PSH, and the checksum. That of a packet
 * that the NIC completes (CHECKSUM_PARTIAL) is the sum of the pseudo header.
 */
static __always_inline bool keep_alive_finish(struct __sk_buff *skb, const struct segment *s, __u32 tcp_bytes)
{
	bool partial = checksum_is_partial(skb);
	__u32 sum = checksum_of_pseudo_header(s, tcp_bytes);
	struct checksum_chunk *chunk = checksum_chunk();
	struct tcphdr *tcp;

	if (!chunk)
		return false;
	__builtin_memset(chunk->bytes, 0, MOST_KEEP_ALIVE);
	if (bpf_skb_load_bytes(skb, s->tcp_offset, chunk->bytes, tcp_bytes))
		return false;
	tcp = (struct tcphdr *)chunk->bytes;
	tcp->seq = bpf_htonl(bpf_ntohl(tcp->seq) - KEEP_ALIVE_BYTES);
	tcp->check = 0;
	tcp->psh = 0;
	if (!partial)
		sum = bpf_csum_diff(NULL, 0, (void *)chunk->bytes, MOST_KEEP_ALIVE, sum);
	tcp->check = weir_checksum_fold(sum);
	if (!partial)
		tcp->check = ~tcp->check;
	return !bpf_skb_store_bytes(skb, s->tcp_offset, chunk->bytes, tcp_bytes, 0);
}

static __always_inline long keep_alive_transmit(struct __sk_buff *skb, __u32 *itself)
{
	long failed;

	*itself = 1;
	failed = bpf_clone_redirect(skb, skb->ifindex, 0);
	*itself = 0;
	return failed;
}

/*
 * Sends a copy of the segment, cuts it to a keep-alive, and sends a copy of that. The kernel has computed the length
 * for which a packet counts in the queue before the program runs, and does so again for each copy. Pointers into the
 * frame are invalid afterwards. Not inlined, for the stack.
 */
static __noinline int keep_alive_send(struct __sk_buff *skb, const struct segment *s, __u32 options_bytes)
{
	__u32 *itself = keep_alive_sends_itself();
	__u32 tcp_bytes = sizeof(struct tcphdr) + (options_bytes & TIMESTAMPS_LEN) + KEEP_ALIVE_BYTES;
	long failed;

	if (!itself)
		return TC_ACT_UNSPEC;
	failed = keep_alive_transmit(skb, itself);
	if (failed)
		return failed < 0 ? TC_ACT_UNSPEC : TC_ACT_SHOT;
	if (!bpf_skb_change_tail(skb, s->tcp_offset + tcp_bytes, 0)) {
		keep_alive_set_length(skb, s, tcp_bytes);
		if (keep_alive_finish(skb, s, tcp_bytes))
			keep_alive_transmit(skb, itself);
	}
	return TC_ACT_STOLEN;
}

#endif
