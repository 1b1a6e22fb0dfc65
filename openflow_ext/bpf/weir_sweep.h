/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the agent has the kernel do now and then over all flows: those that have ended and those silent for
 * too long (ghosts) leave the table, those without payload (idle) leave N_i (SCCP, section III.E).
 */
#ifndef WEIR_SWEEP_H
#define WEIR_SWEEP_H

static __always_inline __u64 since(__u64 now_ns, __u64 then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

static __always_inline bool leaves(const struct weir_sweep *s, const struct weir_flow_key *key,
				   const struct weir_flow *flow)
{
	if (s->ifindex)
		return key->ifindex == s->ifindex;
	return since(s->now_ns, flow->last_ns) >=
	       (ended(flow) ? s->closed_ns : flow->finer ? s->translated_ns : s->silent_ns);
}

/* No longer one of those that share the port: by its payload, or where it is known for longer than others are. */
static __always_inline bool falls_idle(const struct weir_sweep *s, const struct weir_flow *flow)
{
	return (s->idle_ns && since(s->now_ns, flow->payload_ns) >= s->idle_ns) ||
	       (flow->finer && !ended(flow) && since(s->now_ns, flow->last_ns) >= s->silent_ns);
}

/* It sent since it was last reported, and that is long enough ago. */
static __always_inline bool active_again(const struct weir_sweep *s, const struct weir_flow *flow)
{
	return s->active_ns && flow->payload_ns > flow->reported_ns &&
	       since(s->now_ns, flow->reported_ns) >= s->active_ns;
}

/* False: it has left. */
static __always_inline bool sweep_flow(const struct weir_flow_key *key, struct weir_flow *flow, struct weir_sweep *s)
{
	struct weir_port_state *state;
	struct weir_port *port;
	bool known = find_port(key->ifindex, &port, &state);
	bool told = known && flow->seen & WEIR_ESTABLISHED && !(flow->seen & (WEIR_FIN_OUT | WEIR_RST));

	if (leaves(s, key, flow)) {
		if (known)
			end_count(flow, state);
		if (told)
			report(key, flow, port, WEIR_FLOW_CLOSED, WEIR_BY_SILENCE, 0);
		forget_flow(key);
		s->removed++;
		return false;
	}
	if (s->ifindex)
		return true;
	if (known && falls_idle(s, flow) && make_idle(flow, state)) {
		s->idled++;
		if (told)
			report(key, flow, port, WEIR_FLOW_IDLE, WEIR_NOT_CLOSED, 0);
	} else if (told && (s->all || active_again(s, flow))) {
		flow->reported_ns = s->now_ns;
		report(key, flow, port, flow->seen & WEIR_IDLE ? WEIR_FLOW_IDLE : WEIR_FLOW_ACTIVE,
		       WEIR_NOT_CLOSED, 0);
	}
	return true;
}

/* The next flow, which goes to the queue's end. */
static long sweep_next(struct bpf_map *map, __u32 *step, __u8 *nothing, struct weir_sweep *s)
{
	struct weir_flow_key key = {};
	struct weir_flow *flow;

	if (bpf_map_pop_elem(&flow_keys, &key)) {
		s->over = 1;
		return 1;
	}
	flow = flow_at(&key);
	if (!flow)
		return 0;
	if (flow->swept_ns == s->now_ns) {
		s->over = 1;
		bpf_map_push_elem(&flow_keys, &key, 0);
		return 1;
	}
	flow->swept_ns = s->now_ns;
	if (sweep_flow(&key, flow, s))
		bpf_map_push_elem(&flow_keys, &key, 0);
	return 0;
}

#endif
