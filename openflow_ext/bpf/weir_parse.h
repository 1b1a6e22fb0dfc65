/* SPDX-License-Identifier: GPL-2.0-only */
/* From a frame to its TCP header: one or two VLAN tags, IPv4 with options, IPv6 with extension headers. */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define IP_OFFSET_MASK 0x1fff
#define IP6_OFFSET_MASK 0xfff8
#define MAX_VLAN_TAGS 2
#define MAX_IPV6_EXTENSIONS 6
#define BIG_TCP 0x10000 /* a super-packet over 64 KB says no length */
#define MAX_TCP_OPTIONS 40 /* each at least one byte */
#define MAX_OPTION_WORDS 10
#define DEFAULT_MSS_OFFER 536 /* RFC 9293, section 3.7.1 */

#define MAX_TCP_AT 0xfff /* a mask: further than all headers together */

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

enum { IPV6_HOP_BY_HOP = 0, IPV6_ROUTING = 43, IPV6_FRAGMENT = 44, IPV6_DEST_OPTIONS = 60 };
enum { TCPOPT_END = 0, TCPOPT_NOP = 1, TCPOPT_MSS = 2, TCPOPT_SCALE = 3, TCPOPT_TIMESTAMPS = 8 };

struct cursor {
	void *pos;
	void *end;
};

/* The whole packet of a context, of either kind. */
#define CURSOR_OF(ctx) ((struct cursor){.pos = (void *)(long)(ctx)->data, .end = (void *)(long)(ctx)->data_end})

struct segment {
	__u32 src[4];
	__u32 dst[4];
	__u16 src_port;
	__u16 dst_port;
	__u16 flags; /* host order */
	__u16 ip_version;
	__u32 payload; /* bytes */
	__u32 tcp_at;  /* where the TCP header begins in the frame */
};

struct vlan_tag {
	__be16 tci;
	__be16 ethertype;
};

struct ipv6_extension {
	__u8 next;
	__u8 len; /* in 8 bytes, the first not counted */
	__be16 fragment_offset;
	__u32 rest;
};

static __always_inline void *take(struct cursor *c, __u32 len)
{
	void *start = c->pos;

	if (start + len > c->end)
		return NULL;
	c->pos = start + len;
	return start;
}

static __always_inline int ethertype_of(struct cursor *c, int max_tags)
{
	struct ethhdr *eth = take(c, sizeof(*eth));
	__be16 ethertype;

	if (!eth)
		return 0;
	ethertype = eth->h_proto;
	for (int i = 0; i < max_tags; i++) {
		struct vlan_tag *tag;

		if (ethertype != bpf_htons(ETH_P_8021Q) && ethertype != bpf_htons(ETH_P_8021AD))
			break;
		tag = take(c, sizeof(*tag));
		if (!tag)
			return 0;
		ethertype = tag->ethertype;
	}
	return bpf_ntohs(ethertype);
}

/* The bytes after the TCP header, from what the IP header says is after its own. */
static __always_inline __u32 payload_of(__u32 after_ip, const struct tcphdr *tcp)
{
	__u32 header = tcp->doff * 4;

	return after_ip > header ? after_ip - header : 0;
}

static __always_inline bool parse_ipv4(struct cursor *c, struct segment *s, bool plain)
{
	struct iphdr *ip = take(c, sizeof(*ip));
	__u32 options;

	if (!ip || ip->version != 4 || ip->ihl < 5 || (plain && ip->ihl > 5) || ip->protocol != IPPROTO_TCP)
		return false;
	if (ip->frag_off & bpf_htons(IP_OFFSET_MASK))
		return false;
	s->src[2] = s->dst[2] = bpf_htonl(0xffff);
	s->src[3] = ip->saddr;
	s->dst[3] = ip->daddr;
	s->ip_version = 4;
	s->payload = ip->tot_len ? bpf_ntohs(ip->tot_len) - ip->ihl * 4 : BIG_TCP;
	options = ip->ihl * 4 - sizeof(*ip);
	return plain || take(c, options & 0x3f);
}

static __always_inline bool parse_ipv6(struct cursor *c, struct segment *s, bool plain)
{
	struct ipv6hdr *ip = take(c, sizeof(*ip));
	__u8 next;

	if (!ip || ip->version != 6)
		return false;
	__builtin_memcpy(s->src, &ip->saddr, sizeof(s->src));
	__builtin_memcpy(s->dst, &ip->daddr, sizeof(s->dst));
	s->ip_version = 6;
	s->payload = ip->payload_len ? bpf_ntohs(ip->payload_len) : BIG_TCP;
	next = ip->nexthdr;
	for (int i = 0; i < (plain ? 0 : MAX_IPV6_EXTENSIONS); i++) {
		struct ipv6_extension *extension;

		if (next != IPV6_HOP_BY_HOP && next != IPV6_ROUTING && next != IPV6_FRAGMENT &&
		    next != IPV6_DEST_OPTIONS)
			break;
		extension = take(c, sizeof(*extension));
		if (!extension)
			return false;
		if (next == IPV6_FRAGMENT) {
			if (extension->fragment_offset & bpf_htons(IP6_OFFSET_MASK))
				return false;
		} else if (!take(c, extension->len * 8)) {
			return false;
		}
		s->payload -= sizeof(*extension) + (next == IPV6_FRAGMENT ? 0 : extension->len * 8);
		next = extension->next;
	}
	return next == IPPROTO_TCP;
}

/* 1 for a TCP segment with its whole fixed header here; `plain`: of those without tags, IP options and extensions. */
static __always_inline int parse_segment(struct cursor c, struct segment *s, bool plain)
{
	void *frame = c.pos;
	int ethertype = ethertype_of(&c, plain ? 0 : MAX_VLAN_TAGS);
	struct tcphdr *tcp;

	__builtin_memset(s, 0, sizeof(*s));
	if (ethertype == ETH_P_IP) {
		if (!parse_ipv4(&c, s, plain))
			return 0;
	} else if (ethertype == ETH_P_IPV6) {
		if (!parse_ipv6(&c, s, plain))
			return 0;
	} else {
		return 0;
	}
	tcp = take(&c, sizeof(*tcp));
	if (!tcp || tcp->doff < 5)
		return 0;
	s->src_port = tcp->source;
	s->dst_port = tcp->dest;
	s->flags = ((__u8 *)tcp)[13];
	s->payload = payload_of(s->payload, tcp);
	s->tcp_at = (void *)tcp - frame;
	return 1;
}

/*
 * All segments. Functions of their own that the verifier checks once: what comes after need not be checked again
 * for each way through the headers. A call costs as much as the look at plain headers, so that comes first.
 */
__noinline int parse_xdp(struct xdp_md *ctx, struct segment *s)
{
	return s ? parse_segment(CURSOR_OF(ctx), s, false) : 0;
}

__noinline int parse_skb(struct __sk_buff *ctx, struct segment *s)
{
	return s ? parse_segment(CURSOR_OF(ctx), s, false) : 0;
}

/* The cursor moves behind the TCP header that was found; NULL never happens but for the verifier. */
static __always_inline struct tcphdr *tcp_header(struct cursor *c, const struct segment *s)
{
	c->pos += s->tcp_at & MAX_TCP_AT;
	return take(c, sizeof(struct tcphdr));
}

/* The options of one TCP header, copied out of the frame; 64 bytes, so that a masked index stays inside. */
struct tcp_options {
	__u8 bytes[64];
	__u32 len;
	__u32 scale_at; /* of the byte that says the window scale; 0: none does */
};

static __always_inline void copy_options(struct cursor *c, const struct tcphdr *tcp, struct tcp_options *options)
{
	__u32 *words = (__u32 *)options->bytes;

	__builtin_memset(options, 0, sizeof(*options));
	options->len = (tcp->doff - 5) * 4;
	for (__u32 i = 0; i < MAX_OPTION_WORDS; i++) {
		__u32 *word = i * 4 < options->len ? take(c, 4) : NULL;

		if (!word)
			break;
		words[i] = *word;
	}
}

/*
 * What a SYN or SYN-ACK offers (RFC 9293 MSS; RFC 7323 window scale and timestamps). Malformed options
 * end the list. A function of its own that the verifier checks once.
 */
__noinline int read_offer(struct tcp_options *options, struct weir_half *half)
{
	__u32 at = 0;

	if (!options || !half)
		return -1;
	half->mss = DEFAULT_MSS_OFFER;
	half->scale = WEIR_NO_SCALE;
	half->timestamps = 0;
	for (int i = 0; i < MAX_TCP_OPTIONS && at < options->len; i++) {
		__u8 kind = options->bytes[at & 63];
		__u32 len = kind == TCPOPT_NOP ? 1 : options->bytes[(at + 1) & 63];

		if (kind == TCPOPT_END || !len || (len == 1 && kind != TCPOPT_NOP) || at + len > options->len)
			break;
		if (kind == TCPOPT_MSS && len == 4)
			half->mss = options->bytes[(at + 2) & 63] << 8 | options->bytes[(at + 3) & 63];
		else if (kind == TCPOPT_SCALE && len == 3)
			half->scale = options->bytes[options->scale_at = (at + 2) & 63];
		else if (kind == TCPOPT_TIMESTAMPS && len == 10)
			half->timestamps = 1;
		at = (at + len) & 63;
	}
	if (half->scale != WEIR_NO_SCALE && half->scale > WEIR_MAX_SCALE)
		half->scale = WEIR_MAX_SCALE;
	return 0;
}

#endif
