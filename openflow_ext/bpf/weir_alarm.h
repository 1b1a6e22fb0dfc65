/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue's alarm (SDTCP, section III.B). The packet that takes the queue past K raises it; while it
 * is up the queue is looked at again every RTT/2; three looks in a row at or below K end it.
 */
#ifndef WEIR_ALARM_H
#define WEIR_ALARM_H

#define QUIET_LOOKS 3
#define CLOCK_MONOTONIC 1

static __always_inline void tell(__u32 ifindex, const struct weir_port_state *state, bool normal)
{
	struct weir_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return;
	event->crossing_ns = bpf_ktime_get_ns();
	event->ifindex = ifindex;
	event->normal = normal;
	event->queue_pkts = state->queue_pkts;
	event->queue_bytes = state->queue_bytes;
	event->n_i = state->n_i;
	event->pad = 0;
	bpf_ringbuf_submit(event, 0);
}

static int look(void *map, __u32 *ifindex, struct alarm_timer *alarm)
{
	struct weir_port_state *state = bpf_map_lookup_elem(&port_states, ifindex);
	struct weir_port *port = bpf_map_lookup_elem(&ports, ifindex);

	if (!state || !port)
		return 0;
	if (port->k_pkts && state->queue_pkts > port->k_pkts) {
		state->quiet_looks = 0;
		__sync_fetch_and_add(&state->alarms, 1);
		tell(*ifindex, state, false);
	} else if (!port->k_pkts || ++state->quiet_looks >= QUIET_LOOKS) {
		state->alarm = WEIR_QUIET;
		__sync_fetch_and_add(&state->normals, 1);
		tell(*ifindex, state, true);
		return 0;
	}
	bpf_timer_start(&alarm->timer, port->look_ns, 0);
	return 0;
}

static __always_inline void raise_alarm(__u32 ifindex, struct weir_port *port, struct weir_port_state *state)
{
	struct alarm_timer *alarm = bpf_map_lookup_elem(&alarm_timers, &ifindex);

	if (!alarm || __sync_val_compare_and_swap(&state->alarm, WEIR_QUIET, WEIR_CONGESTED) != WEIR_QUIET)
		return;
	state->quiet_looks = 0;
	__sync_fetch_and_add(&state->alarms, 1);
	tell(ifindex, state, false);
	bpf_timer_init(&alarm->timer, &alarm_timers, CLOCK_MONOTONIC); /* -EBUSY once it is there */
	bpf_timer_set_callback(&alarm->timer, look);
	bpf_timer_start(&alarm->timer, port->look_ns, 0);
}

/* After each packet that the port's root qdisc takes or gives. Its qlen counts the leaves too. */
static __always_inline void queue_changed(struct Qdisc *q)
{
	struct net_device *dev = q->dev_queue->dev;
	__u32 ifindex = dev->ifindex;
	struct weir_port *port = bpf_map_lookup_elem(&ports, &ifindex);
	struct weir_port_state *state;

	if (!port || port->netns != dev->nd_net.net->ns.inum)
		return;
	state = bpf_map_lookup_elem(&port_states, &ifindex);
	if (!state)
		return;
	state->queue_pkts = q->q.qlen;
	state->queue_bytes = q->qstats.backlog;
	if (state->queue_pkts > state->queue_max_pkts)
		state->queue_max_pkts = state->queue_pkts;
	if (state->queue_bytes > state->queue_max_bytes)
		state->queue_max_bytes = state->queue_bytes;
	if (port->k_pkts && state->queue_pkts > port->k_pkts && state->alarm == WEIR_QUIET)
		raise_alarm(ifindex, port, state);
}

#endif
