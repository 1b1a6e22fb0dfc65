// SPDX-License-Identifier: GPL-2.0-only
/*
 * The data plane of the weir switch. On every port of the bridge: weir_ingress lowers the windows of
 * ACKs before OVS sees them, weir_egress counts the flows that leave; on the qdiscs' tracepoints, the
 * queue's alarm. See README.md for which file does what.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "weir_window.h"
#include "weir_structs.h"
#include "weir_maps.h"
#include "weir_parse.h"
#include "weir_flow.h"
#include "weir_rules.h"
#include "weir_alarm.h"

#define TC_ACT_UNSPEC (-1)
#define DEFAULT_MSS 1448 /* of a flow whose handshake was not seen, for an assumed scale: Ethernet, timestamps */

/* One segment at one port, on its way through a program. */
struct passage {
	struct tcphdr *tcp;
	struct weir_port *port;
	struct weir_port_state *state;
	struct weir_flow *flow; /* NULL: no handshake was seen */
};

/* Find the segment's flow, and take in what the segment says of it. */
static __always_inline void follow_flow(struct passage *p, const struct question *q, struct cursor *c,
					enum weir_direction direction)
{
	__u32 flags = q->segment.flags;
	struct weir_flow_key key;

	key_of(&key, q->ifindex, &q->segment, direction);
	if (flags & TCP_SYN) {
		struct weir_half offer = {};
		struct tcp_options options;

		p->flow = flow_of_syn(&key, q->now_ns);
		if (!p->flow) {
			__sync_fetch_and_add(&p->state->untracked, 1);
			return;
		}
		copy_options(c, p->tcp, &options);
		read_offer(&options, &offer);
		offer.isn = bpf_ntohl(p->tcp->seq);
		learn_offer(p->flow, &offer, direction, q->now_ns);
	} else {
		p->flow = bpf_map_lookup_elem(&flows, &key);
		if (!p->flow)
			return;
	}
	if (flags & TCP_FIN)
		p->flow->seen |= direction == WEIR_INGRESS ? WEIR_FIN_IN : WEIR_FIN_OUT;
	if (flags & TCP_RST)
		p->flow->seen |= WEIR_RST;
	p->flow->last_ns = q->now_ns;
	if (direction == WEIR_EGRESS)
		p->flow->out_bytes += q->frame_len;
}

/* Whether the segment belongs to one of our ports; then the passage and the question are set up. */
static __always_inline bool enter(struct passage *p, struct question *q, struct cursor *c)
{
	p->tcp = parse_segment(c, &q->segment);
	if (!p->tcp)
		return false;
	p->port = bpf_map_lookup_elem(&ports, &q->ifindex);
	p->state = bpf_map_lookup_elem(&port_states, &q->ifindex);
	return p->port && p->state;
}

/* Lower the ACK's window to what its rules ask for. */
static __always_inline void clamp(struct passage *p, struct question *q)
{
	__u16 before = p->tcp->window;
	__u16 after;

	q->scale = p->port->assumed_scale;
	q->mss = DEFAULT_MSS;
	if (p->flow && handshake_seen(p->flow)) {
		q->scale = scale_of(p->flow);
		q->mss = mss_of(p->flow);
	} else if (q->scale > WEIR_MAX_SCALE) {
		__sync_fetch_and_add(&p->state->unscaled, 1);
		return;
	}
	q->field = bpf_ntohs(before);
	after = bpf_htons(field_by_rules(q));
	if (after == before)
		return;
	p->tcp->window = after;
	p->tcp->check = weir_checksum_update(p->tcp->check, before, after);
	__sync_fetch_and_add(&p->state->clamped, 1);
}

SEC("xdp")
int weir_ingress(struct xdp_md *ctx)
{
	struct cursor c = {.pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end};
	struct question q = {.ifindex = ctx->ingress_ifindex,
			     .frame_len = c.end - c.pos,
			     .now_ns = bpf_ktime_get_ns()};
	struct passage p = {};

	if (!enter(&p, &q, &c))
		return XDP_PASS;
	follow_flow(&p, &q, &c, WEIR_INGRESS);
	if (p.flow && q.segment.flags & TCP_RST)
		count_out(p.flow, p.state);
	if (q.segment.flags & TCP_SYN || !(q.segment.flags & TCP_ACK))
		return XDP_PASS;
	__sync_fetch_and_add(&p.state->acks_seen, 1);
	clamp(&p, &q);
	return XDP_PASS;
}

SEC("tc")
int weir_egress(struct __sk_buff *skb)
{
	struct cursor c = {.pos = (void *)(long)skb->data, .end = (void *)(long)skb->data_end};
	struct question q = {.ifindex = skb->ifindex, .frame_len = skb->len, .now_ns = bpf_ktime_get_ns()};
	struct passage p = {};
	__u32 count_op;

	if (!enter(&p, &q, &c))
		return TC_ACT_UNSPEC;
	follow_flow(&p, &q, &c, WEIR_EGRESS);
	if (!p.flow)
		return TC_ACT_UNSPEC;
	count_op = count_by_rules(&q);
	if (count_op == WEIR_INCREMENT_NI)
		count_in(p.flow, p.state);
	else if (count_op == WEIR_DECREMENT_NI)
		count_out(p.flow, p.state);
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

/* Run by the agent now and then: ended flows, and those silent for too long (ghosts), leave the table. */
SEC("syscall")
int weir_sweep(struct weir_sweep *ctx)
{
	struct weir_sweep sweep = *ctx;

	bpf_for_each_map_elem(&flows, sweep_flow, &sweep, 0);
	ctx->removed = sweep.removed;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
