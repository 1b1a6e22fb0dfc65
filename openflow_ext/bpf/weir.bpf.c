// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data plane of the extended switch. On each port of the bridge, weir_ingress (XDP) or weir_ingress_tc lowers the
 * windows of ACKs before Open vSwitch receives them, and weir_egress counts the flows that leave and marks packets.
 * weir_enqueue and weir_dequeue (qdisc tracepoints) raise the queue's alarm. README.md describes each file and map.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "weir_alarm.h"
#include "weir_allowance.h"
#include "weir_checksum.h"
#include "weir_consts.h"
#include "weir_edit.h"
#include "weir_flow.h"
#include "weir_flow_bits.h"
#include "weir_flow_table.h"
#include "weir_keep_alive.h"
#include "weir_limit.h"
#include "weir_maps.h"
#include "weir_mark.h"
#include "weir_non_tcp.h"
#include "weir_move.h"
#include "weir_mss.h"
#include "weir_offer.h"
#include "weir_parse.h"
#include "weir_port.h"
#include "weir_report.h"
#include "weir_rules.h"
#include "weir_sack.h"
#include "weir_sequence.h"
#include "weir_share.h"
#include "weir_structs.h"
#include "weir_sweep.h"
#include "weir_window.h"

#define TCP_HEADER_MASK 0x3e /* a TCP header has at most 60 bytes; even offsets only */
#define HEADERS_LEN 256      /* all headers of a segment, with room for options and extensions */

/* One segment at one port, on its way through a program. */
struct packet {
	struct tcphdr *tcp;
	struct weir_port *port;
	struct weir_port_state *state;
	struct weir_flow *flow;              /* NULL: the switch has seen no handshake */
	struct header_edit edits[SYN_EDITS]; /* of a SYN */
	bool disbelieved;                    /* a SYN, FIN or RST that changes nothing */
	bool observed;                       /* a rule that only observes would lower its window */
};

/* Exact for a segment that opens or ends a connection; otherwise as of the last clock tick, which is much cheaper. */
static __always_inline __u64 packet_time_ns(const struct segment *s, struct weir_port_state *state)
{
	return s->flags & (TCP_SYN | TCP_FIN | TCP_RST) ? bpf_ktime_get_ns() : port_tick_ns(state);
}

/* The address of the host that sends the flow's payload to the port. */
static __always_inline const __u32 *packet_sender(const struct rule_query *q, enum weir_direction direction)
{
	return direction == WEIR_INGRESS ? q->segment.dst : q->segment.src;
}

/* The flow is in N_i, and so in the remembered crowd. A global function, which the verifier checks once. */
__noinline int packet_count_flow(struct weir_flow *flow, const struct weir_port *port, struct weir_port_state *state,
				 const struct rule_query *q, enum weir_direction direction)
{
	if (!flow || !port || !state || !q)
		return 0;
	flow_count(flow, port, state, packet_sender(q, direction), q->now_ns);
	crowd_note(port, state, state->n_i, q->now_ns);
	return 0;
}

/* Lowers the window of a SYN-ACK, which no rule matches. */
static __always_inline void packet_limit_start(struct packet *p, const struct rule_query *q)
{
	__u32 window = flow_start_window(p->flow, p->port, p->state, q->now_ns);

	if (window < p->port->least_window_bytes)
		window = p->port->least_window_bytes;
	if (window < bpf_ntohs(p->tcp->window))
		p->edits[EDIT_WINDOW] = (struct header_edit){offsetof(struct tcphdr, window), bpf_htons(window)};
}

/* Fits what the host behind the port offers (weir_mss.h). A repeated SYN gets the same offer as the first. */
static __always_inline void packet_fit_offer(struct packet *p, const struct rule_query *q, struct syn_in_hand *syn)
{
	struct weir_settings *host = host_settings();
	struct weir_offer *told = &syn->offer.offer;

	if ((p->flow->flags | syn->offer.flags) & WEIR_SIGNED || (syn->repeated && !offer_is_same(syn)))
		return;
	if (!syn->repeated && host && !host->simple_count && !rule_share_is_observed(q, p->port)) {
		if (mss_fit_offer(p->port, p->state, p->flow, &syn->options, told))
			syn->offer.flags |= WEIR_FITTED;
		syn->offer.scale_shift = syn->own.scale - told->scale;
	}
	mss_syn_edits(p->edits, &syn->options, &syn->own, told);
}

/* Whether the flow of a SYN or SYN-ACK believes it: enum offer_place. Not inlined, for the stack. */
static __noinline int packet_place_offer(struct packet *p, const struct rule_query *q, struct syn_in_hand *syn,
					 enum weir_direction direction)
{
	__builtin_memset(&syn->offer, 0, sizeof(syn->offer));
	syn->offer.first_ns = q->now_ns;
	syn->offer.isn = bpf_ntohl(p->tcp->seq);
	syn->offer.end = syn->offer.isn + 1 + q->segment.payload;
	syn->offer.offer = syn->own;
	syn->offer.scale_at = syn->options.scale_offset;
	syn->offer.flags = syn->options.is_signed ? WEIR_SIGNED : 0;
	syn->ack = bpf_ntohl(p->tcp->ack_seq);
	syn->place = OFFER_NOWHERE;
	syn->repeated = syn->counts_aside = 0;
	if (q->segment.flags & TCP_ACK)
		offer_place_answer(p->flow, p->state, direction, q->now_ns);
	else
		offer_place_syn(p->flow, direction);
	return syn->place;
}

/*
 * SYN or SYN-ACK: finds the flow's entry, and creates it for a SYN if there is none. 0: there is none. Not inlined into
 * packet_take_offer, because the stacks of both and of what they call would exceed 512 bytes: Linux before 6.9 rounds
 * each up to 32.
 */
static __noinline int packet_find_opening(struct packet *p, const struct rule_query *q, enum weir_direction direction)
{
	struct syn_in_hand *syn = syn_in_hand();
	bool answer = q->segment.flags & TCP_ACK;

	if (!syn)
		return 0;
	flow_key_of_segment(&syn->key, p->port->ifindex, &q->segment, direction);
	p->flow = answer ? flow_find(&syn->key) : flow_find_or_create(&syn->key, q->now_ns);
	if (!p->flow && !answer)
		__sync_fetch_and_add(&p->state->untracked, 1);
	return !!p->flow;
}

/*
 * SYN or SYN-ACK: stores what this side offers if it is believed. Otherwise p->flow is NULL. 0: the SYN changes
 * nothing. The caller has to use the result: if it is unused, clang leaves r0 undefined, and the verifier rejects a
 * stack pointer there.
 */
static __noinline int packet_take_offer(struct packet *p, const struct rule_query *q, struct cursor *c,
					enum weir_direction direction)
{
	struct syn_in_hand *syn = syn_in_hand();
	bool answer = q->segment.flags & TCP_ACK;
	int place;

	if (!syn || !p->flow)
		return 0;
	parse_copy_options(c, p->tcp, &syn->options);
	parse_offer(&syn->options, &syn->own);
	place = packet_place_offer(p, q, syn, direction);
	if (direction == WEIR_INGRESS && place != OFFER_NOWHERE)
		packet_fit_offer(p, q, syn);
	if (place == OFFER_IN_FLOW) {
		offer_store(p->flow, syn, answer, direction);
		p->flow->last_ns = q->now_ns;
		if (answer && direction == WEIR_INGRESS && syn->offer.flags & WEIR_FITTED && p->port->bdp_bytes &&
		    !port_observes_share(p->port))
			packet_limit_start(p, q);
		return 1;
	}
	if (place == OFFER_ASIDE)
		syn->counts_aside = offer_store_aside(p->flow, syn, direction);
	else
		__sync_fetch_and_add(&p->state->disbelieved, 1);
	p->flow = NULL;
	return syn->counts_aside;
}

/* Reports that the flow of the segment was opened or closed. Not inlined, for the stack. */
static __noinline int packet_report(const struct packet *p, const struct rule_query *q, enum weir_direction direction,
				    enum weir_close_reason reason, __u64 rtt_ns)
{
	__u8 kind = reason == WEIR_NOT_CLOSED ? WEIR_FLOW_OPENED : WEIR_FLOW_CLOSED;
	struct weir_flow_key key;

	flow_key_of_segment(&key, p->port->ifindex, &q->segment, direction);
	report_send(&key, p->flow, p->port, kind, reason, rtt_ns);
	return 0;
}

/*
 * The third segment of the handshake. SYN, SYN-ACK and this one passed here, so the time since the SYN is the RTT.
 * 0: the table is full, and the flow is gone.
 */
static __noinline int packet_establish(struct packet *p, const struct rule_query *q, enum weir_direction direction)
{
	struct weir_flow_key key;
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 rtt_ns = p->flow->flags & WEIR_SYN_REPEATED ? 0 : now_ns - p->flow->first_ns;

	flow_key_of_segment(&key, p->port->ifindex, &q->segment, direction);
	if (!flow_keep(&key, p->flow)) {
		__sync_fetch_and_add(&p->state->untracked, 1);
		return 0;
	}
	p->flow->last_ns = now_ns;
	flow_set(p->flow, direction == WEIR_INGRESS ? WEIR_ESTABLISHED | WEIR_HALF_SEGMENTS : WEIR_ESTABLISHED);
	if (p->flow->flags & WEIR_TO_COUNT)
		packet_count_flow(p->flow, p->port, p->state, q, direction);
	allowance_note_handshake(p->port, p->state, rtt_ns);
	packet_report(p, q, direction, WEIR_NOT_CLOSED, rtt_ns);
	return 1;
}

/* FIN or RST. 0: the host that receives it would not believe it, so that it changes nothing. */
static __noinline int packet_ends_flow(struct packet *p, const struct rule_query *q, enum weir_direction direction)
{
	if (q->segment.flags & TCP_RST ? sequence_accepts_rst(p->flow, &q->segment, p->tcp, direction)
				       : sequence_accepts_fin(p->flow, &q->segment, p->tcp, direction))
		return 1;
	__sync_fetch_and_add(&p->state->disbelieved, 1);
	return 0;
}

static __noinline int packet_note_end(struct packet *p, const struct rule_query *q, enum weir_direction direction)
{
	__u32 bit = q->segment.flags & TCP_RST ? WEIR_RST : direction == WEIR_INGRESS ? WEIR_FIN_IN : WEIR_FIN_OUT;
	bool already_closed = p->flow->flags & (WEIR_RST | WEIR_FIN_OUT);

	flow_set(p->flow, bit);
	if (bit != WEIR_FIN_IN)
		share_end_sender(p->flow, p->port, p->state, packet_sender(q, direction));
	if (bit == WEIR_RST && direction == WEIR_INGRESS)
		flow_end_count(p->flow, p->state);
	if (bit == WEIR_FIN_IN || already_closed || !(p->flow->flags & WEIR_ESTABLISHED))
		return 0;
	packet_report(p, q, direction, bit == WEIR_RST ? WEIR_BY_RST : WEIR_BY_FIN, 0);
	return 0;
}

/* The payload of one segment; a super-packet holds several. */
static __always_inline __u32 packet_segment_payload(const struct rule_query *q)
{
	return q->packets > 1 ? (q->segment.payload + q->packets - 1) / q->packets : q->segment.payload;
}

/* The number of bytes of the flow that this segment is the first to acknowledge. */
static __always_inline __u32 packet_note_numbers(struct packet *p, const struct rule_query *q,
						 enum weir_direction direction)
{
	if (p->disbelieved || q->segment.flags & TCP_RST || !flow_handshake_seen(p->flow))
		return 0;
	return sequence_note(p->flow, &q->segment, p->tcp, direction);
}

/*
 * An idle flow sends again. SDTCP ranks idle flows last, and this one may be the cause of the next alarm, so the report
 * does not wait for the sweep.
 */
static __noinline int packet_report_resumed(struct packet *p, const struct rule_query *q)
{
	struct weir_flow_key key;

	flow_key_of_segment(&key, p->port->ifindex, &q->segment, WEIR_EGRESS);
	sweep_report_living(&key, p->flow, p->port, q->now_ns);
	return 0;
}

/* Payload of a flow whose handshake is not complete makes no active sender. */
static __always_inline void packet_note_departure(struct packet *p, const struct rule_query *q)
{
	p->flow->out_bytes += q->frame_len;
	packet_note_numbers(p, q, WEIR_EGRESS);
	if (q->segment.payload && p->flow->flags & WEIR_ESTABLISHED &&
	    flow_note_payload(p->flow, p->port, p->state, q->segment.src, packet_segment_payload(q),
			      q->segment.flags & TCP_PSH, q->now_ns))
		packet_report_resumed(p, q);
}

/*
 * Finds the segment's flow and updates it. False for a SYN: the caller then returns early, which spares the verifier
 * from checking the rest of the program for each way through the SYN's code.
 */
static __always_inline bool packet_follow_flow(struct packet *p, const struct rule_query *q, struct cursor *c,
					       enum weir_direction direction)
{
	__u32 flags = q->segment.flags;

	if (flags & TCP_SYN) {
		p->disbelieved = !packet_find_opening(p, q, direction) || !packet_take_offer(p, q, c, direction);
		return false;
	}
	p->flow = flow_of_segment(p->port->ifindex, &q->segment, direction);
	if (!p->flow)
		return true;
	if (!(p->flow->flags & WEIR_ESTABLISHED) &&
	    sequence_proves_handshake(p->flow, &q->segment, p->tcp, direction)) {
		if (!packet_establish(p, q, direction))
			p->flow = NULL;
		if (!p->flow)
			return true;
	}
	if (flags & (TCP_FIN | TCP_RST) && !packet_ends_flow(p, q, direction)) {
		p->disbelieved = true;
		return true;
	}
	p->flow->last_ns = q->now_ns;
	if (direction == WEIR_EGRESS)
		packet_note_departure(p, q);
	if (flags & (TCP_FIN | TCP_RST))
		packet_note_end(p, q, direction);
	return true;
}

/*
 * What a lone flow may have in flight beyond its share: a part of the queue, in which no other flow waits. Without it
 * the link idles whenever a host is slow.
 */
static __always_inline __u32 lone_flow_bytes(const struct weir_port *port, __u64 flows)
{
	return flows == 1 ? port->buffer_bytes / LONE_FLOW_QUEUE_FRACTION : 0;
}

/* The flow is limited at its port: by a fair share, or as a punished flow. */
static __always_inline bool packet_is_limited(const struct packet *p)
{
	return p->port->bdp_bytes || p->flow->flags & WEIR_PUNISHED;
}

/*
 * Sets the least window of the flow, unless the operator has configured one: one segment or two. With two, the share is
 * rounded up to whole segments plus one, because receivers acknowledge every second segment.
 */
static __always_inline void packet_set_floor(struct packet *p, struct rule_query *q)
{
	bool fitted = p->flow->flags & WEIR_FITTED && !q->floor_bytes, one_segment;

	if (p->port->link_ns)
		q->headroom_bytes = allowance_dither(q->segment.src_port, q->segment.dst_port, p->state->turn, q->mss);
	one_segment = fitted && floor_is_one_segment(p->flow, p->port, p->state, q);

	flow_note_one_segment(p->flow, one_segment & packet_is_limited(p)); /* no branch, for the verifier */
	if (fitted) {
		q->floor_bytes = one_segment ? floor_of_one_segment(p->flow, p->port, p->state, q->mss) : 2 * q->mss;
		if (!p->port->link_ns && !one_segment)
			q->headroom_bytes = 2 * q->mss - 1 + lone_flow_bytes(p->port, q->divisor);
	} else if (flow_waits_for_delayed_ack(p->flow, p->port, q->allowance, q->divisor, q->mss, q->scale)) {
		flow_grant_remedy(p->flow, p->port, p->state, q->mss);
	}
	if (fitted && (floor_is_before_payload(p->flow, &q->segment, q->mss) || q->floor_bytes < q->mss))
		q->floor_bytes = q->ceiling_bytes = WEIR_SMALL_WINDOW;
	flow_review_remedy(p->flow, p->port, p->state, p->flow->max_payload);
	if (p->flow->member & WEIR_IN_TWO_SEGMENTS && q->floor_bytes < 2 * p->flow->max_payload)
		q->floor_bytes = 2 * p->flow->max_payload;
}

/*
 * The allowance of a port that corrects it, multiplied by the flow's weight. `weight`: as for share_divisor. An idle
 * flow has a full weight. A port without turns knows no idle ones.
 */
static __always_inline __u64 packet_weighted_allowance(const struct packet *p, const struct rule_query *q, __u32 weight)
{
	bool active = !p->port->turn_shift || share_is_in_round(p->flow, p->port, p->state, q->now_ns);
	bool is_small = active && share_is_small(p->flow, p->port, p->state, q->now_ns);
	__u32 used = share_used_weight(p->flow, p->port, p->state, weight, q->now_ns);
	__u64 bytes = active ? allowance_bytes(p->port, p->state) : allowance_of_idle_flows(p->port, p->state, q->mss);
	__u64 missing;

	if (is_small)
		return bytes * (used / WEIR_PUNISHED_FRACTION);
	missing = share_missing_weight(p->port, p->state, q->now_ns);
	if (missing)
		bytes = allowance_beside_punished(p->port, bytes, q->divisor, missing, q->mss);
	return bytes * (active ? used : WEIR_FULL_WEIGHT);
}

/*
 * The same, with the flow's own segment instead of a mean one. Windows of equal bytes would sum to more than the
 * allowance if segments differ: a window of one large segment exceeds its part, and a small one does not make up for
 * it. So each flow has a segment, and an equal part of what the segments of all leave.
 */
static __noinline __u64 packet_allowance(const struct packet *p, const struct rule_query *q, __u32 weight)
{
	__u64 bytes = packet_weighted_allowance(p, q, weight), means = flow_mean_segment(p->state) * q->divisor;

	if (!means)
		return bytes;
	bytes += q->mss * q->divisor;
	return bytes > means ? bytes - means : 0;
}

/* The segment has a signature (TCP-MD5, TCP-AO), although its handshake was not seen. */
static __noinline int packet_is_signed(struct packet *p, struct cursor *c)
{
	struct syn_in_hand *syn = syn_in_hand();

	if (!syn)
		return 0;
	parse_copy_options(c, p->tcp, &syn->options);
	parse_offer(&syn->options, &syn->own);
	return syn->options.is_signed;
}

/* The window field that an ACK leaves with; unchanged if no rule that acts lowers it. */
static __always_inline __u16 packet_clamped_window(struct packet *p, struct rule_query *q, struct cursor *c)
{
	__u16 window = p->tcp->window;
	__u32 listed, field, weight;
	struct weir_rule *exact;

	q->scale = p->port->assumed_scale;
	q->mss = DEFAULT_MSS;
	q->field = bpf_ntohs(window);
	q->floor_bytes = p->port->least_window_bytes;
	q->divisor = (__u64)(p->state->n_i ? p->state->n_i : 1) * share_full_weight(p->port);
	q->allowance = (__u64)allowance_bytes(p->port, p->state) * share_full_weight(p->port);
	if (p->flow && p->flow->flags & WEIR_SIGNED)
		return window;
	if (p->flow && flow_handshake_seen(p->flow)) {
		q->field = flow_translated_field(p->flow, q->field);
		q->scale = flow_window_scale(p->flow);
		q->mss = flow_mss(p->flow);
		weight = share_unpunished_weight(p->port, p->state, q->segment.dst);
		q->divisor = share_divisor(p->flow, p->port, p->state, weight, q->now_ns);
		if (p->port->link_ns) {
			q->allowance = packet_allowance(p, q, weight);
			if (!q->divisor)
				q->divisor = WEIR_FULL_WEIGHT;
		}
		packet_set_floor(p, q);
	} else if (q->scale > WEIR_MAX_SCALE || packet_is_signed(p, c)) {
		__sync_fetch_and_add(&p->state->unscaled, q->packets);
		return window;
	}
	exact = rule_find_exact(q, p->port, p->flow);
	listed = rule_by_flags(q, p->port, WEIR_INGRESS);
	if (p->state->reflex_level || listed == WEIR_ASK_LIST)
		field = rule_field_by_all(q, p->port, p->state, exact);
	else if (listed == WEIR_NO_RULE && !exact)
		return bpf_htons(q->field);
	else /* without a listed rule the index is outside the maps, so that no rule is found */
		field = rule_field_by_two(q, p->port, exact, listed - WEIR_FIRST_RULE);
	p->observed = field & RULE_OBSERVED;
	field &= WEIR_MAX_FIELD;
	if (field == q->field && p->flow && p->port->link_ns && p->port->bdp_bytes && flow_handshake_seen(p->flow))
		limit_note_offer(p->flow, p->state, field << (q->scale & SCALE_MASK), q->allowance, q->divisor);
	return bpf_htons(field);
}

/* A segment with ACK from the local host. */
static __always_inline void packet_note_arrival(struct packet *p, const struct rule_query *q)
{
	__u32 acknowledged = packet_note_numbers(p, q, WEIR_INGRESS);

	limit_note_ack(p->flow, p->state, p->tcp);
	if (q->segment.payload) {
		share_note_request(p->flow);
		flow_note_request(p->flow, p->port, p->state, q->now_ns);
	} else {
		flow_note_ack(p->flow, p->port, p->state, acknowledged, q->now_ns);
	}
}

/* The window field of this segment was lowered to `field`. Returns the one that it leaves with. */
static __always_inline __u32 packet_note_lowered(struct packet *p, const struct rule_query *q, const struct cursor *c,
						 __u32 field)
{
	__u32 sacked;

	if (!p->flow || !p->port->link_ns)
		return field;
	sacked = sack_bytes(p->flow, *c, p->tcp);
	field = sack_window_field(p->flow, field, q->field, sacked, q->scale);
	limit_note_window(p->flow, p->port, p->state, *c, p->tcp, field << (q->scale & SCALE_MASK));
	return field;
}

/* The part that both forms of the ingress share. True if the segment's window shall become *new_window. */
static __always_inline bool ingress_handle(struct packet *p, struct rule_query *q, struct cursor *c, __u16 *new_window)
{
	struct weir_ack_counts *counts = bpf_map_lookup_elem(&ack_counts, &p->port->slot);
	bool is_ack = (q->segment.flags & (TCP_SYN | TCP_ACK)) == TCP_ACK;

	p->tcp = parse_tcp_header(c, &q->segment);
	if (!p->tcp || !counts)
		return false;
	if (is_ack)
		counts->acks_seen += q->packets;
	q->now_ns = packet_time_ns(&q->segment, p->state);
	if (!packet_follow_flow(p, q, c, WEIR_INGRESS) || !is_ack)
		return false;
	if (p->flow)
		packet_note_arrival(p, q);
	*new_window = packet_clamped_window(p, q, c);
	if (p->flow && p->flow->flags & WEIR_RELEASED)
		*new_window = bpf_htons(release_field(p->flow, p->port, bpf_ntohs(*new_window), q->scale, q->mss));
	if (p->flow)
		flow_note_advertised(p->flow, (__u32)bpf_ntohs(*new_window) << (q->scale & SCALE_MASK), q->mss);
	counts->clamped += (p->observed | (bpf_ntohs(*new_window) < q->field)) * q->packets;
	if (bpf_ntohs(*new_window) < q->field) {
		*new_window = bpf_htons(packet_note_lowered(p, q, c, bpf_ntohs(*new_window)));
	}
	return *new_window != p->tcp->window;
}

static __always_inline void ingress_edit_syn(struct tcphdr *tcp, void *end, const struct header_edit *edit)
{
	__u16 *word = (void *)tcp + (edit->at & TCP_HEADER_MASK);

	if (!edit->at || (void *)(word + 1) > end)
		return;
	tcp->check = weir_checksum_update(tcp->check, *word, edit->after);
	*word = edit->after;
}

SEC("xdp")
int weir_ingress(struct xdp_md *ctx)
{
	struct cursor c = CURSOR_OF(ctx);
	struct rule_query q = {.frame_len = c.end - c.pos, .packets = 1};
	struct packet p = {};
	__u16 new_window;

	if (!port_find(ctx->ingress_ifindex, &p.port, &p.state))
		return XDP_PASS;
	if (!parse_segment(c, &q.segment, true, q.frame_len) && !parse_xdp(ctx, &q.segment, q.frame_len))
		return XDP_PASS;
	if (q.segment.flags & TCP_NOT_PLAIN && !checksum_holds_xdp(ctx, &q.segment)) {
		__sync_fetch_and_add(&p.state->disbelieved, 1);
		return XDP_PASS;
	}
	if (ingress_handle(&p, &q, &c, &new_window)) {
		p.tcp->check = weir_checksum_update(p.tcp->check, p.tcp->window, new_window);
		p.tcp->window = new_window;
	} else if (q.segment.flags & TCP_SYN) {
		for (int i = 0; i < SYN_EDITS; i++)
			ingress_edit_syn(p.tcp, c.end, &p.edits[i]);
	}
	return XDP_PASS;
}

/*
 * True if more of the headers is linear than before. Not inlined, because clang would compute packet addresses from
 * sums that the verifier rejects.
 */
static __noinline int skb_pull_headers(struct __sk_buff *skb)
{
	__u32 wanted = skb->len < HEADERS_LEN ? skb->len : HEADERS_LEN;

	return (void *)(long)skb->data + wanted > (void *)(long)skb->data_end && !bpf_skb_pull_data(skb, wanted);
}

/*
 * True if this is a TCP segment. Pulling data makes a private copy of a packet that TCP may have to retransmit. So it
 * is done only if the headers are not linear, and for the options of a SYN.
 */
static __always_inline bool skb_find_segment(struct __sk_buff *skb, struct segment *s)
{
	bool found = parse_segment(CURSOR_OF(skb), s, true, skb->len) || parse_skb(skb, s);

	if ((!found || s->flags & TCP_SYN) && skb_pull_headers(skb))
		found = parse_skb(skb, s);
	return found;
}

/* False for a segment that no host would believe. It changes nothing. */
static __always_inline bool skb_is_sound(struct __sk_buff *skb, struct segment *s, struct weir_port_state *state)
{
	if (!(s->flags & TCP_NOT_PLAIN) || checksum_holds_skb(skb, s))
		return true;
	__sync_fetch_and_add(&state->disbelieved, 1);
	return false;
}

/*
 * The number of packets that a segment becomes on the wire. From a virtual machine or a packet socket a super-packet
 * comes with the size of its segments alone.
 */
static __always_inline __u32 skb_packets(const struct __sk_buff *skb, const struct segment *s)
{
	__u32 size = skb->gso_size, packets;

	if (!size)
		return 1;
	packets = skb->gso_segs;
	if (!packets)
		packets = (s->payload + size - 1) / size;
	return packets ? packets : 1;
}

/* The form for the kernel datapath. The helpers leave a checksum that the NIC completes (CHECKSUM_PARTIAL) valid. */
SEC("tc")
int weir_ingress_tc(struct __sk_buff *skb)
{
	struct rule_query q = {};
	struct packet p = {};
	struct cursor c;
	__u16 new_window;

	q.frame_len = skb->len;
	if (!port_find(skb->ifindex, &p.port, &p.state) || !skb_find_segment(skb, &q.segment))
		return TC_ACT_UNSPEC;
	q.packets = skb_packets(skb, &q.segment);
	if (!skb_is_sound(skb, &q.segment, p.state))
		return TC_ACT_UNSPEC;
	c = CURSOR_OF(skb);
	if (ingress_handle(&p, &q, &c, &new_window))
		segment_replace_word(skb, &q.segment, offsetof(struct tcphdr, window), p.tcp->window, new_window);
	for (int i = 0; i < SYN_EDITS && q.segment.flags & TCP_SYN; i++)
		segment_edit(skb, &q.segment, &p.edits[i]);
	return TC_ACT_UNSPEC;
}

/*
 * The paper's integer (SCCP, section III.A): each matching packet counts, whatever the flow's state; never below 0. The
 * flow is followed for its window scale alone.
 */
static __always_inline void count_matching_packet(struct weir_port_state *state, __u32 count_op)
{
	if (count_op == WEIR_INCREMENT_NI) {
		__sync_fetch_and_add(&state->n_i, 1);
		__sync_fetch_and_add(&state->syns_counted, 1);
	} else if (count_op == WEIR_DECREMENT_NI && state->n_i) {
		__sync_fetch_and_add(&state->n_i, -1);
		__sync_fetch_and_add(&state->fins_counted, 1);
	}
}

static __noinline int count_segment(struct packet *p, const struct rule_query *q, const struct weir_settings *host)
{
	bool counts = host->simple_count || !p->disbelieved;
	__u32 count_op = counts ? rule_count_op(q, p->port) : WEIR_COUNT_NONE;

	if (host->simple_count) {
		count_matching_packet(p->state, count_op);
	} else if (!p->flow && count_op == WEIR_INCREMENT_NI && q->segment.flags & TCP_SYN) {
		offer_count_aside();
	} else if (p->flow && count_op == WEIR_INCREMENT_NI) {
		flow_set(p->flow, WEIR_TO_COUNT);
		if (p->flow->flags & WEIR_ESTABLISHED)
			packet_count_flow(p->flow, p->port, p->state, q, WEIR_EGRESS);
	} else if (p->flow && count_op == WEIR_DECREMENT_NI) {
		flow_end_count(p->flow, p->state);
	}
	return 0;
}

/* A segment leaves alone, for its flow has a window of one segment. Not inlined, for the stack. */
static __noinline int egress_push(struct __sk_buff *skb, const struct packet *p, const struct rule_query *q)
{
	bool asks = p->flow->member & WEIR_KEEP_ALIVES && keep_alive_is_safe(p->flow, &q->segment, p->tcp, q->packets);

	segment_push(skb, &q->segment, p->tcp);
	if (!asks)
		return TC_ACT_UNSPEC;
	flow_note_keep_alive(p->flow);
	__sync_fetch_and_add(&p->state->keep_alives, 1);
	return keep_alive_send(skb, &q->segment, flow_options_bytes(p->flow));
}

SEC("tc")
int weir_egress(struct __sk_buff *skb)
{
	struct weir_settings *host = host_settings();
	struct rule_query q = {};
	struct packet p = {};
	struct cursor c;
	__u64 gap_ns;
	bool is_tcp, is_syn, is_pushed;

	q.frame_len = skb->len;
	if (!host || keep_alive_is_within() || !port_find(skb->ifindex, &p.port, &p.state))
		return TC_ACT_UNSPEC;
	is_tcp = skb_find_segment(skb, &q.segment);
	if (!is_tcp)
		non_tcp_note_packet(p.port, p.state, q.frame_len);
	gap_ns = allowance_note_departure(p.port, p.state, q.frame_len);
	q.packets = skb_packets(skb, &q.segment);
	mark_packet(skb, p.port, p.state, q.packets);
	is_tcp = is_tcp && skb_is_sound(skb, &q.segment, p.state);
	c = CURSOR_OF(skb);
	p.tcp = is_tcp ? parse_tcp_header(&c, &q.segment) : NULL;
	if (!p.tcp)
		return TC_ACT_UNSPEC;
	q.now_ns = packet_time_ns(&q.segment, p.state);
	is_syn = !packet_follow_flow(&p, &q, &c, WEIR_EGRESS);
	if (rule_by_flags(&q, p.port, WEIR_EGRESS) != WEIR_NO_RULE)
		count_segment(&p, &q, host);
	if (is_syn || !p.flow || !q.segment.payload)
		return TC_ACT_UNSPEC;
	limit_note_payload(p.flow, p.port, p.state, c, p.tcp, q.segment.payload);
	allowance_note_payload(p.flow, p.port, p.state, gap_ns);
	if (p.flow->flags & WEIR_ASKED)
		flow_clear(p.flow, WEIR_ASKED);
	is_pushed = p.flow->flags & WEIR_ONE_SEGMENT && !(p.flow->flags & WEIR_SIGNED) &&
		    !(p.port->omits & WEIR_OMIT_PSH) && !port_observes_share(p.port);
	flow_note(p.flow, WEIR_PUSHED, is_pushed);
	return is_pushed ? egress_push(skb, &p, &q) : TC_ACT_UNSPEC;
}

SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(weir_enqueue, struct Qdisc *q)
{
	alarm_queue_changed(q);
	return 0;
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(weir_dequeue, struct Qdisc *q)
{
	alarm_queue_changed(q);
	return 0;
}

/*
 * The agent runs this with BPF_PROG_TEST_RUN on a packet that holds request and result. A syscall program could not use
 * a queue map before Linux 6.5.
 */
SEC("xdp")
int weir_sweep(struct xdp_md *ctx)
{
	struct weir_sweep *asked = (void *)(long)ctx->data, sweep;

	if ((void *)(asked + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	sweep = *asked;
	bpf_for_each_map_elem(&sweep_steps, sweep_next, &sweep, 0);
	*asked = sweep;
	return XDP_PASS;
}

/* The agent runs this as weir_sweep, when it has found the maps of another version. */
SEC("xdp")
int weir_move(struct xdp_md *ctx)
{
	struct weir_move *move = (void *)(long)ctx->data;
	struct weir_exact_key exact;
	struct weir_flow_key flow;
	int moved;

	if ((void *)(move + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	if (move->what == WEIR_MOVED_FLOW) {
		flow = move->flow;
		moved = move_flow(ctx, &flow, move->kept);
	} else if (move->what == WEIR_MOVED_EXACT || move->what == WEIR_MOVED_ARMED) {
		exact = move->exact;
		moved = move_rule(ctx, move->what, &exact);
	} else {
		moved = move_indexed(ctx, move->what, move->index);
	}
	move = (void *)(long)ctx->data;
	if ((void *)(move + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	move->moved = moved;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
