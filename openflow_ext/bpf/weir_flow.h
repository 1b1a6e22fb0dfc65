/* SPDX-License-Identifier: GPL-2.0-only */
/* The flows of a port: what their handshakes offered, and which of them are in N_i. */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#define TIMESTAMPS_LEN 12 /* the option and its padding, in every segment once both sides offered it */
#define NS_PER_S 1000000000ull
#define NS_PER_US 1000
#define DELAYED_ACK_NS 20000000ull /* Linux delays by 40 ms and more, RFC 1122 allows 500 */
#define RESUMED_US 5000
#define LEAST_MSS 88      /* below this an MSS is a mistake or an attack (Linux: TCP_MIN_MSS) */

/*
 * Two segments for the least window of a flow, instead of one. A port gives them as long as its queue holds a
 * segment for each of its flows and one more for each of these; any number where nobody told what it holds.
 * Of small segments headers are much, and an eighth stays free (weir_crowded_segment).
 */
static __always_inline void pair(struct weir_flow *flow, const struct weir_port *port, struct weir_port_state *state,
				 __u32 mss)
{
	if (flow->paired)
		return;
	if (flow->seen & WEIR_FITTED)
		mss = (mss + WEIR_HEADERS) * 8 / 7;
	if (port->buffer_bytes && (state->n_i + state->paired + 1) * mss > port->buffer_bytes)
		return;
	if (!__sync_val_compare_and_swap(&flow->paired, 0, 1))
		__sync_fetch_and_add(&state->paired, 1);
}

static __always_inline void unpair(struct weir_flow *flow, struct weir_port_state *state)
{
	if (flow->paired && __sync_val_compare_and_swap(&flow->paired, 1, 0))
		__sync_fetch_and_add(&state->paired, -1);
}

/* Once a connection: a SYN that is repeated after the flow's end does not count. */
static __always_inline void count_in(struct weir_flow *flow, const struct weir_port *port,
				     struct weir_port_state *state, __u64 now_ns)
{
	if (flow->seen & WEIR_WAS_COUNTED)
		return;
	flow->seen |= WEIR_WAS_COUNTED;
	if (__sync_val_compare_and_swap(&flow->counted, 0, 1))
		return;
	__sync_fetch_and_add(&state->n_i, 1);
	__sync_fetch_and_add(&state->syns_counted, 1);
	if (joins(flow, port, state, now_ns))
		count_sharer(flow, state);
}

static __always_inline bool leave_n_i(struct weir_flow *flow, struct weir_port_state *state)
{
	unpair(flow, state);
	if (!__sync_val_compare_and_swap(&flow->counted, 1, 0))
		return false;
	__sync_fetch_and_add(&state->n_i, -1);
	return true;
}

/* The flow's end: it can become idle no more. */
static __always_inline void end_count(struct weir_flow *flow, struct weir_port_state *state)
{
	flow->seen &= ~WEIR_IDLE;
	if (leave_n_i(flow, state))
		__sync_fetch_and_add(&state->fins_counted, 1);
}

/* No payload for long: the flow leaves N_i until its next. True: it was in. */
static __always_inline bool make_idle(struct weir_flow *flow, struct weir_port_state *state)
{
	if (!leave_n_i(flow, state))
		return false;
	flow->seen |= WEIR_IDLE;
	return true;
}

/* Exact, for spans of less than an hour. */
static __always_inline __u32 now_us(void)
{
	return bpf_ktime_get_ns() / NS_PER_US;
}

/*
 * A window of one segment leaves each segment to the receiver's delayed ACK, 40 ms in Linux, unless a runt comes
 * along with it; and with so small a window cwnd never grows. It shows here: a pure ACK, of one segment, long
 * after the last payload, and more payload at once after it (see note_payload). An ACK of more than one segment
 * was not delayed by its receiver.
 */
static __always_inline void note_ack(struct weir_flow *flow, const struct weir_port *port,
				     const struct weir_port_state *state, __u32 acked, __u64 now_ns)
{
	__u64 late_ns = DELAYED_ACK_NS;
	__u32 bytes = acked - flow->acked;

	if (!bytes)
		return;
	flow->acked = acked;
	flow->late_ack_us = 0;
	if (now_ns - flow->payload_ns < late_ns || bytes > flow->segment)
		return;
	if (port->capacity_bps)
		late_ns += state->queue_bytes * 8ull * NS_PER_S / port->capacity_bps;
	if (now_ns - flow->payload_ns >= late_ns)
		flow->late_ack_us = now_us();
}

/* Payload leaves by the port: a flow that was idle is one of N_i again. */
static __always_inline void note_payload(struct weir_flow *flow, const struct weir_port *port,
					 struct weir_port_state *state, __u32 segment, __u64 now_ns)
{
	if (segment > flow->segment)
		flow->segment = segment;
	if (flow->late_ack_us && now_us() - flow->late_ack_us < RESUMED_US)
		pair(flow, port, state, flow->segment);
	flow->late_ack_us = 0;
	note_turn(flow, port, state, now_ns);
	flow->payload_ns = now_ns;
	if (!(flow->seen & WEIR_IDLE))
		return;
	flow->seen &= ~WEIR_IDLE;
	if (!__sync_val_compare_and_swap(&flow->counted, 0, 1))
		__sync_fetch_and_add(&state->n_i, 1);
}

/*
 * A fair share of less than two segments, and a sender whose segments do not go into the least window twice: it
 * would wait for delayed ACKs. (Those that never saw a window of two segments make theirs half as large.)
 */
static __always_inline bool will_wait(const struct weir_flow *flow, const struct weir_port *port,
				      __u64 flows, __u32 mss, __u32 scale)
{
	__u32 least = ((mss >> scale) + 1) << scale;

	return port->bdp_bytes && port->buffer_bytes && 2 * flow->segment > least &&
	       port->bdp_bytes < 2ull * mss * flows;
}

/*
 * Take in a SYN or SYN-ACK. A retransmitted one changes nothing; one with another initial sequence
 * number begins a new connection on the same ports. True: this is the first of its kind.
 */
static __always_inline bool learn_offer(struct weir_flow *flow, const struct weir_half *offer, __u32 isn,
					enum weir_direction direction, __u64 now_ns)
{
	__u32 bit = direction == WEIR_INGRESS ? WEIR_SYN_IN : WEIR_SYN_OUT;
	struct weir_half *half = direction == WEIR_INGRESS ? &flow->local : &flow->remote;
	__u32 *held_isn = direction == WEIR_INGRESS ? &flow->local_isn : &flow->remote_isn;

	if (flow->seen & bit) {
		if (*held_isn == isn) {
			flow->seen |= WEIR_SYN_AGAIN;
			return false;
		}
		flow->seen = 0;
		flow->first_ns = now_ns;
		flow->payload_ns = now_ns;
		flow->out_bytes = 0;
		flow->segment = 0;
	}
	*half = *offer;
	*held_isn = isn;
	flow->seen |= bit;
	return true;
}

static __always_inline bool handshake_seen(const struct weir_flow *flow)
{
	return (flow->seen & (WEIR_SYN_IN | WEIR_SYN_OUT)) == (WEIR_SYN_IN | WEIR_SYN_OUT);
}

static __always_inline bool ended(const struct weir_flow *flow)
{
	return flow->seen & WEIR_RST || (flow->seen & (WEIR_FIN_IN | WEIR_FIN_OUT)) == (WEIR_FIN_IN | WEIR_FIN_OUT);
}

static __always_inline bool scales(const struct weir_flow *flow)
{
	return flow->local.scale != WEIR_NO_SCALE && flow->remote.scale != WEIR_NO_SCALE;
}

/* How the local host's windows are scaled for the remote one: only where both sides offered to. */
static __always_inline __u32 scale_of(const struct weir_flow *flow)
{
	return scales(flow) ? flow->local.scale : 0;
}

/* The local host's window field in the scale that the remote one was told. */
static __always_inline __u32 told_field(const struct weir_flow *flow, __u32 field)
{
	if (scales(flow))
		field <<= flow->finer & 15;
	return field < WEIR_MAX_FIELD ? field : WEIR_MAX_FIELD;
}

/* Payload of a full segment towards the local host. */
static __always_inline __u32 mss_of(const struct weir_flow *flow)
{
	__u32 mss = flow->local.mss < flow->remote.mss ? flow->local.mss : flow->remote.mss;

	if (flow->local.timestamps && flow->remote.timestamps)
		mss -= TIMESTAMPS_LEN;
	return mss < LEAST_MSS || mss > 0xffff ? LEAST_MSS : mss;
}

#endif
