/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The checksums of segments that open or end a connection. A host ignores a segment with a wrong checksum, so such a
 * segment must not change what the switch knows. All other segments are too many to check.
 */
#ifndef WEIR_CHECKSUM_H
#define WEIR_CHECKSUM_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_parse.h"
#include "weir_window.h"

#define TCP_NOT_PLAIN (TCP_SYN | TCP_FIN | TCP_RST)
#define CHECKSUM_PARTIAL 3 /* linux/skbuff.h */
#define PSEUDO_ADDRESSES 32

/* A part of a packet, padded with zeros to whole words. */
struct checksum_chunk {
	__u8 bytes[CHECKSUM_CHUNK + 4];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct checksum_chunk);
} checksum_chunks SEC(".maps");

/* A sum in progress. */
struct checksum_run {
	void *ctx;
	__u32 at;
	__u32 left;
	__u32 sum;
};

/* The length of the next chunk; 0 at the end. */
static __always_inline __u32 checksum_next_len(const struct checksum_run *run)
{
	return run->left < CHECKSUM_CHUNK ? run->left : CHECKSUM_CHUNK;
}

static __always_inline struct checksum_chunk *checksum_chunk(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&checksum_chunks, &zero);
}

static __always_inline long checksum_add(struct checksum_run *run, struct checksum_chunk *chunk, __u32 len)
{
	__builtin_memset(chunk->bytes + len, 0, 3);
	run->sum = bpf_csum_diff(NULL, 0, (void *)chunk->bytes, (len + 3) & ~3u, run->sum);
	run->at += len;
	run->left -= len;
	return 0;
}

/* `len`, of 1 to CHECKSUM_CHUNK. The verifier before Linux 6.8 does not learn from a comparison that it is not 0. */
static __always_inline __u32 checksum_not_0(__u32 len)
{
	barrier_var(len);
	return ((len - 1) & (CHECKSUM_CHUNK - 1)) + 1;
}

/* Adds the next chunk. Stops with bytes left if they cannot be read. */
static long checksum_next_xdp(__u32 step, struct checksum_run *run)
{
	struct checksum_chunk *chunk = checksum_chunk();
	__u32 len = checksum_next_len(run);

	if (!chunk || !len)
		return 1;
	len = checksum_not_0(len);
	if (bpf_xdp_load_bytes(run->ctx, run->at, chunk->bytes, len))
		return 1;
	return checksum_add(run, chunk, len);
}

static long checksum_next_skb(__u32 step, struct checksum_run *run)
{
	struct checksum_chunk *chunk = checksum_chunk();
	__u32 len = checksum_next_len(run);

	if (!chunk || !len)
		return 1;
	len = checksum_not_0(len);
	if (bpf_skb_load_bytes(run->ctx, run->at, chunk->bytes, len))
		return 1;
	return checksum_add(run, chunk, len);
}

/* Whether the checksum over `len` bytes of the packet and `sum` is right. */
static __always_inline bool checksum_of(void *ctx, bool is_skb, __u32 at, __u32 len, __u32 sum)
{
	struct checksum_run run = {.ctx = ctx, .at = at, .left = len, .sum = sum};

	if (is_skb)
		bpf_loop(CHECKSUM_CHUNKS, checksum_next_skb, &run, 0);
	else
		bpf_loop(CHECKSUM_CHUNKS, checksum_next_xdp, &run, 0);
	return !run.left && weir_checksum_fold(run.sum) == 0xffff;
}

/* The sum of the pseudo header of a segment of `len` bytes. A mapped address has the sum of the IPv4 address. */
static __always_inline __u32 checksum_of_pseudo_header(const struct segment *s, __u32 len)
{
	return bpf_csum_diff(NULL, 0, (void *)s->src, PSEUDO_ADDRESSES, bpf_htonl(len + IPPROTO_TCP));
}

/*
 * Whether a host would take this segment for a whole one: the checksum of its TCP segment is right, and for IPv4 that
 * of the header.
 */
static __always_inline bool checksum_holds(void *ctx, bool is_skb, const struct segment *s)
{
	__u32 ip_offset = parse_ip_offset(s), len, sum;
	__u8 data_offset = 0;

	if (s->is_fragment || (is_skb ? bpf_skb_load_bytes(ctx, s->tcp_offset + 12, &data_offset, 1)
				      : bpf_xdp_load_bytes(ctx, s->tcp_offset + 12, &data_offset, 1)))
		return false;
	if (s->ip_version == 4 && !checksum_of(ctx, is_skb, ip_offset, (s->tcp_offset - ip_offset) & 63, 0))
		return false;
	len = s->payload + (data_offset >> 4) * 4;
	sum = checksum_of_pseudo_header(s, len);
	return checksum_of(ctx, is_skb, s->tcp_offset, len, sum);
}

/* No host sends a SYN with FIN or RST. */
static __always_inline bool checksum_flags_are_sane(const struct segment *s)
{
	return !(s->flags & TCP_SYN) || !(s->flags & (TCP_FIN | TCP_RST));
}

/* Global functions, which the verifier checks once. */
__noinline int checksum_holds_xdp(struct xdp_md *ctx, struct segment *s)
{
	return s ? checksum_flags_are_sane(s) && checksum_holds(ctx, false, s) : 0;
}

/*
 * A packet that has not left its host has no checksum still (CHECKSUM_PARTIAL): the NIC, or the host that receives it,
 * completes or ignores it. That a raw socket cannot claim by the bytes of a packet, so it is read from the sk_buff.
 */
static __always_inline bool checksum_is_partial(struct __sk_buff *skb)
{
	return BPF_CORE_READ_BITFIELD_PROBED((struct sk_buff *)skb, ip_summed) == CHECKSUM_PARTIAL;
}

__noinline int checksum_holds_skb(struct __sk_buff *ctx, struct segment *s)
{
	if (!s || !checksum_flags_are_sane(s))
		return 0;
	if (checksum_is_partial(ctx))
		return !s->is_fragment;
	return checksum_holds(ctx, true, s);
}

#endif
