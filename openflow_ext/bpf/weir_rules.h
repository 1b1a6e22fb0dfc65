/* SPDX-License-Identifier: GPL-2.0-only */
/* The extension table's look-up: by table and falling priority, one rule a table. */
#ifndef WEIR_RULES_H
#define WEIR_RULES_H

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define NO_WINDOW 0xffffffffu
#define MAX_HITS 8 /* rules that one segment may meet, expired ones included */

static __always_inline bool alive(const struct weir_action *action, const struct weir_tally *tally, __u64 now_ns)
{
	if (action->hard_end_ns && now_ns >= action->hard_end_ns)
		return false;
	return !action->idle_ns || now_ns - tally->used_ns < action->idle_ns || tally->used_ns > now_ns;
}

/*
 * The place of the first rule at or after `from` that the segment matches and whose table is not in
 * `tables`; WEIR_MAX_LISTED for none. A function of its own that the verifier checks once: unrolled
 * into its callers, the loop is beyond it. For the same reason the match has few branches.
 */
__noinline __u32 next_listed(const struct segment *s, const struct weir_list *list, __u32 in_ofport,
			     __u64 from_tables)
{
	__u32 from = from_tables >> 32, tables = from_tables;

	if (!list || !s)
		return WEIR_MAX_LISTED;
	for (__u32 i = 0; i < WEIR_MAX_LISTED; i++) {
		const struct weir_listed *r = &list->rules[i];
		__u32 differs = tables >> (r->action.table_id & 31) & 1;

		if (i >= list->len)
			break;
		if ((s->flags & r->flags_mask) ^ r->flags) /* first, for it tells most rules apart */
			continue;
		differs |= (s->src[0] & r->src_mask[0]) ^ r->src[0];
		differs |= (s->src[1] & r->src_mask[1]) ^ r->src[1];
		differs |= (s->src[2] & r->src_mask[2]) ^ r->src[2];
		differs |= (s->src[3] & r->src_mask[3]) ^ r->src[3];
		differs |= (s->dst[0] & r->dst_mask[0]) ^ r->dst[0];
		differs |= (s->dst[1] & r->dst_mask[1]) ^ r->dst[1];
		differs |= (s->dst[2] & r->dst_mask[2]) ^ r->dst[2];
		differs |= (s->dst[3] & r->dst_mask[3]) ^ r->dst[3];
		differs |= (s->src_port & r->src_port_mask) ^ r->src_port;
		differs |= (s->dst_port & r->dst_port_mask) ^ r->dst_port;
		differs |= s->ip_version ^ r->action.ip_version;
		differs |= (in_ofport & r->in_ofport_mask) ^ r->in_ofport;
		if (!differs && i >= from)
			return i;
	}
	return WEIR_MAX_LISTED;
}

/* What the rules are asked about one segment. No pointers, so that the functions below stand alone. */
struct question {
	struct segment segment;
	__u32 ifindex;
	__u32 frame_len;
	__u64 now_ns;
	__u32 field; /* the segment's window, and what it takes to read and write one: */
	__u32 scale;
	__u32 mss;
	__u32 least_bytes; /* the floor of a window, see weir_window_field */
	__u32 most_bytes;  /* that a window which is asked for may be; 0: no limit */
	__u32 ahead_bytes; /* by how much a fair share is exceeded, see set_least */
	__u64 flows;   /* among which the port is shared, for this segment */
	__u32 packets; /* segments on the wire: more than one in a super-packet */
};

/* What the rules that matched so far have asked for. */
struct answer {
	__u32 tables;       /* bit t: table t has had its rule */
	__u32 window_bytes; /* the least of them; NO_WINDOW: none */
	__u32 count_op;
	struct weir_counts *clamper; /* of the rule that asked for window_bytes */
	bool clamper_shared;
};

/* A rule that a segment may meet, and where it counts: listed ones where no other CPU does. */
struct candidate {
	struct weir_rule *rule; /* NULL: none */
	struct weir_counts *counts;
	bool shared;
};

static __always_inline struct candidate exact_candidate(struct weir_rule *rule)
{
	return (struct candidate){rule, rule ? &rule->tally.counts : NULL, true};
}

static __always_inline struct candidate listed_candidate(__u32 place)
{
	struct candidate listed = {};

	listed.counts = bpf_map_lookup_elem(&list_counts, &place);
	if (listed.counts)
		listed.rule = bpf_map_lookup_elem(&tallies, &place);
	return listed;
}

static __always_inline void add(__u64 *count, __u64 more, bool shared)
{
	if (shared)
		__sync_fetch_and_add(count, more);
	else
		*count += more;
}

static __always_inline bool table_done(const struct answer *a, const struct weir_action *action)
{
	return a->tables >> (action->table_id & 31) & 1;
}

static __always_inline void ask_window(struct answer *a, const struct question *q, const struct weir_port *port,
				       const struct candidate *candidate)
{
	const struct weir_action *action = &candidate->rule->action;
	struct weir_tally *tally = &candidate->rule->tally;
	__u32 window = NO_WINDOW;

	if (action->window_op == WEIR_MOD_WINDOW) {
		window = tally->window_bytes;
		tally->window_bytes = weir_mod_window_next(window, action->alpha, q->mss);
	} else if (action->window_op == WEIR_SET_WINDOW) {
		window = action->window_bytes;
	} else if (action->window_op == WEIR_FAIR_SHARE && port->bdp_bytes) {
		window = weir_fair_share_bytes(port->bdp_bytes, q->flows);
		if (window < NO_WINDOW - q->ahead_bytes)
			window += q->ahead_bytes;
	}
	if (window < a->window_bytes) {
		a->window_bytes = window;
		a->clamper = candidate->counts;
		a->clamper_shared = candidate->shared;
	}
}

static __always_inline void meet(struct answer *a, const struct candidate *candidate, const struct question *q)
{
	a->tables |= 1u << (candidate->rule->action.table_id & 31);
	add(&candidate->counts->packets, q->packets, candidate->shared);
	add(&candidate->counts->bytes, q->frame_len, candidate->shared);
	candidate->rule->tally.used_ns = q->now_ns;
}

static __always_inline void exact_key_of(struct weir_exact_key *key, const struct question *q, __u32 bridge)
{
	key->bridge = bridge;
	__builtin_memcpy(key->src, q->segment.src, sizeof(key->src));
	__builtin_memcpy(key->dst, q->segment.dst, sizeof(key->dst));
	key->src_port = q->segment.src_port;
	key->dst_port = q->segment.dst_port;
}

/*
 * The segment's exact rule. A flow that was found to have none is not looked for again until the agent adds a
 * rule: most flows have none, and the look-up is a cache miss.
 */
static __always_inline struct weir_rule *exact_of(const struct question *q, const struct weir_port *port,
						   struct weir_flow *flow)
{
	struct weir_exact_key key = {};
	struct weir_rule *exact;
	__u32 zero = 0, epoch, *held = bpf_map_lookup_elem(&rules_epoch, &zero);

	if (!held)
		return NULL;
	epoch = READ_ONCE(*held);
	if (flow && flow->no_exact_in == epoch)
		return NULL;
	exact_key_of(&key, q, port->bridge);
	exact = bpf_map_lookup_elem(&exact_rules, &key);
	if (!exact && flow)
		flow->no_exact_in = epoch;
	return exact;
}

/* Meet a window rule, unless one of its table was met before. */
static __always_inline void meet_window(struct answer *a, const struct question *q, const struct weir_port *port,
					const struct candidate *candidate)
{
	if (table_done(a, &candidate->rule->action))
		return;
	meet(a, candidate, q);
	ask_window(a, q, port, candidate);
}

/* A reflex entry counts as met in its table; it is on while its rank is below the port's level. */
static __always_inline void meet_armed(struct answer *a, const struct question *q, const struct weir_port *port,
				       const struct weir_port_state *state)
{
	struct weir_exact_key key = {};
	struct candidate candidate;
	struct weir_rule *armed;

	if (!port->armed || !state->reflex_level)
		return;
	exact_key_of(&key, q, port->bridge);
	armed = bpf_map_lookup_elem(&armed_rules, &key);
	if (!armed || armed->action.armed_ifindex != q->ifindex || armed->action.rank >= state->reflex_level)
		return;
	if (armed->tally.epoch != state->reflex_epoch) {
		armed->tally.epoch = state->reflex_epoch;
		armed->tally.window_bytes = armed->action.window_bytes;
	}
	candidate = exact_candidate(armed);
	meet_window(a, q, port, &candidate);
}

static __always_inline struct weir_list *list_of(const struct weir_port *port, __u32 direction)
{
	struct weir_list_key key = {.bridge = port->bridge, .direction = direction};

	return bpf_map_lookup_elem(&lists, &key);
}

/* What the list does with such segments: enum weir_by_flags. */
static __always_inline __u32 by_flags(const struct question *q, const struct weir_port *port, __u32 direction)
{
	__u32 flags = q->segment.flags % WEIR_PLAIN_FLAGS, place = 2 * port->bridge + direction;
	struct weir_flags_table *table = bpf_map_lookup_elem(&list_flags, &place);

	return table ? table->rule[q->segment.ip_version == 4 ? flags : WEIR_PLAIN_FLAGS + flags] : WEIR_NO_RULE;
}

/* The next listed rule that is met, its table not yet in a->tables; NULL: none is left. */
static __always_inline struct weir_listed *meet_next(const struct question *q, struct weir_list *list,
						     __u32 in_ofport, __u32 tables, __u32 *from)
{
	__u32 i;

	if (!list || !(list->tables & ~tables))
		return NULL;
	i = next_listed(&q->segment, list, in_ofport, (__u64)*from << 32 | tables);
	if (i >= WEIR_MAX_LISTED)
		return NULL;
	*from = i + 1;
	return &list->rules[i];
}

static __always_inline __u32 field_of(const struct answer *a, const struct question *q)
{
	__u32 field, window_bytes = a->window_bytes;

	if (window_bytes == NO_WINDOW)
		return q->field;
	if (q->most_bytes && window_bytes > q->most_bytes)
		window_bytes = q->most_bytes;
	field = weir_clamp_field(q->field, window_bytes, q->scale, q->mss, q->least_bytes);
	if (field != q->field && a->clamper)
		add(&a->clamper->clamped, 1, a->clamper_shared);
	return field;
}

/* Of two rules in one table, NULL for none, the one that does not act is forgotten. */
static __always_inline void settle(struct weir_rule **exact, struct weir_rule **listed)
{
	if (!*exact || !*listed || (*exact)->action.table_id != (*listed)->action.table_id)
		return;
	*((*exact)->action.priority >= (*listed)->action.priority ? listed : exact) = NULL;
}

/* The window field with which the segment goes on where all that may act on it are `exact` and what lies at place. */
static __always_inline __u32 field_by_two(const struct question *q, const struct weir_port *port,
					  struct weir_rule *exact, __u32 place)
{
	struct candidate met, listed = listed_candidate(place);
	struct answer a = {.window_bytes = NO_WINDOW};

	if (exact && !alive(&exact->action, &exact->tally, q->now_ns))
		exact = NULL;
	settle(&exact, &listed.rule);
	met = exact_candidate(exact);
	if (met.rule)
		meet_window(&a, q, port, &met);
	if (listed.rule)
		meet_window(&a, q, port, &listed);
	return field_of(&a, q);
}

/* The window field with which the segment goes on, by all rules of the ingress; `exact` may be NULL. */
__noinline __u32 field_by_rules(const struct question *q, const struct weir_port *port,
				const struct weir_port_state *state, struct weir_rule *exact)
{
	struct answer a = {.window_bytes = NO_WINDOW};
	struct weir_list *list;
	__u32 from = 0;

	if (!q || !port || !state)
		return 0;
	list = by_flags(q, port, WEIR_INGRESS) != WEIR_NO_RULE ? list_of(port, WEIR_INGRESS) : NULL;
	if (exact && !alive(&exact->action, &exact->tally, q->now_ns))
		exact = NULL;
	for (int hit = 0; hit < MAX_HITS; hit++) {
		struct weir_listed *listed = meet_next(q, list, port->ofport, a.tables, &from);
		struct candidate next;

		if (exact && (!listed || exact->action.priority >= listed->action.priority)) {
			next = exact_candidate(exact);
			meet_window(&a, q, port, &next);
			exact = NULL;
		}
		if (!listed)
			break;
		next = listed_candidate(listed->tally);
		if (next.rule && alive(&next.rule->action, &next.rule->tally, q->now_ns))
			meet_window(&a, q, port, &next);
	}
	meet_armed(&a, q, port, state);
	return field_of(&a, q);
}

/* What the rules of the egress do to N_i for this segment: enum weir_count_op. */
__noinline __u32 count_by_rules(const struct question *q, const struct weir_port *port)
{
	struct answer a = {};
	struct weir_list *list;
	__u32 from = 0;

	if (!q || !port)
		return 0;
	list = list_of(port, WEIR_EGRESS);
	for (int hit = 0; hit < MAX_HITS; hit++) {
		struct weir_listed *listed = meet_next(q, list, port->ofport, a.tables, &from);
		const struct weir_action *action;
		struct candidate next;

		if (!listed)
			break;
		next = listed_candidate(listed->tally);
		if (!next.rule || !alive(&next.rule->action, &next.rule->tally, q->now_ns))
			continue;
		meet(&a, &next, q);
		action = &next.rule->action;
		if (action->count_ofport == WEIR_ANY_PORT || action->count_ofport == port->ofport)
			a.count_op = action->count_op;
	}
	return a.count_op;
}

#endif
