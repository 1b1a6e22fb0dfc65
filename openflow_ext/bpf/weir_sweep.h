/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sweep, which the agent runs periodically over all flows. It removes ended flows and flows that were silent for
 * too long (ghosts). Flows without payload become idle and leave N_i (SCCP, section III.E).
 */
#ifndef WEIR_SWEEP_H
#define WEIR_SWEEP_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_flow.h"
#include "weir_flow_bits.h"
#include "weir_flow_table.h"
#include "weir_maps.h"
#include "weir_port.h"
#include "weir_report.h"
#include "weir_structs.h"

/* After this time without segments the flow is removed. */
static __always_inline __u64 sweep_kept_ns(const struct weir_sweep *s, const struct weir_flow *flow)
{
	return flow_ended(flow) ? s->closed_ns : flow->scale_shift ? s->translated_ns : s->silent_ns;
}

/* The handshake takes too long, as for a SYN that nobody answers. */
static __always_inline bool sweep_opens_too_long(const struct weir_sweep *s, const struct weir_flow *flow)
{
	return !(flow->flags & WEIR_ESTABLISHED) && port_elapsed_ns(s->now_ns, flow->first_ns) >= s->opening_ns;
}

/* `known`: the flow's interface is a port. */
static __always_inline bool sweep_removes(const struct weir_sweep *s, const struct weir_flow *flow, bool known)
{
	if (s->portless)
		return !known;
	return port_elapsed_ns(s->now_ns, flow->last_ns) >= sweep_kept_ns(s, flow) || sweep_opens_too_long(s, flow);
}

static __always_inline __u32 sweep_ms(__u64 at_ns)
{
	return at_ns >> MS_SHIFT;
}

/*
 * The flow is idle: it has sent no payload for long, or it was silent for as long as would remove a flow without
 * translated windows.
 */
static __always_inline bool sweep_makes_idle(const struct weir_sweep *s, const struct weir_flow *flow)
{
	return (s->idle_ns && port_elapsed_ns(s->now_ns, flow->last_payload_ns) >= s->idle_ns) ||
	       (flow->scale_shift && !flow_ended(flow) && port_elapsed_ns(s->now_ns, flow->last_ns) >= s->silent_ns);
}

/* It has sent since its last report. */
static __always_inline bool sweep_has_sent(const struct weir_flow *flow)
{
	return !flow->reported_ms || (__s32)(sweep_ms(flow->last_payload_ns) - flow->reported_ms) > 0;
}

/* And that report was long enough ago. */
static __always_inline bool sweep_reports_active(const struct weir_sweep *s, const struct weir_flow *flow)
{
	if (!s->active_ns || !sweep_has_sent(flow))
		return false;
	return !flow->reported_ms || sweep_ms(s->now_ns) - flow->reported_ms >= sweep_ms(s->active_ns);
}

static __always_inline void sweep_note_due(struct weir_sweep *s, __u64 at_ns)
{
	if (at_ns < s->due_ns)
		s->due_ns = at_ns;
}

/* When the sweep has to visit the flow again if it sends and receives nothing. */
static __always_inline void sweep_note_dues(struct weir_sweep *s, const struct weir_flow *flow)
{
	s->visited++;
	sweep_note_due(s, flow->last_ns + sweep_kept_ns(s, flow));
	if (s->idle_ns && flow_may_become_idle(flow))
		sweep_note_due(s, flow->last_payload_ns + s->idle_ns);
	if (flow->member & WEIR_IN_N_I && flow->scale_shift)
		sweep_note_due(s, flow->last_ns + s->silent_ns);
	if (!(flow->flags & WEIR_ESTABLISHED))
		sweep_note_due(s, flow->first_ns + s->opening_ns);
	if (flow->flags & WEIR_REOFFERED)
		sweep_note_due(s, s->now_ns + s->opening_ns);
	if (s->active_ns && sweep_has_sent(flow))
		sweep_note_due(
			s, s->now_ns + s->active_ns - ((__u64)(sweep_ms(s->now_ns) - flow->reported_ms) << MS_SHIFT));
}

/* Reports an open flow as active or idle. */
static __always_inline void sweep_report_living(const struct weir_flow_key *key, struct weir_flow *flow,
						const struct weir_port *port, __u64 now_ns)
{
	flow->reported_ms = sweep_ms(now_ns) ?: 1; /* 0: never */
	report_send(key, flow, port, flow->flags & WEIR_IDLE ? WEIR_FLOW_IDLE : WEIR_FLOW_ACTIVE, WEIR_NOT_CLOSED, 0);
}

/* The controller has a report that the flow was opened, and none that it was closed. */
static __always_inline bool sweep_is_reported(const struct weir_flow *flow)
{
	return flow->flags & WEIR_ESTABLISHED && !(flow->flags & (WEIR_FIN_OUT | WEIR_RST));
}

/* `known`: the interface is a port, and `port` and `state` are set. */
static __always_inline void sweep_remove(const struct weir_flow_key *key, struct weir_flow *flow, struct weir_sweep *s,
					 bool known, const struct weir_port *port, struct weir_port_state *state)
{
	if (known)
		flow_end_count(flow, state);
	if (known && sweep_is_reported(flow))
		report_send(key, flow, port, WEIR_FLOW_CLOSED, WEIR_BY_SILENCE, 0);
	flow_delete(key, flow);
	s->removed++;
}

/* False: the flow was removed. */
static __always_inline bool sweep_flow(const struct weir_flow_key *key, struct weir_flow *flow, struct weir_sweep *s)
{
	struct weir_port_state *state;
	struct weir_port *port;
	bool known = port_find(key->ifindex, &port, &state);
	bool reported = known && sweep_is_reported(flow);

	if (sweep_removes(s, flow, known)) {
		sweep_remove(key, flow, s, known, port, state);
		return false;
	}
	if (s->portless)
		return true;
	if (known && sweep_makes_idle(s, flow) && flow_make_idle(flow, state)) {
		s->idled++;
		if (reported)
			report_send(key, flow, port, WEIR_FLOW_IDLE, WEIR_NOT_CLOSED, 0);
	} else if (reported && (s->report_all || sweep_reports_active(s, flow))) {
		sweep_report_living(key, flow, port, s->now_ns);
	}
	sweep_note_dues(s, flow);
	return true;
}

/* A SYN that waited for its answer for too long is forgotten. */
static __always_inline void sweep_reoffer(const struct weir_flow_key *key, struct weir_flow *flow,
					  const struct weir_sweep *s)
{
	struct weir_reoffer *aside;

	if (!(flow->flags & WEIR_REOFFERED) || s->portless)
		return;
	aside = bpf_map_lookup_elem(&reoffers, key);
	if (aside && port_elapsed_ns(s->now_ns, aside->first_ns) < s->opening_ns)
		return;
	flow_clear(flow, WEIR_REOFFERED);
	bpf_map_delete_elem(&reoffers, key);
}

/*
 * Visits a flow. 0: it was removed. A global function, which the verifier checks once. It copies the key, because
 * before Linux 6.2 no map takes a key from the memory of an argument.
 */
__noinline int sweep_visit(const struct weir_flow_key *of, struct weir_flow *flow, struct weir_sweep *s)
{
	struct weir_flow_key key;

	if (!of || !flow || !s)
		return 0;
	key = *of;
	sweep_reoffer(&key, flow, s);
	return sweep_flow(&key, flow, s);
}

/*
 * The place of the flow's key in its queue was taken while the flow was visited. No sweep would find the flow again, so
 * it is removed as if the table had refused it. A global function, which copies the key as sweep_visit does.
 */
__noinline int sweep_lose(const struct weir_flow_key *of, struct weir_flow *flow, struct weir_sweep *s)
{
	struct weir_port_state *state;
	struct weir_flow_key key;
	struct weir_port *port;
	bool known;

	if (!of || !flow || !s)
		return 0;
	key = *of;
	known = port_find(key.ifindex, &port, &state);
	if (known)
		__sync_fetch_and_add(&state->untracked, 1);
	sweep_remove(&key, flow, s, known, port, state);
	return 0;
}

/* Puts the key of a visited flow at the end of its queue. */
static __always_inline void sweep_put_back(void *queue, const struct weir_flow_key *key, struct weir_flow *flow,
					   struct weir_sweep *s)
{
	if (bpf_map_push_elem(queue, key, 0))
		sweep_lose(key, flow, s);
}

/*
 * Visits the next of the flows that are being opened. The key of one whose handshake is complete is dropped, for it is
 * in flow_keys. A key without an interface marks the end. A full queue has no room for the mark, and a SYN may push it
 * out of one that becomes full: then the end comes after as many keys as the queue holds.
 */
static __noinline long sweep_next_opening(struct weir_sweep *s)
{
	struct weir_flow_key key = {};
	struct weir_flow *flow;

	if (s->stage == WEIR_SWEEP_BEGINS) {
		s->stage = WEIR_SWEEP_OPENING;
		bpf_map_push_elem(&opening_keys, &key, 0);
		return 0;
	}
	if (s->opening_steps++ == ((struct bpf_map *)&opening_keys)->max_entries ||
	    bpf_map_pop_elem(&opening_keys, &key) || !key.ifindex) {
		s->stage = WEIR_SWEEP_FLOWS;
		return 0;
	}
	flow = flow_find(&key);
	if (flow && !(flow->flags & WEIR_KEPT) && sweep_visit(&key, flow, s))
		sweep_put_back(&opening_keys, &key, flow, s);
	return 0;
}

/* Visits the next flow, and puts its key at the end of the queue. */
static long sweep_next(struct bpf_map *map, __u32 *step, __u8 *nothing, struct weir_sweep *s)
{
	struct weir_flow_key key = {};
	struct weir_flow *flow;
	bool seen;

	if (s->stage != WEIR_SWEEP_FLOWS)
		return sweep_next_opening(s);
	if (bpf_map_pop_elem(&flow_keys, &key)) {
		s->done = 1;
		return 1;
	}
	flow = flow_find(&key);
	if (!flow)
		return 0;
	seen = flow->swept == (__u32)s->now_ns;
	flow->swept = s->now_ns;
	if (seen || sweep_visit(&key, flow, s))
		sweep_put_back(&flow_keys, &key, flow, s);
	if (!seen)
		return 0;
	s->done = 1;
	return 1;
}

#endif
