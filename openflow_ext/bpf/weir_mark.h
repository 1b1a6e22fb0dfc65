/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CE on ECN-capable packets (RFC 3168) that join a long queue: a step at K (DCTCP, section 3.1), or a ramp
 * from th_min to th_max (DCUDP). Any transport, so before the segment is parsed.
 */
#ifndef WEIR_MARK_H
#define WEIR_MARK_H

#define ECN_MASK 0x03
#define ECN_NOT_ECT 0x00
#define ECN_CE 0x03
#define IPV6_ECN_SHIFT 4 /* in the header's second byte */

static __always_inline bool joins_long_queue(const struct weir_port *port, const struct weir_port_state *state)
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

static __always_inline bool mark_ipv4(struct iphdr *ip)
{
	__u16 before = bpf_htons(ip->tos); /* the checksum's word, but for its other byte, which stays */

	if ((ip->tos & ECN_MASK) == ECN_NOT_ECT || (ip->tos & ECN_MASK) == ECN_CE)
		return false;
	ip->tos |= ECN_CE;
	ip->check = weir_checksum_update(ip->check, before, bpf_htons(ip->tos));
	return true;
}

static __always_inline bool mark_ipv6(struct ipv6hdr *ip)
{
	__u8 *byte = (__u8 *)ip + 1;
	__u8 ecn = *byte >> IPV6_ECN_SHIFT & ECN_MASK;

	if (ecn == ECN_NOT_ECT || ecn == ECN_CE)
		return false;
	*byte |= ECN_CE << IPV6_ECN_SHIFT;
	return true;
}

static __always_inline void mark(struct cursor c, const struct weir_port *port, struct weir_port_state *state)
{
	int ethertype;
	void *ip;

	if (!port->mark_mode || !joins_long_queue(port, state))
		return;
	ethertype = ethertype_of(&c);
	if (ethertype == ETH_P_IP) {
		ip = take(&c, sizeof(struct iphdr));
		if (!ip || !mark_ipv4(ip))
			return;
	} else if (ethertype == ETH_P_IPV6) {
		ip = take(&c, sizeof(struct ipv6hdr));
		if (!ip || !mark_ipv6(ip))
			return;
	} else {
		return;
	}
	__sync_fetch_and_add(&state->marked, 1);
}

#endif
