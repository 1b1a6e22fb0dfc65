/* SPDX-License-Identifier: GPL-2.0-only */
/* Changes of a TCP header by a tc program, with its checksum. A checksum that the NIC completes stays valid. */
#ifndef WEIR_EDIT_H
#define WEIR_EDIT_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_parse.h"

#define TC_ACT_UNSPEC (-1)  /* the next program or the interface decides */
#define TCP_FLAGS_OFFSET 12 /* offset of the 16-bit word with the flags */
#define TCP_PSH 0x08

/* Pointers into the frame are invalid afterwards. */
static __always_inline void segment_replace_word(struct __sk_buff *skb, const struct segment *s, __u32 at, __u16 before,
						 __u16 after)
{
	bpf_l4_csum_replace(skb, s->tcp_offset + offsetof(struct tcphdr, check), before, after, sizeof(after));
	bpf_skb_store_bytes(skb, s->tcp_offset + at, &after, sizeof(after), 0);
}

/* Sets PSH. */
static __always_inline void segment_push(struct __sk_buff *skb, const struct segment *s, const struct tcphdr *tcp)
{
	__u16 before = *(__u16 *)((void *)tcp + TCP_FLAGS_OFFSET);
	__u16 after = before | bpf_htons(TCP_PSH);

	if (after != before)
		segment_replace_word(skb, s, TCP_FLAGS_OFFSET, before, after);
}

#endif
