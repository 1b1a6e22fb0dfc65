/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue's alarm (SDTCP, section III.B). The packet that takes the queue past K raises it; while it
 * is up the queue is looked at again every RTT/2; three looks in a row at or below K end it.
 *
 * A kernel may leave out a call of a program (seen on Linux 6.18: the departures of a whole burst, in one of
 * some thousand). So what is known of a queue counts as over once nothing has come or gone for long, and looks
 * that do not come any more are started again.
 *
 * Reflex: the crossing also switches on the port's armed entry of rank 0, each further 3/2 RTT of congestion
 * the next, and BUF_NORMAL all of them off. An entry is on while its rank is below reflex_level, so that the
 * switching is one store.
 */
#ifndef WEIR_ALARM_H
#define WEIR_ALARM_H

#define QUIET_LOOKS 3
#define LOOKS_A_STEP 3 /* a look every RTT/2, a step every 3/2 RTT */
#define LOST_LOOKS 8   /* none for so long: the timer was lost */
#define STILL_NS 50000000ull /* a port that sends has sent a packet within this and so many full packets' time, */
#define STILL_PACKETS 4      /* for its capacity may not be told truly */
#define FRAME_BITS (1514 * 8ull)
#define CLOCK_MONOTONIC 1

static __always_inline void tell(__u32 ifindex, const struct weir_port_state *state, enum weir_event_kind kind)
{
	struct weir_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return;
	event->crossing_ns = bpf_ktime_get_ns();
	event->ifindex = ifindex;
	event->kind = kind;
	event->queue_pkts = state->queue_pkts;
	event->queue_bytes = state->queue_bytes;
	event->n_i = state->n_i;
	event->rank = state->reflex_level - 1;
	bpf_ringbuf_submit(event, 0);
}

/* The next armed entry goes on, where there is one left. */
static __always_inline void step_reflex(__u32 ifindex, const struct weir_port *port, struct weir_port_state *state)
{
	if (state->reflex_level >= port->armed)
		return;
	state->reflex_level++;
	tell(ifindex, state, WEIR_REFLEX_ON);
}

static __always_inline void end_alarm(__u32 ifindex, struct weir_port_state *state)
{
	if (state->reflex_level) {
		state->reflex_level = 0;
		tell(ifindex, state, WEIR_REFLEX_OFF);
	}
	state->alarm = WEIR_QUIET;
	__sync_fetch_and_add(&state->normals, 1);
	tell(ifindex, state, WEIR_BUF_NORMAL);
}

static __always_inline bool moves(const struct weir_port *port, const struct weir_port_state *state, __u64 now_ns)
{
	__u64 patience_ns = STILL_NS;

	if (port->capacity_bps)
		patience_ns += STILL_PACKETS * FRAME_BITS * NS_PER_S / port->capacity_bps;
	return now_ns - state->moved_ns < patience_ns;
}

static int look(void *map, __u32 *ifindex, struct alarm_timer *alarm)
{
	struct weir_port_state *state;
	struct weir_port *port;

	if (!find_port(*ifindex, &port, &state))
		return 0;
	state->looks++;
	state->looked_ns = bpf_ktime_get_ns();
	if (port->k_pkts && state->queue_pkts > port->k_pkts && moves(port, state, state->looked_ns)) {
		state->quiet_looks = 0;
		__sync_fetch_and_add(&state->alarms, 1);
		tell(*ifindex, state, WEIR_BUF_ALARM);
		if (state->looks % LOOKS_A_STEP == 0)
			step_reflex(*ifindex, port, state);
	} else if (!port->k_pkts || ++state->quiet_looks >= QUIET_LOOKS) {
		end_alarm(*ifindex, state);
		return 0;
	}
	bpf_timer_start(&alarm->timer, port->look_ns, 0);
	return 0;
}

static __always_inline void start_looks(struct alarm_timer *alarm, const struct weir_port *port,
					struct weir_port_state *state, __u64 now_ns)
{
	state->looked_ns = now_ns;
	bpf_timer_init(&alarm->timer, &alarm_timers, CLOCK_MONOTONIC); /* -EBUSY once it is there */
	bpf_timer_set_callback(&alarm->timer, look);
	bpf_timer_start(&alarm->timer, port->look_ns, 0);
}

static __always_inline void raise_alarm(__u32 ifindex, struct alarm_timer *alarm, struct weir_port *port,
					struct weir_port_state *state, __u64 now_ns)
{
	if (__sync_val_compare_and_swap(&state->alarm, WEIR_QUIET, WEIR_CONGESTED) != WEIR_QUIET)
		return;
	state->quiet_looks = state->looks = 0;
	state->reflex_epoch++;
	step_reflex(ifindex, port, state);
	__sync_fetch_and_add(&state->alarms, 1);
	tell(ifindex, state, WEIR_BUF_ALARM);
	start_looks(alarm, port, state, now_ns);
}

static __always_inline void watch_queue(__u32 ifindex, struct weir_port *port, struct weir_port_state *state)
{
	bool over = port->k_pkts && state->queue_pkts > port->k_pkts;
	struct alarm_timer *alarm;
	__u64 now_ns;

	if (!over && state->alarm == WEIR_QUIET)
		return;
	now_ns = bpf_ktime_get_ns();
	state->moved_ns = now_ns;
	if (state->alarm != WEIR_QUIET && now_ns - state->looked_ns <= LOST_LOOKS * port->look_ns)
		return;
	alarm = bpf_map_lookup_elem(&alarm_timers, &ifindex);
	if (!alarm)
		return;
	if (state->alarm == WEIR_QUIET)
		raise_alarm(ifindex, alarm, port, state, now_ns);
	else
		start_looks(alarm, port, state, now_ns);
}

/* After each packet that the port's root qdisc takes or gives. Its qlen counts the leaves too. */
static __always_inline void queue_changed(struct Qdisc *q)
{
	struct net_device *dev = q->dev_queue->dev;
	__u32 ifindex = dev->ifindex;
	struct weir_port_state *state;
	struct weir_port *port;

	if (!find_port(ifindex, &port, &state) || port->netns != dev->nd_net.net->ns.inum)
		return;
	state->queue_pkts = q->q.qlen;
	state->queue_bytes = q->qstats.backlog;
	if (state->queue_pkts > state->queue_max_pkts)
		state->queue_max_pkts = state->queue_pkts;
	if (state->queue_bytes > state->queue_max_bytes)
		state->queue_max_bytes = state->queue_bytes;
	watch_queue(ifindex, port, state);
}

#endif
