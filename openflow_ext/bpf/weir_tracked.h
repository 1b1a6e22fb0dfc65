/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The two tables of flows, as one: outside of here a flow of IPv4 has the long key too. By the short one the kernel
 * finds it sooner, and an entry, with the kernel's own 48 bytes before the key, is three cache lines, of which a
 * packet needs two.
 */
#ifndef WEIR_TRACKED_H
#define WEIR_TRACKED_H

#define CACHE_LINE 64

_Static_assert(sizeof(struct weir_ipv4_flow_key) == CACHE_LINE - 48, "the key ends a line");
_Static_assert(__builtin_offsetof(struct weir_flow, first_ns) == CACHE_LINE, "what each packet asks for is one");
_Static_assert(sizeof(struct weir_flow) == 2 * CACHE_LINE, "and the rest another");

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

static __always_inline struct weir_ipv4_flow_key ipv4_key(const struct weir_flow_key *key)
{
	return (struct weir_ipv4_flow_key){key->ifindex, key->local[3], key->remote[3], key->local_port,
					   key->remote_port};
}

/* The barrier keeps clang from making one call of the look-ups in both tables, which the kernel would not inline. */
static __always_inline struct weir_flow *ipv4_flow_at(const struct weir_ipv4_flow_key *key)
{
	struct weir_flow *flow = bpf_map_lookup_elem(&flows, key);

	barrier_var(flow);
	return flow;
}

/* NULL: there is none. */
static __always_inline struct weir_flow *flow_at(const struct weir_flow_key *key)
{
	struct weir_ipv4_flow_key ipv4 = ipv4_key(key);

	return is_ipv4(key) ? ipv4_flow_at(&ipv4) : bpf_map_lookup_elem(&ipv6_flows, key);
}

/* The same for a segment; of IPv4 the long key is not made. */
static __always_inline struct weir_flow *flow_of(__u32 ifindex, const struct segment *s,
						 enum weir_direction direction)
{
	bool in = direction == WEIR_INGRESS;
	struct weir_flow_key key;

	if (s->ip_version == 4) {
		struct weir_ipv4_flow_key ipv4 = {ifindex, in ? s->src[3] : s->dst[3], in ? s->dst[3] : s->src[3],
						  in ? s->src_port : s->dst_port, in ? s->dst_port : s->src_port};

		return ipv4_flow_at(&ipv4);
	}
	key_of(&key, ifindex, s, direction);
	return bpf_map_lookup_elem(&ipv6_flows, &key);
}

static __always_inline void forget_flow(const struct weir_flow_key *key)
{
	struct weir_ipv4_flow_key ipv4 = ipv4_key(key);

	if (is_ipv4(key))
		bpf_map_delete_elem(&flows, &ipv4);
	else
		bpf_map_delete_elem(&ipv6_flows, key);
}

/* What an entry begins with; the stack has no room for it. */
static const struct weir_flow fresh;

/* The flow of a SYN, made where there is none yet. NULL: the table is full. */
static __always_inline struct weir_flow *flow_of_syn(__u32 ifindex, const struct segment *s,
						     enum weir_direction direction, __u64 now_ns)
{
	struct weir_ipv4_flow_key ipv4;
	struct weir_flow_key key;
	struct weir_flow *flow;
	long refused;

	key_of(&key, ifindex, s, direction);
	flow = flow_at(&key);
	if (flow)
		return flow;
	ipv4 = ipv4_key(&key);
	refused = is_ipv4(&key) ? bpf_map_update_elem(&flows, &ipv4, &fresh, BPF_NOEXIST)
				: bpf_map_update_elem(&ipv6_flows, &key, &fresh, BPF_NOEXIST);
	flow = flow_at(&key);
	if (refused || !flow)
		return flow;
	flow->first_ns = flow->last_ns = flow->payload_ns = now_ns;
	if (!bpf_map_push_elem(&flow_keys, &key, 0))
		return flow;
	forget_flow(&key); /* no sweep would find it */
	return NULL;
}

#endif
