/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The flow table. An IPv4 flow is in a slot of the bucket to which its key hashes. If all slots of that bucket are
 * taken, and for IPv6, the flow is in the kernel's hash map other_flows. The functions for both take the long key
 * (docs/decisions/0021-flow-table-layout.md).
 */
#ifndef WEIR_TRACKED_H
#define WEIR_TRACKED_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_flow_bits.h"
#include "weir_maps.h"
#include "weir_parse.h"
#include "weir_structs.h"

_Static_assert(sizeof(struct weir_slot) == 2 * CACHE_LINE, "and a page holds whole ones");

static __always_inline void flow_key_of_segment(struct weir_flow_key *key, __u32 ifindex, const struct segment *s,
						enum weir_direction direction)
{
	key->ifindex = ifindex;
	if (direction == WEIR_INGRESS) {
		__builtin_memcpy(key->local, s->src, sizeof(s->src));
		__builtin_memcpy(key->remote, s->dst, sizeof(s->dst));
		key->local_port = s->src_port;
		key->remote_port = s->dst_port;
	} else {
		__builtin_memcpy(key->local, s->dst, sizeof(s->dst));
		__builtin_memcpy(key->remote, s->src, sizeof(s->src));
		key->local_port = s->dst_port;
		key->remote_port = s->src_port;
	}
}

/* 0 for an IPv4 address, which is mapped; the bits that differ otherwise. */
static __always_inline __u32 flow_address_ipv6_bits(const __u32 *address)
{
	return address[0] | address[1] | (address[2] ^ bpf_htonl(0xffff));
}

/* Both addresses, for an IPv6 packet may have a mapped address as one of them. */
static __always_inline bool flow_key_is_ipv4(const struct weir_flow_key *key)
{
	return !(flow_address_ipv6_bits(key->local) | flow_address_ipv6_bits(key->remote));
}

/* The key of an IPv4 flow as two words, which are compared. No flow's key equals that of a free slot. */
struct slot_key {
	__u64 near; /* ifindex and local address */
	__u64 far;  /* remote address and ports */
};

_Static_assert(sizeof(struct slot_key) == sizeof(struct weir_ipv4_flow_key), "one is read as the other");

static __always_inline struct slot_key slot_key_make(__u32 ifindex, __u32 local, __u32 remote, __u16 local_port,
						     __u16 remote_port)
{
	struct weir_ipv4_flow_key key = {ifindex, local, remote, local_port, remote_port};
	struct slot_key words;

	__builtin_memcpy(&words, &key, sizeof(words));
	return words;
}

static __always_inline struct slot_key slot_key_of(const struct weir_flow_key *key)
{
	return slot_key_make(key->ifindex, key->local[3], key->remote[3], key->local_port, key->remote_port);
}

/* Where a key may be: in any slot of one bucket, searched from first_slot on. */
struct slot_search {
	struct slot_key key;
	struct weir_bucket *bucket; /* NULL: the key is not of IPv4 */
	__u32 bucket_index;
	__u32 first_slot;
};

/*
 * The hash has no secret. If an attacker fills a bucket, further flows go to the kernel's hash map, whose hash has
 * one.
 */
static __always_inline struct slot_search bucket_search(struct slot_key key)
{
	struct slot_search search = {.key = key};
	__u64 mixed = (key.far ^ key.near * HASH_MULTIPLIER_A) * HASH_MULTIPLIER_B;
	__u64 buckets = ((struct bpf_map *)&flow_buckets)->max_entries;

	mixed = (mixed ^ mixed >> 32) * HASH_MULTIPLIER_A;
	search.bucket_index = (mixed >> 32) * buckets >> 32;
	search.first_slot = mixed;
	search.bucket = bpf_map_lookup_elem(&flow_buckets, &search.bucket_index);
	return search;
}

static __always_inline struct slot_search bucket_search_any(const struct weir_flow_key *key)
{
	struct slot_search no_bucket = {};

	return flow_key_is_ipv4(key) ? bucket_search(slot_key_of(key)) : no_bucket;
}

static __always_inline struct slot_key *slot_key_words(struct weir_slot *slot)
{
	return (void *)&slot->key;
}

/* The slot at `step` from the first if `key` is there, else NULL. */
static __always_inline struct weir_slot *slot_at(const struct slot_search *search, struct slot_key key, __u32 step)
{
	struct weir_slot *slot = &search->bucket->slots[(search->first_slot + step) & (WEIR_BUCKET_SLOTS - 1)];

	return slot_key_words(slot)->near == key.near && slot_key_words(slot)->far == key.far ? slot : NULL;
}

/* The slot that holds `key`, in the bucket of the search; NULL if none does. */
static __always_inline struct weir_slot *slot_find(const struct slot_search *search, struct slot_key key)
{
	struct weir_slot *slot;

	if (!search->bucket)
		return NULL;
	slot = slot_at(search, key, 0);
	if (slot)
		return slot;
#pragma clang loop unroll(disable) /* unrolled, the addresses of all slots would exceed the stack */
	for (__u32 step = 1; step < WEIR_BUCKET_SLOTS; step++) {
		slot = slot_at(search, key, step);
		if (slot)
			return slot;
	}
	return NULL;
}

static __always_inline struct weir_flow *bucket_find_flow(const struct slot_search *search)
{
	struct weir_slot *slot = slot_find(search, search->key);

	return slot ? &slot->flow : NULL;
}

/* NULL: there is none. */
static __always_inline struct weir_flow *flow_find_at(const struct slot_search *search, const struct weir_flow_key *key)
{
	struct weir_flow *flow = bucket_find_flow(search);

	return flow ? flow : bpf_map_lookup_elem(&other_flows, key);
}

static __always_inline struct weir_flow *flow_find(const struct weir_flow_key *key)
{
	struct slot_search search = bucket_search_any(key);

	return flow_find_at(&search, key);
}

/* As flow_find, for a segment. For IPv4 the long key is built only if the bucket does not have the flow. */
static __always_inline struct weir_flow *flow_of_segment(__u32 ifindex, const struct segment *s,
							 enum weir_direction direction)
{
	bool in = direction == WEIR_INGRESS;
	struct weir_flow *flow = NULL;
	struct weir_flow_key key;

	if (s->ip_version == 4) {
		struct slot_search search =
			bucket_search(slot_key_make(ifindex, in ? s->src[3] : s->dst[3], in ? s->dst[3] : s->src[3],
						    in ? s->src_port : s->dst_port, in ? s->dst_port : s->src_port));

		flow = bucket_find_flow(&search);
	}
	if (flow)
		return flow;
	flow_key_of_segment(&key, ifindex, s, direction);
	return s->ip_version == 4 ? bpf_map_lookup_elem(&other_flows, &key) : flow_find(&key);
}

/* The initial value of a flow; the stack is too small for it. */
static const struct weir_flow empty_flow;

/* NULL: the key has no bucket. */
static __always_inline struct bpf_spin_lock *bucket_lock(const struct slot_search *search)
{
	__u32 at = search->bucket_index % FLOW_LOCKS;
	struct flow_lock *held = bpf_map_lookup_elem(&flow_locks, &at);

	return held && search->bucket ? &held->lock : NULL;
}

/*
 * Puts an empty flow with the key into a free slot. False if no slot is free or the key has one. The first word of
 * the key is written last and atomically, so that a reader finds the key only with its flow.
 */
static __always_inline bool slot_claim(const struct slot_search *search)
{
	static const struct slot_key no_key;
	struct bpf_spin_lock *lock = bucket_lock(search);
	struct weir_slot *slot;

	if (!lock)
		return false;
	bpf_spin_lock(lock);
	slot = slot_find(search, search->key) ? NULL : slot_find(search, no_key);
	if (slot) {
		slot->flow = empty_flow;
		slot_key_words(slot)->far = search->key.far;
		__sync_lock_test_and_set(&slot_key_words(slot)->near, search->key.near);
	}
	bpf_spin_unlock(lock);
	return slot;
}

/* False if the key has no slot. */
static __always_inline bool slot_release(const struct slot_search *search)
{
	struct bpf_spin_lock *lock = bucket_lock(search);
	struct weir_slot *slot;

	if (!lock)
		return false;
	bpf_spin_lock(lock);
	slot = slot_find(search, search->key);
	if (slot) {
		__sync_lock_test_and_set(&slot_key_words(slot)->near, 0);
		slot_key_words(slot)->far = 0;
	}
	bpf_spin_unlock(lock);
	return slot;
}

static __always_inline void flow_delete_at(const struct slot_search *search, const struct weir_flow_key *key)
{
	if (!slot_release(search))
		bpf_map_delete_elem(&other_flows, key);
}

static __always_inline void flow_delete(const struct weir_flow_key *key, const struct weir_flow *flow)
{
	struct slot_search search = bucket_search_any(key);

	if (flow->flags & WEIR_REOFFERED)
		bpf_map_delete_elem(&reoffers, key);
	flow_delete_at(&search, key);
}

/*
 * The reserve of flows that are being opened is full: the oldest of them makes room, so that a flood of SYNs keeps no
 * new flow out. The mark of a sweep (weir_sweep.h) gives its room too. Another CPU may complete the handshake of that
 * flow now and count it: the first of WEIR_GIVES_WAY and WEIR_KEPT decides. A global function, which the verifier
 * checks once.
 */
__noinline int opening_make_room(void)
{
	struct weir_flow_key oldest = {};
	struct weir_flow *flow;

	if (bpf_map_pop_elem(&opening_keys, &oldest))
		return 0;
	flow = flow_find(&oldest);
	if (flow && !(flow->flags & WEIR_KEPT) && !(flow_set(flow, WEIR_GIVES_WAY) & WEIR_KEPT))
		flow_delete(&oldest, flow);
	return 0;
}

/* The flow of a key, which is created empty if it is new (`made`). NULL if it finds no room. */
static __always_inline struct weir_flow *flow_find_or_claim(const struct slot_search *search,
							    const struct weir_flow_key *key, bool *made)
{
	struct weir_flow *flow = flow_find_at(search, key);

	*made = false;
	if (flow)
		return flow;
	*made = slot_claim(search);
	if (!*made && !bucket_find_flow(search))
		*made = !bpf_map_update_elem(&other_flows, key, &empty_flow, BPF_NOEXIST);
	return flow_find_at(search, key);
}

/* The flow of a SYN, created if it is new. NULL if the table is full. */
static __always_inline struct weir_flow *flow_find_or_create(const struct weir_flow_key *key, __u64 now_ns)
{
	struct slot_search search = bucket_search_any(key);
	struct weir_flow *flow;
	bool made;

	flow = flow_find_or_claim(&search, key, &made);
	if (!made || !flow)
		return flow;
	flow->first_ns = flow->last_ns = flow->last_payload_ns = now_ns;
	if (!bpf_map_push_elem(&opening_keys, key, 0))
		return flow;
	opening_make_room();
	if (!bpf_map_push_elem(&opening_keys, key, 0))
		return flow;
	flow_delete_at(&search, key); /* without a key in a queue no sweep would find the flow */
	return NULL;
}

/*
 * The handshake is complete: the flow leaves the reserve. False if the table is full, or the flow makes room in the
 * reserve at this moment, so that the flow is removed.
 */
static __always_inline bool flow_keep(const struct weir_flow_key *key, struct weir_flow *flow)
{
	__u32 before;

	if (flow->flags & WEIR_KEPT)
		return true;
	before = flow_set(flow, WEIR_KEPT);
	if (before & WEIR_KEPT)
		return true;
	if (before & WEIR_GIVES_WAY)
		return false;
	if (!bpf_map_push_elem(&flow_keys, key, 0))
		return true;
	flow_delete(key, flow);
	return false;
}

#endif
