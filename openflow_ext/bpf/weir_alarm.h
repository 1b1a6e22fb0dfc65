/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue's alarm (SDTCP, section III.B). The packet that takes the queue past K raises it. During an alarm the queue
 * is checked every RTT/2; three consecutive checks at or below K end it.
 *
 * Each check above K repeats the alarm, as in the paper, while this helps: the controller answers by a new rule, or the
 * queue grows. A queue that stays above K because windows cannot be smaller would send alarms for ever. So after some
 * repetitions without either, the alarm is repeated at a fixed and slow pace. At the same pace a queue around K raises
 * it anew if only punished flows send: the port itself divides its allowance among them, so that the controller has
 * nothing to decide.
 *
 * Some kernels skip calls of programs (docs/decisions/0030-missed-program-calls.md), so that the known length of a
 * queue may be wrong. So the alarm ends if nothing was enqueued or dequeued for long, and checks that have stopped
 * are started again.
 *
 * Reflex: the crossing also activates the port's armed entry of rank 0, each further 3/2 RTT of congestion the next
 * one, and the end of the alarm (BUF_NORMAL) deactivates all. An entry is active while its rank is below reflex_level,
 * so that one store switches it.
 */
#ifndef WEIR_ALARM_H
#define WEIR_ALARM_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_allowance.h"
#include "weir_consts.h"
#include "weir_maps.h"
#include "weir_non_tcp.h"
#include "weir_port.h"
#include "weir_share.h"
#include "weir_structs.h"
#include "weir_window.h"

#define CLOCK_MONOTONIC 1

static __always_inline void alarm_send_event(__u32 ifindex, const struct weir_port *port,
					     const struct weir_port_state *state, enum weir_event_kind kind)
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
	event->non_tcp_percent = non_tcp_percent(port, state, event->crossing_ns);
	event->allowance_bytes = port->link_ns ? allowance_bytes(port, state) : 0;
	bpf_ringbuf_submit(event, 0);
}

/* Activates the next armed entry, if there is one and TCP fills the queue. */
static __always_inline void alarm_step_reflex(__u32 ifindex, const struct weir_port *port,
					      struct weir_port_state *state)
{
	if (state->reflex_level >= port->armed_entries ||
	    non_tcp_percent(port, state, bpf_ktime_get_ns()) >= NON_TCP_PERCENT)
		return;
	state->reflex_level++;
	alarm_send_event(ifindex, port, state, WEIR_REFLEX_ON);
}

static __always_inline void alarm_end(__u32 ifindex, const struct weir_port *port, struct weir_port_state *state)
{
	if (state->reflex_level) {
		state->reflex_level = 0;
		alarm_send_event(ifindex, port, state, WEIR_REFLEX_OFF);
	}
	state->alarm = WEIR_QUIET;
	__sync_fetch_and_add(&state->normals, 1);
	alarm_send_event(ifindex, port, state, WEIR_BUF_NORMAL);
}

static __always_inline bool alarm_queue_is_moving(const struct weir_port *port, const struct weir_port_state *state,
						  __u64 now_ns)
{
	__u64 still_ns = STILL_QUEUE_NS;

	if (port->capacity_bps)
		still_ns += weir_drain_ns(STILL_QUEUE_PACKETS * FRAME_BYTES, port->capacity_bps);
	return port_elapsed_ns(now_ns, state->changed_ns) < still_ns;
}

/* The agent has added a rule since the last alarm, which may be the controller's answer. */
static __always_inline void alarm_note_answer(struct weir_port_state *state)
{
	__u32 zero = 0, *held = bpf_map_lookup_elem(&rules_epoch, &zero), epoch = held ? *held : 0;

	if (epoch == state->alarm_epoch)
		return;
	state->alarm_epoch = epoch;
	state->alarm_repeats = 0;
}

/* A check has found the queue above K. True if the alarm shall be repeated. */
static __always_inline bool alarm_is_news(struct weir_port_state *state)
{
	alarm_note_answer(state);
	return state->alarm_repeats < ALARMS_AT_CHECKS || state->checked_ns - state->alarmed_ns >= FOLDED_ALARM_NS ||
	       state->queue_pkts > state->alarmed_pkts + state->alarmed_pkts / RISEN_QUEUE_FRACTION;
}

static __always_inline void alarm_send(__u32 ifindex, const struct weir_port *port, struct weir_port_state *state,
				       __u64 now_ns)
{
	state->alarmed_ns = now_ns;
	state->alarm_repeats++;
	state->alarmed_pkts = state->queue_pkts;
	__sync_fetch_and_add(&state->alarms, 1);
	alarm_send_event(ifindex, port, state, WEIR_BUF_ALARM);
}

static int alarm_check(void *map, __u32 *ifindex, struct alarm_timer *alarm)
{
	struct weir_port_state *state;
	struct weir_port *port;

	if (!port_find(*ifindex, &port, &state))
		return 0;
	state->checks++;
	state->checked_ns = bpf_ktime_get_ns();
	if (port->k_pkts && state->queue_pkts > port->k_pkts && alarm_queue_is_moving(port, state, state->checked_ns)) {
		state->quiet_checks = 0;
		if (alarm_is_news(state))
			alarm_send(*ifindex, port, state, state->checked_ns);
		if (state->checks % CHECKS_PER_STEP == 0)
			alarm_step_reflex(*ifindex, port, state);
	} else if (!port->k_pkts || ++state->quiet_checks >= QUIET_CHECKS) {
		alarm_end(*ifindex, port, state);
		return 0;
	}
	bpf_timer_start(&alarm->timer, port->check_interval_ns, 0);
	return 0;
}

static __always_inline void alarm_start_checks(struct alarm_timer *alarm, const struct weir_port *port,
					       struct weir_port_state *state, __u64 now_ns)
{
	state->checked_ns = now_ns;
	bpf_timer_init(&alarm->timer, &alarm_timers, CLOCK_MONOTONIC); /* -EBUSY if the timer exists */
	bpf_timer_set_callback(&alarm->timer, alarm_check);
	bpf_timer_start(&alarm->timer, port->check_interval_ns, 0);
}

static __always_inline void alarm_raise(__u32 ifindex, struct alarm_timer *alarm, struct weir_port *port,
					struct weir_port_state *state, __u64 now_ns)
{
	if (__sync_val_compare_and_swap(&state->alarm, WEIR_QUIET, WEIR_CONGESTED) != WEIR_QUIET)
		return;
	state->quiet_checks = state->checks = state->alarm_repeats = 0;
	state->reflex_epoch++;
	alarm_note_answer(state);
	alarm_step_reflex(ifindex, port, state);
	alarm_send(ifindex, port, state, now_ns);
	alarm_start_checks(alarm, port, state, now_ns);
}

/*
 * The queue crosses K soon after the last alarm, and each active sender is punished. Armed entries are in force only
 * during an alarm, so that their flows are not.
 */
static __always_inline bool alarm_is_old(const struct weir_port *port, const struct weir_port_state *state,
					 __u64 now_ns)
{
	if (!port->link_ns || port->armed_entries || now_ns - state->alarmed_ns >= FOLDED_ALARM_NS)
		return false;
	return share_active_senders(port, state, state->tick_ns) && share_all_are_small(port, state, state->tick_ns);
}

static __always_inline void alarm_watch_queue(__u32 ifindex, struct weir_port *port, struct weir_port_state *state)
{
	bool above_k = port->k_pkts && state->queue_pkts > port->k_pkts;
	struct alarm_timer *alarm;
	__u64 now_ns;

	if (!above_k && state->alarm == WEIR_QUIET)
		return;
	now_ns = bpf_ktime_get_ns();
	state->changed_ns = now_ns;
	if (state->alarm != WEIR_QUIET &&
	    port_elapsed_ns(now_ns, state->checked_ns) <= LOST_CHECKS * port->check_interval_ns)
		return;
	alarm = bpf_map_lookup_elem(&alarm_timers, &ifindex);
	if (!alarm)
		return;
	if (state->alarm != WEIR_QUIET)
		alarm_start_checks(alarm, port, state, now_ns);
	else if (!alarm_is_old(port, state, now_ns))
		alarm_raise(ifindex, alarm, port, state, now_ns);
}

/*
 * Adds the drops of the root qdisc since the last call. It counts drops of its children too. The first root that is
 * seen may have dropped packets before the port was entered: the agent has set qdisc_drops to that number. A smaller
 * number than before belongs to a new qdisc that was created at the address of the last one. A root with a qdisc for
 * each transmit queue (mq) is never seen itself, only these qdiscs are.
 */
static __always_inline void alarm_note_drops(const struct Qdisc *q, struct weir_port_state *state)
{
	__u64 root = (__u64)q->dev_queue->dev->qdisc;
	__u32 drops = q->qstats.drops, before = state->qdisc_drops;

	if (state->qdisc == root && (state->qdisc_per_cpu || drops == before))
		return;
	if (state->qdisc != root) {
		if (state->qdisc)
			before = 0;
		state->qdisc = root;
		state->qdisc_per_cpu = q->flags & TCQ_F_CPUSTATS || root != (__u64)q;
		if (state->qdisc_per_cpu)
			state->qdisc_drops = before;
	}
	if (state->qdisc_per_cpu)
		return;
	if ((__s32)(drops - before) < 0)
		before = 0;
	state->drops += drops - before;
	state->qdisc_drops = drops;
}

/* After each packet that the port's root qdisc enqueues or dequeues. Its qlen includes that of its children. */
static __always_inline void alarm_queue_changed(struct Qdisc *q)
{
	struct net_device *dev = q->dev_queue->dev;
	__u32 ifindex = dev->ifindex;
	struct weir_port_state *state;
	struct weir_port *port;

	if (!port_find(ifindex, &port, &state) || port->netns != dev->nd_net.net->ns.inum)
		return;
	state->queue_pkts = q->q.qlen;
	state->queue_bytes = q->qstats.backlog;
	if (state->queue_pkts > state->queue_max_pkts)
		state->queue_max_pkts = state->queue_pkts;
	if (state->queue_bytes > state->queue_max_bytes)
		state->queue_max_bytes = state->queue_bytes;
	alarm_note_drops(q, state);
	if (port->link_ns) {
		if (state->queue_bytes < state->queue_min_bytes)
			state->queue_min_bytes = state->queue_bytes;
		if (!state->queue_bytes)
			state->emptied_ns = bpf_ktime_get_ns();
	}
	alarm_watch_queue(ifindex, port, state);
}

#endif
