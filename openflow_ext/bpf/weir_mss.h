/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Segments that fit. A fair share of less than one segment cannot be sent by hosts that avoid silly windows, so on
 * its way from behind a port under SCCP each SYN and SYN-ACK is made to offer
 * - a window scale of finer steps (weir_finer); the host's windows are translated from then on (told_field),
 * - an MSS of whole such steps, and where the queue cannot hold a segment of each flow, so small that it can.
 * The least window of such a flow then holds exactly one segment, without a runt, and the segment goes on with PSH:
 * Linux acknowledges pushed data when it is read, not by the delayed ACK. One that delays nevertheless gets two
 * (note_ack in weir_flow.h), and so do all where there are few.
 *
 * How crowded the port will be is told by the most flows that it had of late, for rounds come again, and while
 * there are more, by twice as many as there are: those of a burst of SYNs, which nobody has answered yet, with
 * them. Left alone: SYNs whose first option is not the MSS, as it is of all hosts that are known.
 */
#ifndef WEIR_MSS_H
#define WEIR_MSS_H

#define CROWD_NS (10 * NS_PER_S) /* by then half of a crowd is forgotten */
#define BURST_NS 10000000ull
#define MSS_AT (sizeof(struct tcphdr) + 2)
#define TCP_FLAGS_AT 12 /* the word that holds them */
#define TCP_PSH 0x08

/* A word of a TCP header, in network order; at 0: none. */
struct edit {
	__u32 at;
	__u16 before;
	__u16 after;
};

static __always_inline __u32 remembered(const struct weir_port_state *state, __u64 now_ns)
{
	__u64 halvings = now_ns > state->crowd_ns ? (now_ns - state->crowd_ns) / CROWD_NS : 0; /* now may be a tick's */

	return halvings < 32 ? state->crowd >> halvings : 0;
}

/* A flow more is counted. */
static __always_inline void note_crowd(struct weir_port_state *state, __u64 now_ns)
{
	if (state->n_i < remembered(state, now_ns))
		return;
	state->crowd = state->n_i;
	state->crowd_ns = now_ns;
}

/* How many flows a round to come has, as far as is known. */
static __always_inline __u32 crowd_of(const struct weir_port_state *state, __u64 now_ns)
{
	__u32 crowd = remembered(state, now_ns);

	return state->n_i > crowd ? state->n_i : crowd;
}

/* A connection more is opened: how many flows the port has to be ready for. */
static __always_inline __u32 crowd_to_be(struct weir_port_state *state, __u64 now_ns)
{
	__u32 crowd = remembered(state, now_ns), flows;

	if (now_ns - state->burst_ns > BURST_NS) {
		state->burst_ns = now_ns;
		state->burst = state->n_i;
	}
	flows = __sync_fetch_and_add(&state->burst, 1) + 1;
	if (flows <= state->n_i)
		flows = state->n_i + 1;
	return flows > crowd ? 2 * flows : crowd;
}

/*
 * What the host behind the port is made to offer. True: the segments that it will be sent fill whole steps of its
 * windows. Verified once.
 */
__noinline int fit_offer(const struct weir_port *port, struct weir_port_state *state,
			 const struct tcp_options *options, struct weir_half *offer, __u64 now_ns)
{
	__u32 extra, scale, segment;

	if (!port || !state || !options || !offer)
		return 0;
	extra = offer->timestamps ? TIMESTAMPS_LEN : 0;
	if (!port->bdp_bytes || !port->buffer_bytes)
		return 0;
	if (options->bytes[0] != TCPOPT_MSS || options->bytes[1] != 4 || offer->mss <= extra)
		return 0;
	if (options->scale_at && options->bytes[options->scale_at & 63] == offer->scale)
		offer->scale -= weir_finer(offer->scale);
	scale = offer->scale == WEIR_NO_SCALE ? 0 : offer->scale;
	segment = weir_fitted_segment(port->buffer_bytes + port->bdp_bytes, crowd_to_be(state, now_ns),
				      offer->mss - extra, scale);
	offer->mss = segment + extra;
	return !(segment & ((1u << (scale & 31)) - 1));
}

/* What of a SYN's header an offer changed: the word of the MSS, and the one that the scale is half of. */
static __always_inline void edits_of(struct edit *edits, const struct tcp_options *options,
				     const struct weir_half *own, const struct weir_half *offer)
{
	__u32 at = options->scale_at & 62, less = own->scale - offer->scale;
	__u16 word = options->bytes[at] << 8 | options->bytes[at + 1];

	if (offer->mss != own->mss)
		edits[0] = (struct edit){MSS_AT, bpf_htons(own->mss), bpf_htons(offer->mss)};
	if (less)
		edits[1] = (struct edit){sizeof(struct tcphdr) + at, bpf_htons(word),
					 bpf_htons(word - (options->scale_at & 1 ? less : less << 8))};
}

/*
 * The least window of the flow is to hold one segment and no more. Where few flows share the port each has two at
 * least, for one waits until its reader has been woken, and the handshakes by which the common RTT is chosen do not.
 */
static __always_inline bool one_at_a_time(const struct weir_flow *flow, const struct weir_port *port, __u64 flows,
					  __u32 mss)
{
	return !flow->paired &&
	       (mss * flows > 2 * port->bdp_bytes || 2 * (mss + WEIR_HEADERS) * flows > port->buffer_bytes);
}

/* One flow may be told so much more: no more waits, and the link has had time twice for what was told before. */
static __always_inline bool may_widen(const struct weir_port *port, struct weir_port_state *state, __u64 bytes,
				      __u32 most_waiting_bytes)
{
	__u64 now_ns = bpf_ktime_get_ns();

	if (!port->capacity_bps || state->queue_bytes > most_waiting_bytes || now_ns < state->widened_ns)
		return false;
	state->widened_ns = now_ns + 2 * bytes * 8 * NS_PER_S / port->capacity_bps;
	return true;
}

/*
 * Among how many flows the port is shared as this one sees it: with a round to come while it waits, with those that
 * send once it does. Where a round begins they are few at first, and what the first hundred are told as a 1st, a
 * 2nd, a 3rd adds up to five shares of a lone flow: they are told so one after the other.
 */
static __always_inline __u64 divisor(struct weir_flow *flow, const struct weir_port *port,
				     struct weir_port_state *state, __u32 mss, __u64 now_ns)
{
	__u64 flows, share, crowd;

	if (!port->turn_shift)
		return state->n_i;
	crowd = crowd_of(state, now_ns);
	if (!flow->segment || !sends(flow, port, state, now_ns))
		return crowd;
	flows = sharers(port, state, now_ns);
	if (!(flow->seen & WEIR_BEGINS) || flows >= crowd)
		return flows;
	if (flow->seen & WEIR_HALVES)
		return crowd; /* two segments come first, one flow after the other too (least_of_single) */
	share = port->bdp_bytes / (flows ? flows : 1);
	if (!may_widen(port, state, share > 2 * mss ? share : 2 * mss, port->buffer_bytes / 4))
		return crowd;
	flow->seen &= ~WEIR_BEGINS;
	return flows;
}

/*
 * What a flow under one_at_a_time is told at the least. A host whose peer never told a window of two segments sends
 * two halves where it is told one (Linux: tcp_bound_to_half_wnd), which costs as much as two, and repeats the second
 * when its ACK takes longer than the handshake did (RFC 8985, tail loss probe). So each is told two once, one after
 * the other while the queue has the eighth to spare that segments are fitted with, and until then so little that it
 * sends one: never anything between, for less than half of the most that it was told stops a host (SWS avoidance).
 */
static __always_inline __u32 least_of_single(const struct weir_flow *flow, const struct weir_port *port,
					     struct weir_port_state *state, __u32 mss)
{
	__u32 spared = port->buffer_bytes - port->buffer_bytes / 8;

	if (!(flow->seen & WEIR_HALVES) || mss <= WEIR_SMALL_WINDOW)
		return mss;
	return flow->segment && may_widen(port, state, 2 * (mss + WEIR_HEADERS), spared) ? 2 * mss : WEIR_SMALL_WINDOW;
}

/*
 * An ACK before the flow has sent anything, the handshake's last, may be told little: how many flows a round will
 * have is known better when it is asked for, and what asks tells the window anew, which can only become larger.
 */
static __always_inline bool opens(const struct weir_flow *flow, const struct segment *s, __u32 mss)
{
	return flow->seen & WEIR_HALVES && !flow->segment && !s->payload && mss > WEIR_SMALL_WINDOW;
}

/* Whether the flow's window was last told to hold one segment at the least. */
static __always_inline void note_single(struct weir_flow *flow, bool single)
{
	if (single != !!(flow->seen & WEIR_SINGLE))
		flow->seen ^= WEIR_SINGLE;
}

/* The remote host is told a window. */
static __always_inline void note_told(struct weir_flow *flow, __u32 window_bytes, __u32 mss)
{
	if (flow->seen & WEIR_HALVES && window_bytes >= 2 * mss)
		flow->seen &= ~WEIR_HALVES;
}

/* Pointers into the frame are void afterwards. */
static __always_inline void replace_word(struct __sk_buff *skb, const struct segment *s, __u32 at, __u16 before,
					 __u16 after)
{
	bpf_l4_csum_replace(skb, s->tcp_at + offsetof(struct tcphdr, check), before, after, sizeof(after));
	bpf_skb_store_bytes(skb, s->tcp_at + at, &after, sizeof(after), 0);
}

/* The segment goes on with PSH. */
static __always_inline void push(struct __sk_buff *skb, const struct segment *s, const struct tcphdr *tcp)
{
	__u16 before = *(__u16 *)((void *)tcp + TCP_FLAGS_AT);
	__u16 after = before | bpf_htons(TCP_PSH);

	if (after != before)
		replace_word(skb, s, TCP_FLAGS_AT, before, after);
}

#endif
