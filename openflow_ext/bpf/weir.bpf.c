// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data plane of the weir switch. On every port of the bridge: weir_ingress (XDP) or weir_ingress_tc lowers
 * the windows of ACKs before OVS sees them, weir_egress counts the flows that leave and marks; on the qdiscs'
 * tracepoints, the queue's alarm and reflex. See README.md for which file does what.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "weir_window.h"
#include "weir_structs.h"
#include "weir_maps.h"
#include "weir_port.h"
#include "weir_parse.h"
#include "weir_tracked.h"
#include "weir_share.h"
#include "weir_flow.h"
#include "weir_mss.h"
#include "weir_report.h"
#include "weir_sweep.h"
#include "weir_rules.h"
#include "weir_mark.h"
#include "weir_alarm.h"

#define TC_ACT_UNSPEC (-1)
#define DEFAULT_MSS 1448 /* of a flow whose handshake was not seen, for an assumed scale: Ethernet, timestamps */
#define TCP_HEADER_MASK 0x3e /* at most 60 bytes, words of two */
#define HEADERS_LEN 256  /* all headers of a segment, with room for options and extensions */

/* One segment at one port, on its way through a program. */
struct passage {
	struct tcphdr *tcp;
	struct weir_port *port;
	struct weir_port_state *state;
	struct weir_flow *flow; /* NULL: no handshake was seen */
	struct edit edits[2];   /* of a SYN */
};

/* Exact for what opens or ends a connection, else as of the last clock tick, which costs a fraction. */
static __always_inline __u64 time_of(const struct segment *s, struct weir_port_state *state)
{
	return s->flags & (TCP_SYN | TCP_FIN | TCP_RST) ? bpf_ktime_get_ns() : tick_ns(state);
}

/* On a port under SCCP a host offers what fits there (weir_mss.h); a repeated SYN is told the same. */
static __always_inline void fit(struct passage *p, const struct question *q, const struct tcp_options *options,
				struct weir_half *offer)
{
	struct weir_settings *host = host_settings();
	struct weir_half own = *offer;
	__u32 isn = bpf_ntohl(p->tcp->seq);
	bool fitted = p->flow->seen & WEIR_FITTED;

	if (p->flow->seen & WEIR_SYN_IN && p->flow->local_isn == isn)
		*offer = p->flow->local;
	else
		fitted = host && !host->simple_count && fit_offer(p->port, p->state, options, offer, q->now_ns);
	edits_of(p->edits, options, &own, offer);
	learn_offer(p->flow, offer, isn, WEIR_INGRESS, q->now_ns);
	p->flow->finer = own.scale - offer->scale;
	if (fitted)
		p->flow->seen |= WEIR_FITTED;
}

/*
 * SYN and SYN-ACK: the flow's entry, made where there is none, and what this side offers. 0: it cannot be tracked.
 * (A result that nobody asks for is left to chance by clang, and a pointer to the stack is refused.)
 */
static __noinline int take_offer(struct passage *p, const struct question *q, struct cursor *c,
				 enum weir_direction direction)
{
	struct tcp_options options;
	struct weir_half offer = {};

	p->flow = flow_of_syn(q->ifindex, &q->segment, direction, q->now_ns);
	if (!p->flow) {
		__sync_fetch_and_add(&p->state->untracked, 1);
		return 0;
	}
	copy_options(c, p->tcp, &options);
	read_offer(&options, &offer);
	if (direction == WEIR_INGRESS)
		fit(p, q, &options, &offer);
	else
		learn_offer(p->flow, &offer, bpf_ntohl(p->tcp->seq), direction, q->now_ns);
	return 1;
}

/* The handshake's third segment: SYN, SYN-ACK and this one passed here, so its age is the whole RTT. */
static __noinline int establish(struct passage *p, const struct question *q, enum weir_direction direction)
{
	struct weir_flow_key key;
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 rtt_ns = p->flow->seen & WEIR_SYN_AGAIN ? 0 : now_ns - p->flow->first_ns;

	p->flow->last_ns = now_ns;
	p->flow->seen |= direction == WEIR_INGRESS ? WEIR_ESTABLISHED | WEIR_HALVES : WEIR_ESTABLISHED;
	key_of(&key, q->ifindex, &q->segment, direction);
	report(&key, p->flow, p->port, WEIR_FLOW_OPENED, WEIR_NOT_CLOSED, rtt_ns);
	return 0;
}

static __noinline int note_end(struct passage *p, const struct question *q, enum weir_direction direction)
{
	struct weir_flow_key key;
	__u32 bit = q->segment.flags & TCP_RST ? WEIR_RST : direction == WEIR_INGRESS ? WEIR_FIN_IN : WEIR_FIN_OUT;
	bool over = p->flow->seen & (WEIR_RST | WEIR_FIN_OUT);

	p->flow->seen |= bit;
	if (bit == WEIR_RST && direction == WEIR_INGRESS)
		end_count(p->flow, p->state);
	if (bit == WEIR_FIN_IN || over || !(p->flow->seen & WEIR_ESTABLISHED))
		return 0;
	key_of(&key, q->ifindex, &q->segment, direction);
	report(&key, p->flow, p->port, WEIR_FLOW_CLOSED, bit == WEIR_RST ? WEIR_BY_RST : WEIR_BY_FIN, 0);
	return 0;
}

/* The payload of one segment: a super-packet holds several. */
static __always_inline __u32 segment_of(const struct question *q)
{
	return q->packets > 1 ? (q->segment.payload + q->packets - 1) / q->packets : q->segment.payload;
}

/*
 * Find the segment's flow, and take in what the segment says of it. False: a SYN, for which the verifier need not go
 * on: of what else is asked it would see each way once more.
 */
static __always_inline bool follow_flow(struct passage *p, const struct question *q, struct cursor *c,
					enum weir_direction direction)
{
	__u32 flags = q->segment.flags;
	bool syn = flags & TCP_SYN;

	if (!syn)
		p->flow = flow_of(q->ifindex, &q->segment, direction);
	else if (!take_offer(p, q, c, direction))
		return false;
	if (!p->flow)
		return !syn;
	p->flow->last_ns = q->now_ns;
	if (direction == WEIR_EGRESS)
		p->flow->out_bytes += q->frame_len;
	if (!syn && !(p->flow->seen & WEIR_ESTABLISHED) && handshake_seen(p->flow))
		establish(p, q, direction);
	if (direction == WEIR_EGRESS && q->segment.payload)
		note_payload(p->flow, p->port, p->state, segment_of(q), q->now_ns);
	if (flags & (TCP_FIN | TCP_RST))
		note_end(p, q, direction);
	return !syn;
}

/*
 * The floor of the flow's windows, where the operator sets none: one segment or two. With two its share is rounded up
 * to whole ones and one more, for receivers acknowledge every second: a lone flow's five leave a link that holds 5.3.
 * One alone may keep a sixteenth of the queue besides, which nobody else waits in: else the link idles whenever its
 * hosts do.
 */
static __always_inline void set_least(struct passage *p, struct question *q)
{
	bool fitted = p->flow->seen & WEIR_FITTED && !q->least_bytes;
	bool single = fitted && one_at_a_time(p->flow, p->port, q->flows, q->mss);

	note_single(p->flow, single);
	if (fitted) {
		q->least_bytes = single ? least_of_single(p->flow, p->port, p->state, q->mss) : 2 * q->mss;
		q->ahead_bytes = single ? 0 : 2 * q->mss - 1 + (q->flows == 1 ? p->port->buffer_bytes / 16 : 0);
	} else if (will_wait(p->flow, p->port, q->flows, q->mss, q->scale)) {
		pair(p->flow, p->port, p->state, q->mss);
	}
	if (fitted && (opens(p->flow, &q->segment, q->mss) || q->least_bytes < q->mss))
		q->least_bytes = q->most_bytes = WEIR_SMALL_WINDOW;
	if (p->flow->paired && q->least_bytes < 2 * p->flow->segment)
		q->least_bytes = 2 * p->flow->segment;
}

/* The window field with which an ACK goes on; its own where nothing asks for less. */
static __always_inline __u16 lowered(struct passage *p, struct question *q)
{
	__u16 before = p->tcp->window;
	struct weir_rule *exact;
	__u32 listed;

	q->scale = p->port->assumed_scale;
	q->mss = DEFAULT_MSS;
	q->field = bpf_ntohs(before);
	q->least_bytes = p->port->least_window_bytes;
	q->flows = p->state->n_i;
	if (p->flow && handshake_seen(p->flow)) {
		q->field = told_field(p->flow, q->field);
		q->scale = scale_of(p->flow);
		q->mss = mss_of(p->flow);
		q->flows = divisor(p->flow, p->port, p->state, q->mss, q->now_ns);
		set_least(p, q);
	} else if (q->scale > WEIR_MAX_SCALE) {
		__sync_fetch_and_add(&p->state->unscaled, 1);
		return before;
	}
	exact = exact_of(q, p->port, p->flow);
	listed = by_flags(q, p->port, WEIR_INGRESS);
	if (p->state->reflex_level || listed == WEIR_ASK_LIST)
		return bpf_htons(field_by_rules(q, p->port, p->state, exact));
	if (listed == WEIR_NO_RULE && !exact)
		return bpf_htons(q->field);
	return bpf_htons(field_by_two(q, p->port, exact, listed - WEIR_FIRST_RULE)); /* beyond the maps for none */
}

/* What both forms of the ingress do with a segment: true where its window shall become *after. */
static __always_inline bool ingress(struct passage *p, struct question *q, struct cursor *c, __u16 *after)
{
	struct weir_ack_counts *counts = bpf_map_lookup_elem(&ack_counts, &p->port->place);
	bool is_ack = (q->segment.flags & (TCP_SYN | TCP_ACK)) == TCP_ACK;

	p->tcp = tcp_header(c, &q->segment);
	if (!p->tcp || !counts)
		return false;
	if (is_ack)
		counts->seen += q->packets;
	q->now_ns = time_of(&q->segment, p->state);
	if (!follow_flow(p, q, c, WEIR_INGRESS) || !is_ack)
		return false;
	if (p->flow && !q->segment.payload)
		note_ack(p->flow, p->port, p->state, bpf_ntohl(p->tcp->ack_seq), q->now_ns);
	*after = lowered(p, q);
	if (p->flow)
		note_told(p->flow, (__u32)bpf_ntohs(*after) << (q->scale & 15), q->mss);
	if (bpf_ntohs(*after) < q->field)
		counts->clamped++;
	return *after != p->tcp->window;
}

static __always_inline void edit_syn(struct tcphdr *tcp, void *end, const struct edit *edit)
{
	__u16 *word = (void *)tcp + (edit->at & TCP_HEADER_MASK);

	if (!edit->at || (void *)(word + 1) > end)
		return;
	tcp->check = weir_checksum_update(tcp->check, edit->before, edit->after);
	*word = edit->after;
}

SEC("xdp")
int weir_ingress(struct xdp_md *ctx)
{
	struct cursor c = CURSOR_OF(ctx);
	struct question q = {.ifindex = ctx->ingress_ifindex, .frame_len = c.end - c.pos, .packets = 1};
	struct passage p = {};
	__u16 after;

	if (!find_port(q.ifindex, &p.port, &p.state))
		return XDP_PASS;
	if (!parse_segment(c, &q.segment, true) && !parse_xdp(ctx, &q.segment))
		return XDP_PASS;
	if (ingress(&p, &q, &c, &after)) {
		p.tcp->check = weir_checksum_update(p.tcp->check, p.tcp->window, after);
		p.tcp->window = after;
	} else if (q.segment.flags & TCP_SYN) {
		edit_syn(p.tcp, c.end, &p.edits[0]);
		edit_syn(p.tcp, c.end, &p.edits[1]);
	}
	return XDP_PASS;
}

/*
 * True: more of the headers is linear than was. Not inlined: clang would address the context by sums that the
 * verifier refuses.
 */
static __noinline int pull_headers(struct __sk_buff *skb)
{
	__u32 wanted = skb->len < HEADERS_LEN ? skb->len : HEADERS_LEN;

	return (void *)(long)skb->data + wanted > (void *)(long)skb->data_end && !bpf_skb_pull_data(skb, wanted);
}

/*
 * True: a TCP segment. Pulling copies the headers of a packet that TCP may have to send again, so only what is
 * needed is asked for: the fixed headers, and the options of a SYN.
 */
static __always_inline bool find_segment(struct __sk_buff *skb, struct segment *s)
{
	bool found = parse_segment(CURSOR_OF(skb), s, true) || parse_skb(skb, s);

	if ((!found || s->flags & TCP_SYN) && pull_headers(skb))
		found = parse_skb(skb, s);
	return found;
}

static __always_inline void question_of(struct question *q, const struct __sk_buff *skb)
{
	q->ifindex = skb->ifindex;
	q->frame_len = skb->len;
	q->packets = skb->gso_segs ? skb->gso_segs : 1;
}

/* The kernel datapath's form. The helpers know a checksum that is still to be filled in, and leave it so. */
SEC("tc")
int weir_ingress_tc(struct __sk_buff *skb)
{
	struct question q = {};
	struct passage p = {};
	struct cursor c;
	__u16 after;

	question_of(&q, skb);
	if (!find_port(q.ifindex, &p.port, &p.state) || !find_segment(skb, &q.segment))
		return TC_ACT_UNSPEC;
	c = CURSOR_OF(skb);
	if (ingress(&p, &q, &c, &after))
		replace_word(skb, &q.segment, offsetof(struct tcphdr, window), p.tcp->window, after);
	for (int i = 0; i < 2; i++)
		if (p.edits[i].at)
			replace_word(skb, &q.segment, p.edits[i].at, p.edits[i].before, p.edits[i].after);
	return TC_ACT_UNSPEC;
}

/* The paper's integer (SCCP, section III.A): no flow is known, each matching packet counts; never below 0. */
static __always_inline void count_simply(struct weir_port_state *state, __u32 count_op)
{
	if (count_op == WEIR_INCREMENT_NI) {
		__sync_fetch_and_add(&state->n_i, 1);
		__sync_fetch_and_add(&state->syns_counted, 1);
	} else if (count_op == WEIR_DECREMENT_NI && state->n_i) {
		__sync_fetch_and_add(&state->n_i, -1);
		__sync_fetch_and_add(&state->fins_counted, 1);
	}
}

static __always_inline void count(struct passage *p, const struct question *q, const struct weir_settings *host)
{
	__u32 count_op = count_by_rules(q, p->port);

	if (host->simple_count) {
		count_simply(p->state, count_op);
	} else if (p->flow && count_op == WEIR_INCREMENT_NI) {
		count_in(p->flow, p->port, p->state, q->now_ns);
		note_crowd(p->state, q->now_ns);
	} else if (p->flow && count_op == WEIR_DECREMENT_NI) {
		end_count(p->flow, p->state);
	}
}

SEC("tc")
int weir_egress(struct __sk_buff *skb)
{
	struct weir_settings *host = host_settings();
	struct question q = {};
	struct passage p = {};
	struct cursor c;
	bool is_tcp;

	question_of(&q, skb);
	if (!host || !find_port(q.ifindex, &p.port, &p.state))
		return TC_ACT_UNSPEC;
	is_tcp = find_segment(skb, &q.segment);
	mark(skb, p.port, p.state);
	c = CURSOR_OF(skb);
	p.tcp = is_tcp ? tcp_header(&c, &q.segment) : NULL;
	if (!p.tcp)
		return TC_ACT_UNSPEC;
	q.now_ns = time_of(&q.segment, p.state);
	if (!host->simple_count)
		follow_flow(&p, &q, &c, WEIR_EGRESS);
	if (by_flags(&q, p.port, WEIR_EGRESS) != WEIR_NO_RULE)
		count(&p, &q, host);
	if (p.flow && q.segment.payload && p.flow->seen & WEIR_SINGLE)
		push(skb, &q.segment, p.tcp);
	return TC_ACT_UNSPEC;
}

SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(weir_enqueue, struct Qdisc *q)
{
	queue_changed(q);
	return 0;
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(weir_dequeue, struct Qdisc *q)
{
	queue_changed(q);
	return 0;
}

/* Run by the agent on a packet that is question and answer: before Linux 6.5 a syscall program may use no queue. */
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

char LICENSE[] SEC("license") = "GPL";
