/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Smaller segments for the flows of a crowded port. A fair share of less than one segment cannot be sent by hosts
 * that avoid silly windows, so where a queue cannot hold the least window of each flow, the MSS that a SYN or
 * SYN-ACK offers from behind the port is lowered: the peer's segments, and with them its least window, get
 * smaller. Such a window holds exactly one segment, and the segment goes on with PSH: Linux acknowledges pushed
 * data when it is read, not by the delayed ACK. One that delays nevertheless gets two (note_ack in weir_flow.h).
 *
 * What counts is the most flows that the port had at once in the last minute, so that the first connections of
 * the next round know; while it grows, half as many again. Left alone: SYNs whose first option is not the MSS, as it
 * is of all hosts that are known.
 */
#ifndef WEIR_MSS_H
#define WEIR_MSS_H

#define CROWD_NS (60 * NS_PER_S)
#define MSS_AT (sizeof(struct tcphdr) + 2)
#define TCP_FLAGS_AT 12 /* the word that holds them */
#define TCP_PSH 0x08

/* A flow more is counted. */
static __always_inline void note_crowd(struct weir_port_state *state, __u64 now_ns)
{
	if (state->n_i < state->crowd && now_ns - state->crowd_ns < CROWD_NS)
		return;
	state->crowd = state->n_i;
	state->crowd_ns = now_ns;
}

/* How many flows the port has to be ready for: half as many again where there are more than there were. */
static __always_inline __u32 crowd_of(const struct weir_port_state *state, __u64 now_ns)
{
	__u64 flows = state->n_i + 1;

	if (flows > state->crowd || now_ns - state->crowd_ns > CROWD_NS)
		return flows + flows / 2;
	return state->crowd;
}

/* The MSS that the host behind the port is made to offer; its own where the port is not crowded. Verified once. */
__noinline int offered_mss(const struct weir_port *port, const struct weir_port_state *state,
			   const struct tcp_options *options, const struct weir_half *offer, __u64 now_ns)
{
	__u32 extra, scale, segment;

	if (!port || !state || !options || !offer)
		return 0;
	extra = offer->timestamps ? TIMESTAMPS_LEN : 0;
	scale = offer->scale == WEIR_NO_SCALE ? 0 : offer->scale;
	if (!port->bdp_bytes || !port->buffer_bytes)
		return offer->mss;
	if (options->bytes[0] != TCPOPT_MSS || options->bytes[1] != 4 || offer->mss <= extra)
		return offer->mss;
	segment = weir_crowded_segment(port->buffer_bytes + port->bdp_bytes, crowd_of(state, now_ns),
				       offer->mss - extra, scale);
	return segment + extra;
}

/* Where the MSS stands in a SYN whose first option it is. */
static __always_inline __u16 *mss_option(struct tcphdr *tcp, void *end)
{
	__u16 *mss = (void *)tcp + MSS_AT;

	return (void *)(mss + 1) <= end ? mss : NULL;
}

/* Its window is to hold one segment and no more, for the port cannot hold more of every flow. */
static __always_inline bool one_at_a_time(const struct weir_flow *flow, const struct weir_port *port,
					  const struct weir_port_state *state, __u32 mss)
{
	return flow->seen & WEIR_SMALL_MSS && !flow->paired && port->bdp_bytes < 2ull * mss * state->n_i;
}

/* The segment goes on with PSH. Pointers into the frame are void afterwards. */
static __always_inline void push(struct __sk_buff *skb, const struct segment *s, const struct tcphdr *tcp)
{
	__u16 before = *(__u16 *)((void *)tcp + TCP_FLAGS_AT);
	__u16 after = before | bpf_htons(TCP_PSH);

	if (after == before)
		return;
	bpf_l4_csum_replace(skb, s->tcp_at + offsetof(struct tcphdr, check), before, after, sizeof(after));
	bpf_skb_store_bytes(skb, s->tcp_at + TCP_FLAGS_AT, &after, sizeof(after), 0);
}

#endif
