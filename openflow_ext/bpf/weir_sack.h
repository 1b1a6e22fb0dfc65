/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Selective acknowledgements (RFC 2018). While a lost segment is being repaired the acknowledgement number stands
 * still, and so does the edge of a lowered window. The sender would stop, and then send a whole window at once. But
 * the segments before the one that arrived last are no longer in flight: they have arrived, or they are lost. So the
 * window counts from there (docs/decisions/0069-selective-acknowledgements.md).
 */
#ifndef WEIR_SACK_H
#define WEIR_SACK_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_parse.h"
#include "weir_sequence.h"
#include "weir_structs.h"

/* The first block of the option, as hosts send it that have timestamps (RFC 2018, section 4): what arrived last. */
struct sack_option {
	struct timestamps_option timestamps;
	__be16 nops;
	__u8 kind;
	__u8 len;
	__be32 left;
	__be32 right;
};

/*
 * How far what arrived last is beyond the acknowledgement number of a segment of the local host, whose options begin at
 * the cursor. 0: it has no such option, or the block reports a duplicate (RFC 2883) or bytes that were never sent.
 */
static __always_inline __u32 sack_bytes(const struct weir_flow *flow, struct cursor c, const struct tcphdr *tcp)
{
	bool with_timestamps = parse_timestamps(c, tcp);
	const struct sack_option *sack = cursor_take(&c, sizeof(*sack));
	__u32 ack = bpf_ntohl(tcp->ack_seq), right;

	if (!sack || tcp->doff * 4 < sizeof(*tcp) + sizeof(*sack) || !with_timestamps || sack->kind != TCPOPT_SACK ||
	    sack->nops != bpf_htons(TCPOPT_TWO_NOPS))
		return 0;
	right = bpf_ntohl(sack->right);
	return right - ack <= flow->remote_edges.end - ack ? right - ack : 0;
}

/*
 * The field of a lowered window that counts from there: at most twice itself, whatever a host forges, and the
 * receiver's own. A sender of half segments keeps its small window.
 */
static __always_inline __u32 sack_window_field(const struct weir_flow *flow, __u32 field, __u32 most, __u32 bytes,
					       __u32 scale)
{
	__u32 more = flow->flags & WEIR_HALF_SEGMENTS ? 0 : bytes >> (scale & SCALE_MASK);

	field += more < field ? more : field;
	return field < most ? field : most;
}

#endif
