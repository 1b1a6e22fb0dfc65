/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records of an earlier version's maps are moved into these maps, while the programs work on them or still on the
 * earlier maps. The agent reads a record several times and sends the changes since its last reading, so that no
 * count is lost, whichever version handles a packet (docs/decisions/0066-upgrade-in-place.md).
 */
#ifndef WEIR_MOVE_H
#define WEIR_MOVE_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_flow.h"
#include "weir_flow_table.h"
#include "weir_maps.h"
#include "weir_port.h"
#include "weir_structs.h"

/* The counts of its port follow the membership of a flow, so that they are exact. N_i does only if it counts flows. */
static __always_inline void move_count_members(const struct weir_flow *flow, struct weir_port_state *state, __u32 bits,
					       __s32 by)
{
	if (bits & WEIR_IN_N_I && flow_changes_n_i())
		flow_change_n_i(flow, state, by);
	if (bits & WEIR_IN_TWO_SEGMENTS)
		__sync_fetch_and_add(&state->two_segment_flows, by);
}

/* Returns the bits that it changed: set ones in the lower half, cleared ones in the upper half. */
static __always_inline __u64 move_bits(__u32 *field, __u32 before, __u32 after)
{
	__u32 set = after & ~before, cleared = before & ~after;
	__u32 newly_set = set & ~__sync_fetch_and_or(field, set);

	return newly_set | (__u64)(cleared & __sync_fetch_and_and(field, ~cleared)) << 32;
}

/* The masks state the alignment, which the verifier has to know. A field outside the record is left alone. */
static __always_inline void move_edit_8(void *record, __u32 size, const struct weir_edit *edit)
{
	__u64 *field = record + (edit->at & ~7u);

	if ((edit->at & ~7u) > size - sizeof(*field))
		return;
	if (edit->kind == WEIR_SUM_8)
		__sync_fetch_and_add(field, edit->after - edit->before);
	else
		__sync_val_compare_and_swap(field, edit->before, edit->after);
}

static __always_inline __u64 move_edit_4(void *record, __u32 size, const struct weir_edit *edit)
{
	__u32 *field = record + (edit->at & ~3u), before = edit->before, after = edit->after;

	if ((edit->at & ~3u) > size - sizeof(*field))
		return 0;
	if (edit->kind == WEIR_BITS_4)
		return move_bits(field, before, after);
	if (edit->kind == WEIR_SUM_4)
		__sync_fetch_and_add(field, after - before);
	else
		__sync_val_compare_and_swap(field, before, after);
	return 0;
}

/* Applies the edits to a record of `size` bytes. Returns what the edit of a flow's `member` changed. */
static __always_inline __u64 move_edits(struct xdp_md *ctx, void *record, __u32 size)
{
	__u64 members = 0;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < WEIR_MAX_EDITS; i++) {
		struct weir_move *move = (void *)(long)ctx->data;
		struct weir_edit edit;
		__u64 changed = 0;

		if ((void *)(move + 1) > (void *)(long)ctx->data_end || i >= move->edits_len)
			break;
		edit = move->edits[i];
		if (edit.kind == WEIR_SET_8 || edit.kind == WEIR_SUM_8)
			move_edit_8(record, size, &edit);
		else
			changed = move_edit_4(record, size, &edit);
		if (edit.at == offsetof(struct weir_flow, member))
			members = changed;
	}
	return members;
}

/*
 * Makes a flow that is new here known to the sweep. False if its queue is full, so that the flow is removed. Unlike the
 * flow of a SYN it makes no older flow give way.
 */
static __always_inline bool move_enlist(const struct weir_flow_key *key, struct weir_flow *flow, __u32 kept, bool made)
{
	if (kept)
		return flow_keep(key, flow);
	if (!made || !bpf_map_push_elem(&opening_keys, key, 0))
		return true;
	flow_delete(key, flow);
	return false;
}

static __noinline int move_flow(struct xdp_md *ctx, struct weir_flow_key *key, __u32 kept)
{
	struct slot_search search = bucket_search_any(key);
	struct weir_port_state *state;
	struct weir_flow *flow;
	struct weir_port *port;
	__u64 members;
	bool made;

	flow = flow_find_or_claim(&search, key, &made);
	if (!flow || !move_enlist(key, flow, kept, made))
		return 0;
	members = move_edits(ctx, flow, sizeof(*flow));
	if (port_find(key->ifindex, &port, &state)) {
		move_count_members(flow, state, members, 1);
		move_count_members(flow, state, members >> 32, -1);
	}
	return 1;
}

static __always_inline int move_record(struct xdp_md *ctx, void *record, __u32 size)
{
	if (!record)
		return 0;
	move_edits(ctx, record, size);
	return 1;
}

static __noinline int move_indexed(struct xdp_md *ctx, __u32 what, __u32 index)
{
	switch (what) {
	case WEIR_MOVED_STATE:
		return move_record(ctx, bpf_map_lookup_elem(&port_states, &index), sizeof(struct weir_port_state));
	case WEIR_MOVED_ACKS:
		return move_record(ctx, bpf_map_lookup_elem(&ack_counts, &index), sizeof(struct weir_ack_counts));
	case WEIR_MOVED_LIST_COUNTS:
		return move_record(ctx, bpf_map_lookup_elem(&list_counts, &index), sizeof(struct weir_counts));
	case WEIR_MOVED_TALLY:
		return move_record(ctx, bpf_map_lookup_elem(&tallies, &index), sizeof(struct weir_rule));
	}
	return 0;
}

static __noinline int move_rule(struct xdp_md *ctx, __u32 what, struct weir_exact_key *key)
{
	if (what == WEIR_MOVED_EXACT)
		return move_record(ctx, bpf_map_lookup_elem(&exact_rules, key), sizeof(struct weir_rule));
	return move_record(ctx, bpf_map_lookup_elem(&armed_rules, key), sizeof(struct weir_rule));
}

#endif
