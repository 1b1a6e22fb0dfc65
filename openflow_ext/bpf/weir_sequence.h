/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sequence numbers: which segments an endpoint would believe (docs/decisions/0059-only-what-endpoints-believe.md).
 *
 * Of each side the switch knows the sequence number that it will send next (end) and the acknowledgement number that
 * it sent last (ack), which is RCV.NXT of that side. Both advance only within what the other side permits, so that a
 * forged segment whose numbers are guessed changes nothing.
 */
#ifndef WEIR_SEQUENCE_H
#define WEIR_SEQUENCE_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_flow.h"
#include "weir_flow_bits.h"
#include "weir_parse.h"
#include "weir_structs.h"

/* Sequence numbers wrap. True if `a` is not after `b`. */
static __always_inline bool sequence_up_to(__u32 a, __u32 b)
{
	return (__s32)(b - a) >= 0;
}

/* The sequence numbers of a segment's flow, by the side that sent the segment. */
static __always_inline struct weir_edges *sequence_sender(struct weir_flow *flow, enum weir_direction direction)
{
	return direction == WEIR_INGRESS ? &flow->local_edges : &flow->remote_edges;
}

static __always_inline struct weir_edges *sequence_receiver(struct weir_flow *flow, enum weir_direction direction)
{
	return direction == WEIR_INGRESS ? &flow->remote_edges : &flow->local_edges;
}

/* The largest window of one side: of the local host (its own scale), or of the remote host. */
static __always_inline __u32 sequence_window(const struct weir_flow *flow, bool local)
{
	__u32 scale = local ? flow->local.scale + flow->scale_shift : flow->remote.scale;
	__u32 field = local ? flow->local_window : flow->remote_window;
	__u32 window = flow_scales_windows(flow) ? field << (scale & SCALE_MASK) : field;

	return window > WEIR_MAX_FIELD ? window : WEIR_MAX_FIELD; /* windows before the handshake's end are unscaled */
}

/* The first segment of a side of a moved flow states the numbers of that side. */
static __noinline int sequence_learn(struct weir_flow *flow, __u32 end, __u32 ack, enum weir_direction direction)
{
	struct weir_edges *sender = sequence_sender(flow, direction);

	flow_clear(flow, direction == WEIR_INGRESS ? WEIR_LEARNS_IN : WEIR_LEARNS_OUT);
	sender->end = end;
	sender->ack = ack;
	return 0;
}

/*
 * Follows a segment without SYN and RST of a flow whose handshake was seen. Returns the number of bytes that it
 * acknowledges for the first time.
 */
static __always_inline __u32 sequence_note(struct weir_flow *flow, const struct segment *s, const struct tcphdr *tcp,
					   enum weir_direction direction)
{
	struct weir_edges *sender = sequence_sender(flow, direction);
	const struct weir_edges *receiver = sequence_receiver(flow, direction);
	__u32 end = bpf_ntohl(tcp->seq) + s->payload + (s->flags & TCP_FIN), ack = bpf_ntohl(tcp->ack_seq), bytes;
	__u16 *window = direction == WEIR_INGRESS ? &flow->local_window : &flow->remote_window;
	__u16 field = bpf_ntohs(tcp->window);

	if (!(s->flags & TCP_ACK))
		return 0;
	if (flow->flags & (direction == WEIR_INGRESS ? WEIR_LEARNS_IN : WEIR_LEARNS_OUT))
		return sequence_learn(flow, end, ack, direction);
	if (!sequence_up_to(end, sender->end) &&
	    sequence_up_to(end, receiver->ack + sequence_window(flow, direction == WEIR_EGRESS)))
		sender->end = end;
	if (!sequence_up_to(ack, receiver->end))
		return 0;
	if (field > *window)
		*window = field;
	bytes = ack - sender->ack;
	if ((__s32)bytes <= 0)
		return 0;
	sender->ack = ack;
	return bytes;
}

/*
 * Whether the receiver would accept this FIN: it is within the window and not acknowledged already, and its own
 * acknowledgement number is acceptable (RFC 9293, section 3.10.7.4; RFC 5961, section 5.2).
 */
static __always_inline bool sequence_accepts_fin(struct weir_flow *flow, const struct segment *s,
						 const struct tcphdr *tcp, enum weir_direction direction)
{
	const struct weir_edges *sender = sequence_sender(flow, direction);
	const struct weir_edges *receiver = sequence_receiver(flow, direction);
	__u32 at = bpf_ntohl(tcp->seq) + s->payload, ack = bpf_ntohl(tcp->ack_seq);

	if (!(s->flags & TCP_ACK) || !(flow->flags & WEIR_ESTABLISHED))
		return false;
	return sequence_up_to(receiver->ack, at) &&
	       sequence_up_to(at, receiver->ack + sequence_window(flow, direction == WEIR_EGRESS)) &&
	       sequence_up_to(ack, receiver->end) &&
	       sequence_up_to(sender->ack - sequence_window(flow, direction == WEIR_INGRESS), ack);
}

/*
 * Whether the receiver would accept this RST: its sequence number is exactly RCV.NXT (RFC 5961, section 3.2). That is
 * the number that the receiver acknowledged last, or, if it has received all that the sender sent since, the sender's
 * next one. Another one within the window is only answered with a challenge ACK. A RST that answers a SYN has to
 * acknowledge it.
 */
static __always_inline bool sequence_accepts_rst(struct weir_flow *flow, const struct segment *s,
						 const struct tcphdr *tcp, enum weir_direction direction)
{
	const struct weir_edges *receiver = sequence_receiver(flow, direction);
	bool in = direction == WEIR_INGRESS;
	__u32 isn = in ? flow->remote_isn : flow->local_isn, seq = bpf_ntohl(tcp->seq);

	if (!(flow->flags & (in ? WEIR_SYN_IN : WEIR_SYN_OUT)))
		return s->flags & TCP_ACK && bpf_ntohl(tcp->ack_seq) - isn - 1 <= receiver->end - isn - 1;
	return seq == sequence_sender(flow, direction)->end || (flow_handshake_seen(flow) && seq == receiver->ack);
}

/*
 * Whether this segment completes the handshake: it acknowledges the other side's SYN-ACK, which acknowledged this
 * side's SYN. A host that forges its address does not know that number.
 */
static __always_inline bool sequence_proves_handshake(struct weir_flow *flow, const struct segment *s,
						      const struct tcphdr *tcp, enum weir_direction direction)
{
	bool in = direction == WEIR_INGRESS;
	__u32 isn = in ? flow->remote_isn : flow->local_isn, ack = bpf_ntohl(tcp->ack_seq);

	if (!(flow->flags & (in ? WEIR_ANSWER_OUT : WEIR_ANSWER_IN)) || (s->flags & (TCP_ACK | TCP_RST)) != TCP_ACK)
		return false;
	return ack - isn - 1 <= sequence_receiver(flow, direction)->end - isn - 1;
}

#endif
