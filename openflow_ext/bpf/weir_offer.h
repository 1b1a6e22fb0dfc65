/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What SYNs and SYN-ACKs offer, and which of them a flow believes. The first SYN of a side is believed: it only begins
 * a handshake. A SYN with another sequence number on the ports of a flow waits in the map reoffers, because anybody may
 * forge it. Only the SYN-ACK of the other side that acknowledges it begins the flow anew, as for a host that crashed
 * and connects again. A SYN-ACK is believed only if it acknowledges a SYN.
 */
#ifndef WEIR_OFFER_H
#define WEIR_OFFER_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_flow.h"
#include "weir_flow_bits.h"
#include "weir_flow_table.h"
#include "weir_maps.h"
#include "weir_parse.h"
#include "weir_structs.h"

enum offer_place {
	OFFER_NOWHERE, /* not believed */
	OFFER_IN_FLOW,
	OFFER_ASIDE, /* in the map reoffers */
};

/* A SYN or SYN-ACK, and what its flow knows of it. On the per-CPU map syn_scratch: the stack is too small for it. */
struct syn_in_hand {
	struct weir_flow_key key;
	struct tcp_options options;
	struct weir_offer own;     /* as sent */
	struct weir_reoffer offer; /* as forwarded */
	__u32 ack;
	__u32 place;        /* enum offer_place */
	__u32 repeated;     /* 1: the flow, or its reoffer, has it already */
	__u32 counts_aside; /* 1: it was stored in the map reoffers */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syn_in_hand);
} syn_scratch SEC(".maps");

static __always_inline struct syn_in_hand *syn_in_hand(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&syn_scratch, &zero);
}

static __always_inline __u32 offer_bit(enum weir_direction direction)
{
	return direction == WEIR_INGRESS ? WEIR_SYN_IN : WEIR_SYN_OUT;
}

static __always_inline bool offer_acknowledges(__u32 ack, __u32 isn, __u32 end)
{
	return ack - isn - 1 <= end - isn - 1;
}

/* What the flow holds already of a repeated SYN or SYN-ACK. */
static __always_inline void offer_recall_flow(struct syn_in_hand *syn, const struct weir_flow *flow,
					      enum weir_direction direction)
{
	syn->repeated = 1;
	syn->offer.offer = direction == WEIR_INGRESS ? flow->local : flow->remote;
	syn->offer.scale_shift = flow->scale_shift;
	syn->offer.scale_at = flow->scale_at;
	syn->offer.flags |= flow->flags & WEIR_FITTED;
}

/* The SYN-ACK acknowledges the SYN that was kept aside: the flow begins anew with that SYN. */
static __always_inline void offer_begin_anew(struct weir_flow *flow, const struct weir_reoffer *aside,
					     struct weir_port_state *state, __u64 now_ns)
{
	bool in = aside->flags & WEIR_SYN_IN;

	flow_uncount(flow, state);
	flow_leave(flow, WEIR_INTERACTIVE | WEIR_DELAYS_ACKS);
	ato_set(flow, LEAST_ATO_MS);
	use_set_step(flow, WEIR_USE_NEXT, 0);
	flow_clear(flow, ~(__u32)(WEIR_KEPT | WEIR_REOFFERED));
	flow_set(flow, aside->flags);
	flow->first_ns = aside->first_ns;
	flow->last_ns = flow->last_payload_ns = now_ns;
	flow->out_bytes = flow->out_before_resume = 0;
	flow->max_payload = flow->local_window = flow->remote_window = 0;
	flow->delayed_ack_us = 0;
	flow->scale_shift = aside->scale_shift;
	flow->scale_at = aside->scale_at;
	if (in) {
		flow->local = aside->offer;
		flow->local_isn = aside->isn;
		flow->local_edges.end = aside->end;
	} else {
		flow->remote = aside->offer;
		flow->remote_isn = aside->isn;
		flow->remote_edges.end = aside->end;
	}
}

/*
 * Places a SYN. A global function, which the verifier checks once. The SYN in hand is not an argument, because before
 * Linux 6.2 no map takes a key from the memory of one.
 */
__noinline int offer_place_syn(const struct weir_flow *flow, enum weir_direction direction)
{
	struct syn_in_hand *syn = syn_in_hand();
	__u32 bit = offer_bit(direction), isn;
	struct weir_reoffer *aside;

	if (!syn || !flow)
		return 0;
	isn = direction == WEIR_INGRESS ? flow->local_isn : flow->remote_isn;
	syn->place = OFFER_IN_FLOW;
	if (flow->flags & bit && isn == syn->offer.isn) {
		offer_recall_flow(syn, flow, direction);
		return 0;
	}
	if (!(flow->flags & bit) && !flow_ended(flow))
		return 0;
	syn->place = OFFER_ASIDE;
	if (!(flow->flags & WEIR_REOFFERED))
		return 0;
	aside = bpf_map_lookup_elem(&reoffers, &syn->key);
	if (!aside || aside->isn != syn->offer.isn || !(aside->flags & bit))
		return 0;
	syn->repeated = 1;
	syn->offer = *aside;
	syn->offer.flags |= WEIR_SYN_REPEATED;
	return 0;
}

/* Places a SYN-ACK, as offer_place_syn does a SYN. */
__noinline int offer_place_answer(struct weir_flow *flow, struct weir_port_state *state, enum weir_direction direction,
				  __u64 now_ns)
{
	struct syn_in_hand *syn = syn_in_hand();
	bool in = direction == WEIR_INGRESS, known;
	__u32 bit = offer_bit(direction), others = offer_bit(!direction), others_isn, others_end;
	struct weir_reoffer *aside;

	if (!syn || !flow || !state)
		return 0;
	others_isn = in ? flow->remote_isn : flow->local_isn;
	others_end = in ? flow->remote_edges.end : flow->local_edges.end;
	known = flow->flags & bit && (in ? flow->local_isn : flow->remote_isn) == syn->offer.isn;
	if (flow->flags & others && offer_acknowledges(syn->ack, others_isn, others_end) &&
	    (known || !(flow->flags & WEIR_ESTABLISHED)) && !flow_ended(flow)) {
		syn->place = OFFER_IN_FLOW;
		if (known)
			offer_recall_flow(syn, flow, direction);
		return 0;
	}
	if (!(flow->flags & WEIR_REOFFERED))
		return 0;
	aside = bpf_map_lookup_elem(&reoffers, &syn->key);
	if (!aside || !(aside->flags & others) || !offer_acknowledges(syn->ack, aside->isn, aside->end))
		return 0;
	syn->place = OFFER_IN_FLOW;
	offer_begin_anew(flow, aside, state, now_ns);
	flow_clear(flow, WEIR_REOFFERED);
	bpf_map_delete_elem(&reoffers, &syn->key);
	return 0;
}

/* Stores the SYN or SYN-ACK in the flow. */
static __always_inline void offer_store(struct weir_flow *flow, const struct syn_in_hand *syn, bool answer,
					enum weir_direction direction)
{
	bool in = direction == WEIR_INGRESS;
	struct weir_edges *sender = in ? &flow->local_edges : &flow->remote_edges;
	struct weir_edges *receiver = in ? &flow->remote_edges : &flow->local_edges;

	if (flow->flags & WEIR_ESTABLISHED)
		return;
	flow_set(flow, offer_bit(direction) | syn->offer.flags | (syn->repeated ? WEIR_SYN_REPEATED : 0));
	if (answer) {
		flow_set(flow, in ? WEIR_ANSWER_IN : WEIR_ANSWER_OUT);
		sender->ack = syn->ack;
		receiver->ack = syn->offer.isn + 1;
	}
	if (syn->repeated)
		return;
	sender->end = syn->offer.end;
	if (!answer)
		flow->first_ns = syn->offer.first_ns;
	if (in) {
		flow->local = syn->offer.offer;
		flow->local_isn = syn->offer.isn;
		flow->scale_shift = syn->offer.scale_shift;
		flow->scale_at = syn->offer.scale_at;
	} else {
		flow->remote = syn->offer.offer;
		flow->remote_isn = syn->offer.isn;
	}
}

/* Stores the SYN beside the flow. False: no room is left. */
static __always_inline bool offer_store_aside(struct weir_flow *flow, struct syn_in_hand *syn,
					      enum weir_direction direction)
{
	syn->offer.flags |= offer_bit(direction);
	if (bpf_map_update_elem(&reoffers, &syn->key, &syn->offer, BPF_ANY))
		return false;
	flow_set(flow, WEIR_REOFFERED);
	return true;
}

/* The SYN in hand matched INCREMENT_NI. If it is kept aside, the flow that it begins is to be counted. */
static __always_inline void offer_count_aside(void)
{
	struct syn_in_hand *syn = syn_in_hand();
	struct weir_reoffer *aside = syn && syn->counts_aside ? bpf_map_lookup_elem(&reoffers, &syn->key) : NULL;

	if (aside)
		aside->flags |= WEIR_TO_COUNT;
}

/* A repeated SYN is edited only if it has the options of the first one, at the same places. */
static __always_inline bool offer_is_same(const struct syn_in_hand *syn)
{
	const struct weir_offer *told = &syn->offer.offer;
	const __u8 *bytes = syn->options.bytes;

	return syn->own.scale == (__u8)(told->scale + syn->offer.scale_shift) &&
	       syn->options.scale_offset == syn->offer.scale_at && syn->own.timestamps == told->timestamps &&
	       (syn->own.mss == told->mss ||
		(syn->own.mss > told->mss && bytes[0] == TCPOPT_MSS && bytes[1] == TCPOPT_MSS_LEN));
}

#endif
