/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ECN marking: sets CE on ECN-capable packets (RFC 3168) that are enqueued in a long queue. Either a step at K (DCTCP,
 * section 3.1) or a ramp between two thresholds (DCUDP). It applies to any transport, so it runs before TCP is parsed.
 */
#ifndef WEIR_MARK_H
#define WEIR_MARK_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_parse.h"
#include "weir_structs.h"

#define ECN_MASK 0x03
#define ECN_NOT_ECT 0x00
#define ECN_CE 0x03
#define IPV6_ECN_SHIFT 4 /* position of the ECN bits in the second byte of the IPv6 header */

static __always_inline bool mark_queue_is_long(const struct weir_port *port, const struct weir_port_state *state)
{
	__u32 queue = state->queue_pkts;

	if (port->mark_mode == WEIR_MARK_STEP)
		return queue > port->mark_min_pkts;
	if (port->mark_mode != WEIR_MARK_RAMP || queue <= port->mark_min_pkts)
		return false;
	if (queue >= port->mark_max_pkts)
		return true;
	return bpf_get_prandom_u32() % (port->mark_max_pkts - port->mark_min_pkts) < queue - port->mark_min_pkts;
}

/* Whether the packet is ECN-capable and has no CE. */
static __always_inline bool mark_is_capable(__u8 ecn)
{
	return (ecn & ECN_MASK) != ECN_NOT_ECT && (ecn & ECN_MASK) != ECN_CE;
}

/*
 * Writes to packets by helpers only. If a program contains a direct store, the kernel makes a private copy of each
 * packet that TCP may have to retransmit, marked or not
 * (docs/decisions/0031-tc-programs-do-not-store.md).
 */
static __always_inline bool mark_ipv4(struct __sk_buff *skb, __u32 at, __u8 tos)
{
	__u8 marked = tos | ECN_CE;

	bpf_l3_csum_replace(skb, at + offsetof(struct iphdr, check), bpf_htons(tos), bpf_htons(marked), sizeof(__u16));
	return !bpf_skb_store_bytes(skb, at + offsetof(struct iphdr, tos), &marked, sizeof(marked), 0);
}

/*
 * The header of IPv6 has no checksum that makes up for the change. A NIC may have summed up the whole packet
 * (CHECKSUM_COMPLETE), so that sum has to follow.
 */
static __always_inline bool mark_ipv6(struct __sk_buff *skb, __u32 at, __u8 byte)
{
	__u8 marked = byte | ECN_CE << IPV6_ECN_SHIFT;

	return !bpf_skb_store_bytes(skb, at + 1, &marked, sizeof(marked), BPF_F_RECOMPUTE_CSUM);
}

/* `packets`: that the packet becomes on the wire. */
static __always_inline void mark_packet(struct __sk_buff *skb, const struct weir_port *port,
					struct weir_port_state *state, __u32 packets)
{
	struct cursor c = CURSOR_OF(skb);
	void *frame = c.pos;
	bool observes = port->observes >> WEIR_WINDOW_NONE & 1, marked = false;
	int ethertype;
	__u8 *ip;
	__u32 at;

	if (!port->mark_mode || !mark_queue_is_long(port, state))
		return;
	ethertype = parse_ethertype(&c, MAX_VLAN_TAGS);
	ip = cursor_take(&c, sizeof(struct iphdr));
	if (!ip)
		return;
	at = (void *)ip - frame;
	if (ethertype == ETH_P_IP && mark_is_capable(ip[offsetof(struct iphdr, tos)]))
		marked = observes || mark_ipv4(skb, at, ip[offsetof(struct iphdr, tos)]);
	else if (ethertype == ETH_P_IPV6 && mark_is_capable(ip[1] >> IPV6_ECN_SHIFT))
		marked = observes || mark_ipv6(skb, at, ip[1]);
	if (marked)
		__sync_fetch_and_add(&state->marked, packets);
}

#endif
