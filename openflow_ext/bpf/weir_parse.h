/* SPDX-License-Identifier: GPL-2.0-only */
/* From a frame to its TCP header: up to two VLAN tags, IPv4 with options, IPv6 with extension headers. */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_structs.h"
#include "weir_window.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define IP_OFFSET_MASK 0x1fff
#define IP6_OFFSET_MASK 0xfff8
#define MAX_VLAN_TAGS 2
#define MAX_IPV6_EXTENSIONS 6
#define MAX_IP_LENGTH 0xffff /* the IP length of a longer super-packet is 0 */
#define IP_MORE_FRAGMENTS 0x2000
#define IP6_MORE_FRAGMENTS 0x0001
#define MAX_TCP_OPTIONS 40 /* an option has at least one byte */
#define MAX_OPTION_WORDS 10
#define DEFAULT_MSS_OFFER 536 /* RFC 9293, section 3.7.1 */

#define TCP_OFFSET_MASK 0xfff /* larger than the offset of any TCP header that is parsed; a power of two less one */

#define OPTIONS_MASK 63 /* of an index: TCP options have at most 40 bytes */

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

enum { IPV6_HOP_BY_HOP = 0, IPV6_ROUTING = 43, IPV6_FRAGMENT = 44, IPV6_DEST_OPTIONS = 60 };
enum { TCPOPT_MSS_LEN = 4, TCPOPT_SCALE_LEN = 3, TCPOPT_TIMESTAMPS_LEN = 10 };
enum {
	TCPOPT_END = 0,
	TCPOPT_NOP = 1,
	TCPOPT_MSS = 2,
	TCPOPT_SCALE = 3,
	TCPOPT_SACK = 5,
	TCPOPT_TIMESTAMPS = 8,
};

#define TCPOPT_TWO_NOPS (TCPOPT_NOP << 8 | TCPOPT_NOP)

/* Bit k: option k is a signature: TCP-MD5 (19, RFC 2385), TCP-AO (29, RFC 5925). Kinds from 64 on are not in use. */
#define TCPOPT_SIGNATURES (1ull << 19 | 1ull << 29)

struct cursor {
	void *pos;
	void *end;
};

/* The whole packet of an XDP or a tc context. */
#define CURSOR_OF(ctx) ((struct cursor){.pos = (void *)(long)(ctx)->data, .end = (void *)(long)(ctx)->data_end})

struct segment {
	__u32 src[4];
	__u32 dst[4];
	__u16 src_port;
	__u16 dst_port;
	__u16 tcp_offset : 12; /* offset of the TCP header in the frame */
	__u16 vlan_tags : 2;
	__u16 is_fragment : 1; /* the first one of an IP packet, so that the rest of the segment is elsewhere */
	__u8 flags;
	__u8 ip_version;
	__u32 payload; /* bytes */
};

struct vlan_tag {
	__be16 tci;
	__be16 ethertype;
};

struct ipv6_extension {
	__u8 next;
	__u8 len; /* in units of 8 bytes, without the first 8 */
	__be16 fragment_offset;
	__u32 rest;
};

static __always_inline void *cursor_take(struct cursor *c, __u32 len)
{
	void *start = c->pos;

	if (start + len > c->end)
		return NULL;
	c->pos = start + len;
	return start;
}

static __always_inline int parse_ethertype(struct cursor *c, int max_tags)
{
	struct ethhdr *eth = cursor_take(c, sizeof(*eth));
	__be16 ethertype;

	if (!eth)
		return 0;
	ethertype = eth->h_proto;
	for (int i = 0; i < max_tags; i++) {
		struct vlan_tag *tag;

		if (ethertype != bpf_htons(ETH_P_8021Q) && ethertype != bpf_htons(ETH_P_8021AD))
			break;
		tag = cursor_take(c, sizeof(*tag));
		if (!tag)
			return 0;
		ethertype = tag->ethertype;
	}
	return bpf_ntohs(ethertype);
}

/*
 * The length of an IP packet as its header states it; false if the frame, which has `room` bytes for it, is shorter.
 * Only a super-packet that is too long for the field may state 0.
 */
static __always_inline bool parse_length(__u32 stated, __u32 room, __u32 *length)
{
	*length = stated ? stated : room;
	return stated ? stated <= room : room > MAX_IP_LENGTH;
}

/* `room`: bytes of the frame from the IP header on. */
static __always_inline bool parse_ipv4(struct cursor *c, struct segment *s, bool plain_only, __u32 room)
{
	struct iphdr *ip = cursor_take(c, sizeof(*ip));
	__u32 options, length;

	if (!ip || ip->version != 4 || ip->ihl < 5 || (plain_only && ip->ihl > 5) || ip->protocol != IPPROTO_TCP)
		return false;
	if (ip->frag_off & bpf_htons(IP_OFFSET_MASK))
		return false;
	s->src[2] = s->dst[2] = bpf_htonl(0xffff);
	s->src[3] = ip->saddr;
	s->dst[3] = ip->daddr;
	s->ip_version = 4;
	s->is_fragment = !!(ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS));
	if (!parse_length(bpf_ntohs(ip->tot_len), room, &length) || length < ip->ihl * 4)
		return false;
	s->payload = length - ip->ihl * 4;
	options = ip->ihl * 4 - sizeof(*ip);
	return plain_only || cursor_take(c, options & 0x3f);
}

static __always_inline bool parse_ipv6(struct cursor *c, struct segment *s, bool plain_only, __u32 room)
{
	struct ipv6hdr *ip = cursor_take(c, sizeof(*ip));
	__u32 taken;
	__u8 next;

	if (!ip || ip->version != 6)
		return false;
	__builtin_memcpy(s->src, &ip->saddr, sizeof(s->src));
	__builtin_memcpy(s->dst, &ip->daddr, sizeof(s->dst));
	s->ip_version = 6;
	if (room < sizeof(*ip) || !parse_length(bpf_ntohs(ip->payload_len), room - sizeof(*ip), &s->payload))
		return false;
	next = ip->nexthdr;
	for (int i = 0; i < (plain_only ? 0 : MAX_IPV6_EXTENSIONS); i++) {
		struct ipv6_extension *extension;

		if (next != IPV6_HOP_BY_HOP && next != IPV6_ROUTING && next != IPV6_FRAGMENT &&
		    next != IPV6_DEST_OPTIONS)
			break;
		extension = cursor_take(c, sizeof(*extension));
		if (!extension)
			return false;
		if (next == IPV6_FRAGMENT) {
			if (extension->fragment_offset & bpf_htons(IP6_OFFSET_MASK))
				return false;
			s->is_fragment = !!(extension->fragment_offset & bpf_htons(IP6_MORE_FRAGMENTS));
		} else if (!cursor_take(c, extension->len * 8)) {
			return false;
		}
		taken = sizeof(*extension) + (next == IPV6_FRAGMENT ? 0 : extension->len * 8);
		if (s->payload < taken)
			return false;
		s->payload -= taken;
		next = extension->next;
	}
	return next == IPPROTO_TCP;
}

static __always_inline __u32 parse_ip_offset(const struct segment *s)
{
	return sizeof(struct ethhdr) + s->vlan_tags * sizeof(struct vlan_tag);
}

/*
 * 1 if this is a TCP segment with a whole fixed header, whose lengths are true: the IP packet ends in the frame, and
 * the TCP header in the IP packet. A host drops any other. `plain_only`: 0 if it has VLAN tags, IP options or
 * extensions.
 */
static __always_inline int parse_segment(struct cursor c, struct segment *s, bool plain_only, __u32 frame_len)
{
	void *frame = c.pos;
	int ethertype = parse_ethertype(&c, plain_only ? 0 : MAX_VLAN_TAGS);
	struct tcphdr *tcp;
	__u32 room;

	__builtin_memset(s, 0, sizeof(*s));
	s->vlan_tags = (c.pos - frame - sizeof(struct ethhdr)) / sizeof(struct vlan_tag);
	room = frame_len - parse_ip_offset(s);
	if (ethertype == ETH_P_IP) {
		if (!parse_ipv4(&c, s, plain_only, room))
			return 0;
	} else if (ethertype == ETH_P_IPV6) {
		if (!parse_ipv6(&c, s, plain_only, room))
			return 0;
	} else {
		return 0;
	}
	tcp = cursor_take(&c, sizeof(*tcp));
	if (!tcp || tcp->doff < 5 || s->payload < tcp->doff * 4)
		return 0;
	s->src_port = tcp->source;
	s->dst_port = tcp->dest;
	s->flags = ((__u8 *)tcp)[13];
	s->payload -= tcp->doff * 4;
	s->tcp_offset = (void *)tcp - frame;
	return 1;
}

/*
 * Any segment. The verifier checks a global function once, so that it need not follow the caller through each way
 * of parsing. A call costs as much as parsing plain headers in place, so callers try those first.
 */
__noinline int parse_xdp(struct xdp_md *ctx, struct segment *s, __u32 frame_len)
{
	return s ? parse_segment(CURSOR_OF(ctx), s, false, frame_len) : 0;
}

__noinline int parse_skb(struct __sk_buff *ctx, struct segment *s)
{
	return s ? parse_segment(CURSOR_OF(ctx), s, false, ctx->len) : 0;
}

/* Moves the cursor past the TCP header that was parsed. NULL only to satisfy the verifier. */
static __always_inline struct tcphdr *parse_tcp_header(struct cursor *c, const struct segment *s)
{
	c->pos += s->tcp_offset & TCP_OFFSET_MASK;
	return cursor_take(c, sizeof(struct tcphdr));
}

/* The timestamps as RFC 7323, appendix A recommends them: the first option, after two NOPs. */
struct timestamps_option {
	__be16 nops;
	__u8 kind;
	__u8 len;
	__be32 value;
	__be32 echo;
};

/* The timestamps of a segment without SYN, whose options begin at the cursor. NULL: it has none in this layout. */
static __always_inline const struct timestamps_option *parse_timestamps(struct cursor c, const struct tcphdr *tcp)
{
	const struct timestamps_option *found = cursor_take(&c, sizeof(*found));

	if (!found || tcp->doff * 4 < sizeof(*tcp) + sizeof(*found) || found->nops != bpf_htons(TCPOPT_TWO_NOPS) ||
	    found->kind != TCPOPT_TIMESTAMPS || found->len != TCPOPT_TIMESTAMPS_LEN)
		return NULL;
	return found;
}

/* The options of a TCP header, copied from the frame. An index masked with OPTIONS_MASK is inside. */
struct tcp_options {
	__u8 bytes[OPTIONS_MASK + 1];
	__u32 len;
	__u32 scale_offset; /* offset of the byte with the window scale in `bytes`; 0: there is none */
	__u32 is_signed;    /* 1: TCP-MD5 or TCP-AO */
};

static __always_inline void parse_copy_options(struct cursor *c, const struct tcphdr *tcp, struct tcp_options *options)
{
	__u32 *words = (__u32 *)options->bytes;

	__builtin_memset(options, 0, sizeof(*options));
	options->len = (tcp->doff - 5) * 4;
	for (__u32 i = 0; i < MAX_OPTION_WORDS; i++) {
		__u32 *word = i * 4 < options->len ? cursor_take(c, 4) : NULL;

		if (!word)
			break;
		words[i] = *word;
	}
}

/*
 * Takes in the option at an offset. Returns the offset of the next one; a malformed option and the last one end the
 * list. A global function: its result is any number for the verifier, which therefore need not follow each way
 * through an option with each way through the options before it.
 */
__noinline __u32 parse_option(struct tcp_options *options, struct weir_offer *offer, __u32 at)
{
	__u32 len;
	__u8 kind;

	if (!options || !offer)
		return OPTIONS_MASK;
	kind = options->bytes[at & OPTIONS_MASK];
	len = kind == TCPOPT_NOP ? 1 : options->bytes[(at + 1) & OPTIONS_MASK];
	if (kind == TCPOPT_END || !len || (len == 1 && kind != TCPOPT_NOP) || at + len > options->len)
		return OPTIONS_MASK;
	options->is_signed |= TCPOPT_SIGNATURES >> (kind & 63) & 1;
	if (kind == TCPOPT_MSS && len == TCPOPT_MSS_LEN)
		offer->mss = options->bytes[(at + 2) & OPTIONS_MASK] << 8 | options->bytes[(at + 3) & OPTIONS_MASK];
	else if (kind == TCPOPT_SCALE && len == TCPOPT_SCALE_LEN)
		offer->scale = options->bytes[options->scale_offset = (at + 2) & OPTIONS_MASK];
	else if (kind == TCPOPT_TIMESTAMPS && len == TCPOPT_TIMESTAMPS_LEN)
		offer->timestamps = 1;
	return at + len;
}

/*
 * What a SYN or SYN-ACK offers (MSS: RFC 9293; window scale and timestamps: RFC 7323). A malformed option ends the
 * list. A global function, which the verifier checks once. Return a scalar: see packet_take_offer.
 */
__noinline int parse_offer(struct tcp_options *options, struct weir_offer *offer)
{
	__u32 at = 0;

	if (!options || !offer)
		return -1;
	offer->mss = DEFAULT_MSS_OFFER;
	offer->scale = WEIR_NO_SCALE;
	offer->timestamps = 0;
	for (int i = 0; i < MAX_TCP_OPTIONS && at < options->len; i++)
		at = parse_option(options, offer, at);
	if (offer->scale != WEIR_NO_SCALE && offer->scale > WEIR_MAX_SCALE)
		offer->scale = WEIR_MAX_SCALE;
	return 0;
}

#endif
