/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The flows that are tracked. One of IPv4 lies in the bucket that its key tells, at any of the bucket's places;
 * where all are taken, and if it is of IPv6, in a hash of the kernel's. Outside of here all have the long key.
 */
#ifndef WEIR_TRACKED_H
#define WEIR_TRACKED_H

#define CACHE_LINE 64
#define MIX_A 0x9e3779b97f4a7c15ull /* odd, with bits all over */
#define MIX_B 0xd6e8feb86659fd93ull

_Static_assert(sizeof(struct weir_place) == 2 * CACHE_LINE, "and a page holds whole ones");

static __always_inline void key_of(struct weir_flow_key *key, __u32 ifindex, const struct segment *s,
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

/* What an address differs in from one of IPv4. */
static __always_inline __u32 unmapped(const __u32 *address)
{
	return address[0] | address[1] | (address[2] ^ bpf_htonl(0xffff));
}

/* Both, for a frame of IPv6 may say anything. */
static __always_inline bool is_ipv4(const struct weir_flow_key *key)
{
	return !(unmapped(key->local) | unmapped(key->remote));
}

/* A key of IPv4 as the words that it is compared by. Those of a place that is free are never a flow's. */
struct place_key {
	__u64 near; /* ifindex, local */
	__u64 far;  /* remote, ports */
};

_Static_assert(sizeof(struct place_key) == sizeof(struct weir_ipv4_flow_key), "one is read as the other");

static __always_inline struct place_key place_key(__u32 ifindex, __u32 local, __u32 remote, __u16 local_port,
						  __u16 remote_port)
{
	struct weir_ipv4_flow_key key = {ifindex, local, remote, local_port, remote_port};
	struct place_key words;

	__builtin_memcpy(&words, &key, sizeof(words));
	return words;
}

static __always_inline struct place_key place_key_of(const struct weir_flow_key *key)
{
	return place_key(key->ifindex, key->local[3], key->remote[3], key->local_port, key->remote_port);
}

/* Where a key may lie: at any place of one bucket, looked for from one of them on. */
struct where {
	struct place_key key;
	struct weir_bucket *bucket; /* NULL: it is not of IPv4 */
	__u32 at;
	__u32 from;
};

/* No secret: whose flows are made to meet in one bucket has them in the kernel's hash, which has one. */
static __always_inline struct where where_of(struct place_key key)
{
	struct where where = {.key = key};
	__u64 mixed = (key.far ^ key.near * MIX_A) * MIX_B;
	__u64 buckets = ((struct bpf_map *)&flow_buckets)->max_entries;

	mixed = (mixed ^ mixed >> 32) * MIX_A;
	where.at = (mixed >> 32) * buckets >> 32;
	where.from = mixed;
	where.bucket = bpf_map_lookup_elem(&flow_buckets, &where.at);
	return where;
}

static __always_inline struct where where_any(const struct weir_flow_key *key)
{
	struct where nowhere = {};

	return is_ipv4(key) ? where_of(place_key_of(key)) : nowhere;
}

static __always_inline struct place_key *key_at(struct weir_place *place)
{
	return (void *)&place->key;
}

/* The place of `key` at so many from the first; NULL: another one's. */
static __always_inline struct weir_place *place_at(const struct where *where, struct place_key key, __u32 step)
{
	struct weir_place *place = &where->bucket->places[(where->from + step) & (WEIR_FLOW_PLACES - 1)];

	return key_at(place)->near == key.near && key_at(place)->far == key.far ? place : NULL;
}

/* The place of `key` where where->key may lie; NULL: none. */
static __always_inline struct weir_place *place_of(const struct where *where, struct place_key key)
{
	struct weir_place *place;

	if (!where->bucket)
		return NULL;
	place = place_at(where, key, 0);
	if (place)
		return place;
#pragma clang loop unroll(disable) /* all addresses at once would be more than the stack holds */
	for (__u32 step = 1; step < WEIR_FLOW_PLACES; step++) {
		place = place_at(where, key, step);
		if (place)
			return place;
	}
	return NULL;
}

static __always_inline struct weir_flow *placed_flow(const struct where *where)
{
	struct weir_place *place = place_of(where, where->key);

	return place ? &place->flow : NULL;
}

/* NULL: there is none. */
static __always_inline struct weir_flow *flow_there(const struct where *where, const struct weir_flow_key *key)
{
	struct weir_flow *flow = placed_flow(where);

	return flow ? flow : bpf_map_lookup_elem(&other_flows, key);
}

static __always_inline struct weir_flow *flow_at(const struct weir_flow_key *key)
{
	struct where where = where_any(key);

	return flow_there(&where, key);
}

/* The same for a segment; of IPv4 the long key is made last. */
static __always_inline struct weir_flow *flow_of(__u32 ifindex, const struct segment *s,
						 enum weir_direction direction)
{
	bool in = direction == WEIR_INGRESS;
	struct weir_flow *flow = NULL;
	struct weir_flow_key key;

	if (s->ip_version == 4) {
		struct where where =
			where_of(place_key(ifindex, in ? s->src[3] : s->dst[3], in ? s->dst[3] : s->src[3],
					   in ? s->src_port : s->dst_port, in ? s->dst_port : s->src_port));

		flow = placed_flow(&where);
	}
	if (flow)
		return flow;
	key_of(&key, ifindex, s, direction);
	return s->ip_version == 4 ? bpf_map_lookup_elem(&other_flows, &key) : flow_at(&key);
}

/* What an entry begins with; the stack has no room for it. */
static const struct weir_flow fresh;

/* NULL: the key has no bucket. */
static __always_inline struct bpf_spin_lock *lock_of(const struct where *where)
{
	__u32 at = where->at % FLOW_LOCKS;
	struct flow_lock *held = bpf_map_lookup_elem(&flow_locks, &at);

	return held && where->bucket ? &held->lock : NULL;
}

/* False: all places are taken, or it has one. Whoever reads the bucket meanwhile sees no key before its flow. */
static __always_inline bool take_place(const struct where *where)
{
	static const struct place_key nobody;
	struct bpf_spin_lock *lock = lock_of(where);
	struct weir_place *place;

	if (!lock)
		return false;
	bpf_spin_lock(lock);
	place = place_of(where, where->key) ? NULL : place_of(where, nobody);
	if (place) {
		place->flow = fresh;
		key_at(place)->far = where->key.far;
		__sync_lock_test_and_set(&key_at(place)->near, where->key.near);
	}
	bpf_spin_unlock(lock);
	return place;
}

/* False: it has none. */
static __always_inline bool leave_place(const struct where *where)
{
	struct bpf_spin_lock *lock = lock_of(where);
	struct weir_place *place;

	if (!lock)
		return false;
	bpf_spin_lock(lock);
	place = place_of(where, where->key);
	if (place) {
		__sync_lock_test_and_set(&key_at(place)->near, 0);
		key_at(place)->far = 0;
	}
	bpf_spin_unlock(lock);
	return place;
}

static __always_inline void forget_there(const struct where *where, const struct weir_flow_key *key)
{
	if (!leave_place(where))
		bpf_map_delete_elem(&other_flows, key);
}

static __always_inline void forget_flow(const struct weir_flow_key *key)
{
	struct where where = where_any(key);

	forget_there(&where, key);
}

/* The flow of a SYN, made where there is none yet. NULL: the table is full. */
static __always_inline struct weir_flow *flow_of_syn(__u32 ifindex, const struct segment *s,
						     enum weir_direction direction, __u64 now_ns)
{
	struct weir_flow_key key;
	struct weir_flow *flow;
	struct where where;
	bool made;

	key_of(&key, ifindex, s, direction);
	where = where_any(&key);
	flow = flow_there(&where, &key);
	if (flow)
		return flow;
	made = take_place(&where);
	if (!made && !placed_flow(&where))
		made = !bpf_map_update_elem(&other_flows, &key, &fresh, BPF_NOEXIST);
	flow = flow_there(&where, &key);
	if (!made || !flow)
		return flow;
	flow->first_ns = flow->last_ns = flow->payload_ns = now_ns;
	if (!bpf_map_push_elem(&flow_keys, &key, 0))
		return flow;
	forget_there(&where, &key); /* no sweep would find it */
	return NULL;
}

#endif
