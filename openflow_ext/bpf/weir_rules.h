/* SPDX-License-Identifier: GPL-2.0-only */
/* Look-up in the extension table: in each table the rule with the highest priority that matches. */
#ifndef WEIR_RULES_H
#define WEIR_RULES_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_maps.h"
#include "weir_parse.h"
#include "weir_port.h"
#include "weir_release.h"
#include "weir_structs.h"
#include "weir_window.h"

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define TABLE_MASK 31 /* table ids are 0 to 31: one bit each in a __u32 */
#define NO_WINDOW 0xffffffffu
#define MAX_HITS 8             /* rules that one segment may match, including expired ones */
#define RULE_OBSERVED 0x10000u /* beside a window field: a rule that only observes would have lowered it */

static __always_inline bool rule_is_alive(const struct weir_action *action, const struct weir_tally *tally,
					  __u64 now_ns)
{
	if (action->hard_end_ns && now_ns >= action->hard_end_ns)
		return false;
	return !action->idle_ns || now_ns - tally->used_ns < action->idle_ns || tally->used_ns > now_ns;
}

/*
 * The index of the first rule from `from` on that the segment matches and whose table is not in `tables`;
 * WEIR_MAX_LISTED if there is none. A global function, which the verifier checks once: inlined into its callers, the
 * loop exceeds the verifier's limits. For the same reason the comparison has few branches.
 */
__noinline __u32 rule_next_listed(const struct segment *s, const struct weir_list *list, __u32 in_ofport,
				  __u64 from_tables)
{
	__u32 from = from_tables >> 32, tables = from_tables;

	if (!list || !s)
		return WEIR_MAX_LISTED;
	for (__u32 i = 0; i < WEIR_MAX_LISTED; i++) {
		const struct weir_listed *r = &list->rules[i];
		__u32 differs = tables >> (r->action.table_id & TABLE_MASK) & 1;

		if (i >= list->len)
			break;
		if ((s->flags & r->flags_mask) ^ r->flags) /* compared first, because the flags exclude most rules */
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

/* One segment, as the rules see it. Without pointers, so that global functions can take it. */
struct rule_query {
	struct segment segment;
	__u32 frame_len;
	__u64 now_ns;
	__u64 allowance;      /* the bytes that the flows of the port share, multiplied by the weight of this flow */
	__u64 divisor;        /* sum of the weights of the flows among which the port is shared, for this segment */
	__u32 mss;            /* of the flow */
	__u32 floor_bytes;    /* the least window of a clamp (weir_window_field) */
	__u32 headroom_bytes; /* what a fair share may exceed (packet_set_floor) */
	__u16 ceiling_bytes;  /* the largest window of a clamp; 0: no limit */
	__u16 packets;        /* segments on the wire: more than one in a super-packet */
	__u16 field;          /* the segment's window field */
	__u8 scale;           /* and the scale of that field */
};

/* Rules that are in no list, as values of rule_candidate.id. */
enum { NO_CLAMPER = 0xffffffff, EXACT_RULE = 0xfffffffe, ARMED_RULE = 0xfffffffd };

/* The combined actions of the rules that matched so far. Without pointers, so that global functions can take it. */
struct rule_result {
	__u32 tables;       /* bit t: a rule of table t has matched */
	__u32 window_bytes; /* the least window of these rules; NO_WINDOW: none sets one */
	__u32 count_op;
	__u32 clamper;  /* rule_candidate.id of the rule that set window_bytes; NO_CLAMPER: none did */
	__u32 observed; /* 1: a rule that only observes would have lowered the window */
};

/* A rule that may match, and its counts, which all CPUs share if the rule is exact. */
struct rule_candidate {
	struct weir_rule *rule; /* NULL: none */
	struct weir_counts *counts;
	bool shared;
	__u32 id; /* of a listed rule: the index of its tally */
};

#define NO_RULE_YET ((struct rule_result){.window_bytes = NO_WINDOW, .clamper = NO_CLAMPER})

static __always_inline struct rule_candidate rule_candidate_exact(struct weir_rule *rule, __u32 id)
{
	return (struct rule_candidate){rule, rule ? &rule->tally.counts : NULL, true, id};
}

static __always_inline struct rule_candidate rule_candidate_listed(__u32 index)
{
	struct rule_candidate listed = {.id = index};

	listed.counts = bpf_map_lookup_elem(&list_counts, &index);
	if (listed.counts)
		listed.rule = bpf_map_lookup_elem(&tallies, &index);
	return listed;
}

static __always_inline void rule_add_count(__u64 *count, __u64 more, bool shared)
{
	if (shared)
		__sync_fetch_and_add(count, more);
	else
		*count += more;
}

static __always_inline bool rule_table_is_done(const struct rule_result *result, const struct weir_action *action)
{
	return result->tables >> (action->table_id & TABLE_MASK) & 1;
}

/* The flow's part of the port: SCCP, equation (1). */
static __always_inline __u32 rule_fair_share(const struct rule_query *q)
{
	__u32 window = weir_fair_share_bytes(q->allowance, q->divisor);

	return window < NO_WINDOW - q->headroom_bytes ? window + q->headroom_bytes : window;
}

/*
 * MOD_WINDOW, equation (4). A port that corrects its allowance lowers the window to the part of a punished flow and not
 * further, because below that the link would be idle.
 */
static __always_inline __u32 rule_mod_window(const struct weir_action *action, struct weir_tally *tally,
					     const struct rule_query *q, const struct weir_port *port)
{
	__u32 window = tally->window_bytes, share;

	tally->window_bytes = weir_mod_window_next(window, action->alpha, q->mss);
	if (!port->link_ns)
		return window;
	share = rule_fair_share(q);
	return window > share ? window : share;
}

/* Whether the window action of a rule only counts the segments that it would change at this port. */
static __always_inline bool rule_observes(const struct weir_action *action, const struct weir_port *port)
{
	return action->observes || port_observes(port, action->window_op);
}

/* The field that a window of window_bytes gives the segment, by the bounds of its flow. */
static __always_inline __u32 rule_lowered_field(const struct rule_query *q, __u32 window_bytes)
{
	if (window_bytes == NO_WINDOW)
		return q->field;
	if (q->ceiling_bytes && window_bytes > q->ceiling_bytes)
		window_bytes = q->ceiling_bytes;
	return weir_clamp_field(q->field, window_bytes, q->scale, q->mss, q->floor_bytes);
}

/* Whether a window of window_bytes would lower the field. A global function, which the verifier checks once. */
__noinline __u32 rule_would_lower(const struct rule_query *q, __u32 window_bytes)
{
	return q && rule_lowered_field(q, window_bytes) != q->field;
}

/* Counts that the rule would lower the window to window_bytes. */
static __always_inline void rule_observe(struct rule_result *result, const struct rule_query *q, __u32 window_bytes,
					 const struct rule_candidate *candidate)
{
	if (!rule_would_lower(q, window_bytes))
		return;
	rule_add_count(&candidate->counts->clamped, q->packets, candidate->shared);
	result->observed = 1;
}

static __always_inline void rule_apply_window(struct rule_result *result, const struct rule_query *q,
					      const struct weir_port *port, const struct rule_candidate *candidate)
{
	const struct weir_action *action = &candidate->rule->action;
	struct weir_tally *tally = &candidate->rule->tally;
	__u32 window = NO_WINDOW;

	if (action->window_op == WEIR_MOD_WINDOW) {
		window = rule_mod_window(action, tally, q, port);
	} else if (action->window_op == WEIR_SET_WINDOW) {
		window = action->window_bytes;
	} else if (action->window_op == WEIR_FAIR_SHARE && port->bdp_bytes) {
		window = rule_fair_share(q);
	}
	if (rule_observes(action, port)) {
		rule_observe(result, q, window, candidate);
	} else if (window < result->window_bytes) {
		result->window_bytes = window;
		result->clamper = candidate->id;
	}
}

static __always_inline void rule_hit(struct rule_result *result, const struct rule_candidate *candidate,
				     const struct rule_query *q)
{
	result->tables |= 1u << (candidate->rule->action.table_id & TABLE_MASK);
	rule_add_count(&candidate->counts->packets, q->packets, candidate->shared);
	rule_add_count(&candidate->counts->bytes, q->frame_len, candidate->shared);
	candidate->rule->tally.used_ns = q->now_ns;
}

static __always_inline void rule_exact_key(struct weir_exact_key *key, const struct rule_query *q, __u32 bridge)
{
	key->bridge = bridge;
	__builtin_memcpy(key->src, q->segment.src, sizeof(key->src));
	__builtin_memcpy(key->dst, q->segment.dst, sizeof(key->dst));
	key->src_port = q->segment.src_port;
	key->dst_port = q->segment.dst_port;
}

/* Notes whether SDTCP has chosen the flow: it has an exact MOD_WINDOW, or is one of the port's armed entries. */
static __always_inline void rule_note_punished(const struct rule_query *q, const struct weir_port *port,
					       struct weir_flow *flow, const struct weir_exact_key *key,
					       const struct weir_rule *exact)
{
	const struct weir_rule *armed = NULL;
	bool punished = exact && exact->action.window_op == WEIR_MOD_WINDOW && !rule_observes(&exact->action, port) &&
			rule_is_alive(&exact->action, &exact->tally, q->now_ns);

	if (!punished && port->armed_entries)
		armed = bpf_map_lookup_elem(&armed_rules, key);
	if (armed && armed->action.armed_ifindex == port->ifindex && !rule_observes(&armed->action, port))
		punished = true;
	release_note_punished(flow, port, punished);
}

/* Not inlined, because the key would not fit into the stack of the programs. */
static __noinline struct weir_rule *rule_look_up_exact(const struct rule_query *q, const struct weir_port *port,
						       struct weir_flow *flow)
{
	struct weir_exact_key key = {};
	struct weir_rule *exact;

	rule_exact_key(&key, q, port->bridge);
	exact = bpf_map_lookup_elem(&exact_rules, &key);
	if (flow && port->link_ns)
		rule_note_punished(q, port, flow, &key, exact);
	return exact;
}

/*
 * The segment's exact rule. Most flows have none, and the look-up is a cache miss. So a flow without one is not looked
 * up again until the agent adds a rule (rules_epoch).
 */
static __always_inline struct weir_rule *rule_find_exact(const struct rule_query *q, const struct weir_port *port,
							 struct weir_flow *flow)
{
	struct weir_rule *exact;
	__u32 zero = 0, epoch, *held = bpf_map_lookup_elem(&rules_epoch, &zero);

	if (!held)
		return NULL;
	epoch = READ_ONCE(*held);
	if (flow && flow->no_exact_epoch == epoch)
		return NULL;
	exact = rule_look_up_exact(q, port, flow);
	if (!exact && flow)
		flow->no_exact_epoch = epoch;
	return exact;
}

/* Applies a window rule, unless a rule of the same table has matched. */
static __always_inline void rule_hit_window(struct rule_result *result, const struct rule_query *q,
					    const struct weir_port *port, const struct rule_candidate *candidate)
{
	if (rule_table_is_done(result, &candidate->rule->action))
		return;
	rule_hit(result, candidate, q);
	rule_apply_window(result, q, port, candidate);
}

/*
 * An armed (reflex) entry is the rule of its table while its rank is below the port's reflex_level. Returns the flow's
 * entry in force; NULL if there is none.
 */
static __always_inline struct weir_rule *rule_hit_armed(struct rule_result *result, const struct rule_query *q,
							const struct weir_port *port,
							const struct weir_port_state *state)
{
	struct weir_exact_key key = {};
	struct rule_candidate candidate;
	struct weir_rule *armed;

	if (!port->armed_entries || !state->reflex_level)
		return NULL;
	rule_exact_key(&key, q, port->bridge);
	armed = bpf_map_lookup_elem(&armed_rules, &key);
	if (!armed || armed->action.armed_ifindex != port->ifindex || armed->action.rank >= state->reflex_level)
		return NULL;
	if (armed->tally.epoch != state->reflex_epoch) {
		armed->tally.epoch = state->reflex_epoch;
		armed->tally.window_bytes = armed->action.window_bytes;
	}
	candidate = rule_candidate_exact(armed, ARMED_RULE);
	rule_hit_window(result, q, port, &candidate);
	return armed;
}

static __always_inline struct weir_list *rule_list_of(const struct weir_port *port, __u32 direction)
{
	struct weir_list_key key = {.bridge = port->bridge, .direction = direction};

	return bpf_map_lookup_elem(&lists, &key);
}

/* What the list does with segments of these flags: enum weir_by_flags. */
static __always_inline __u32 rule_by_flags(const struct rule_query *q, const struct weir_port *port, __u32 direction)
{
	__u32 flags = q->segment.flags % WEIR_PLAIN_FLAGS, index = 2 * port->bridge + direction;
	struct weir_flags_table *table = bpf_map_lookup_elem(&list_flags, &index);

	return table ? table->rule[q->segment.ip_version == 4 ? flags : WEIR_PLAIN_FLAGS + flags] : WEIR_NO_RULE;
}

/* The next rule of the list that matches and whose table is not in `tables`; NULL if there is none. */
static __always_inline struct weir_listed *rule_next_hit(const struct rule_query *q, struct weir_list *list,
							 __u32 in_ofport, __u32 tables, __u32 *from)
{
	__u32 i;

	if (!list || !(list->tables & ~tables))
		return NULL;
	i = rule_next_listed(&q->segment, list, in_ofport, (__u64)*from << 32 | tables);
	if (i >= WEIR_MAX_LISTED)
		return NULL;
	*from = i + 1;
	return &list->rules[i];
}

/* The new window field, and RULE_OBSERVED. `clamper`: the rule with the id result->clamper, if there is one. */
static __always_inline __u32 rule_window_field(const struct rule_result *result, const struct rule_query *q,
					       const struct rule_candidate *clamper)
{
	__u32 field = rule_lowered_field(q, result->window_bytes);

	if (field != q->field && clamper->counts)
		rule_add_count(&clamper->counts->clamped, q->packets, clamper->shared);
	return result->observed ? field | RULE_OBSERVED : field;
}

/* If both rules are of one table, keeps the one with the higher priority and sets the other to NULL. */
static __always_inline void rule_settle(struct weir_rule **exact, struct weir_rule **listed)
{
	if (!*exact || !*listed || (*exact)->action.table_id != (*listed)->action.table_id)
		return;
	*((*exact)->action.priority >= (*listed)->action.priority ? listed : exact) = NULL;
}

/*
 * As rule_window_field, if the only rules that may match are `exact` and the listed rule with this tally. A global
 * function, so that the verifier need not follow each way through it with each way of the caller.
 */
__noinline __u32 rule_field_by_two(const struct rule_query *q, const struct weir_port *port, struct weir_rule *exact,
				   __u32 index)
{
	struct rule_candidate first, listed = rule_candidate_listed(index);
	struct rule_result result = NO_RULE_YET;

	if (!q || !port)
		return 0;
	if (exact && !rule_is_alive(&exact->action, &exact->tally, q->now_ns))
		exact = NULL;
	rule_settle(&exact, &listed.rule);
	first = rule_candidate_exact(exact, EXACT_RULE);
	if (first.rule)
		rule_hit_window(&result, q, port, &first);
	if (listed.rule)
		rule_hit_window(&result, q, port, &listed);
	return rule_window_field(&result, q, result.clamper == EXACT_RULE ? &first : &listed);
}

/* Applies a listed rule, unless it has expired. A global function, which the verifier checks once. */
__noinline int rule_hit_listed(struct rule_result *result, const struct rule_query *q, const struct weir_port *port,
			       __u32 tally)
{
	struct rule_candidate listed = rule_candidate_listed(tally);

	if (!result || !q || !port || !listed.rule)
		return 0;
	if (rule_is_alive(&listed.rule->action, &listed.rule->tally, q->now_ns))
		rule_hit_window(result, q, port, &listed);
	return 0;
}

/* As rule_window_field, by all rules of the ingress; `exact` may be NULL. */
__noinline __u32 rule_field_by_all(const struct rule_query *q, const struct weir_port *port,
				   const struct weir_port_state *state, struct weir_rule *exact)
{
	struct rule_candidate first = rule_candidate_exact(exact, EXACT_RULE), clamper;
	struct rule_result result = NO_RULE_YET;
	struct weir_listed *listed;
	struct weir_rule *armed;
	struct weir_list *list;
	__u32 from = 0;

	if (!q || !port || !state)
		return 0;
	list = rule_by_flags(q, port, WEIR_INGRESS) != WEIR_NO_RULE ? rule_list_of(port, WEIR_INGRESS) : NULL;
	if (exact && !rule_is_alive(&exact->action, &exact->tally, q->now_ns))
		exact = NULL;
	for (int hit = 0; hit < MAX_HITS; hit++) {
		listed = rule_next_hit(q, list, port->ofport, result.tables, &from);
		if (exact && (!listed || exact->action.priority >= listed->action.priority)) {
			rule_hit_window(&result, q, port, &first);
			exact = NULL;
		}
		if (!listed)
			break;
		rule_hit_listed(&result, q, port, listed->tally);
	}
	armed = rule_hit_armed(&result, q, port, state);
	if (result.clamper == EXACT_RULE)
		clamper = first;
	else if (result.clamper == ARMED_RULE)
		clamper = rule_candidate_exact(armed, ARMED_RULE);
	else
		clamper = rule_candidate_listed(result.clamper);
	return rule_window_field(&result, q, &clamper);
}

/* Takes in a listed rule of the egress, unless it has expired. A global function, which the verifier checks once. */
__noinline int rule_count_listed(struct rule_result *result, const struct rule_query *q, const struct weir_port *port,
				 __u32 tally)
{
	struct rule_candidate listed = rule_candidate_listed(tally);
	const struct weir_action *action;

	if (!result || !q || !port || !listed.rule)
		return 0;
	action = &listed.rule->action;
	if (!rule_is_alive(action, &listed.rule->tally, q->now_ns))
		return 0;
	rule_hit(result, &listed, q);
	if (action->count_ofport == WEIR_ANY_PORT || action->count_ofport == port->ofport)
		result->count_op = action->count_op;
	return 0;
}

/* The action on N_i of the rules of the egress: enum weir_count_op. */
__noinline __u32 rule_count_op(const struct rule_query *q, const struct weir_port *port)
{
	struct rule_result result = NO_RULE_YET;
	struct weir_listed *listed;
	struct weir_list *list;
	__u32 from = 0;

	if (!q || !port)
		return 0;
	list = rule_list_of(port, WEIR_EGRESS);
	for (int hit = 0; hit < MAX_HITS; hit++) {
		listed = rule_next_hit(q, list, port->ofport, result.tables, &from);
		if (!listed)
			break;
		rule_count_listed(&result, q, port, listed->tally);
	}
	return result.count_op;
}

/*
 * Whether the segment of a SYN belongs to a flow whose fair share is only observed, so that what its host offers stays
 * as it is. An entry that acts has no SYNs (SCCP, Table I). A global function, which the verifier checks once.
 */
__noinline __u32 rule_share_is_observed(const struct rule_query *q, const struct weir_port *port)
{
	struct weir_list *list;
	__u32 from = 0;

	if (!q || !port)
		return 0;
	if (port_observes_share(port))
		return 1;
	if (rule_by_flags(q, port, WEIR_INGRESS) == WEIR_NO_RULE)
		return 0;
	list = rule_list_of(port, WEIR_INGRESS);
	for (int hit = 0; hit < MAX_HITS; hit++) {
		struct weir_listed *listed = rule_next_hit(q, list, port->ofport, 0, &from);

		if (!listed)
			break;
		if (listed->action.window_op == WEIR_FAIR_SHARE)
			return listed->action.observes;
	}
	return 0;
}

#endif
