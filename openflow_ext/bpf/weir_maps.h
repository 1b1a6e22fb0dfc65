/* SPDX-License-Identifier: GPL-2.0-only */
/* The maps. Each has one writer: settings, ports, lists and rules the agent; the rest the programs. */
#ifndef WEIR_MAPS_H
#define WEIR_MAPS_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_settings);
} settings SEC(".maps");

/* A look-up in an array costs no call. A port and its state lie at the same place; see weir_port.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_MAX_PORTS);
	__type(key, __u32);
	__type(value, struct weir_port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_MAX_PORTS);
	__type(key, __u32);
	__type(value, struct weir_port_state);
} port_states SEC(".maps");

/* What every ACK counts: an atomic operation would wait for what was written before, cold memory too. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_MAX_PORTS);
	__type(key, __u32); /* struct weir_port.place */
	__type(value, struct weir_ack_counts);
} ack_counts SEC(".maps");

struct alarm_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WEIR_MAX_PORTS);
	__type(key, __u32); /* ifindex */
	__type(value, struct alarm_timer);
} alarm_timers SEC(".maps");

/*
 * Those of IPv4 (weir_tracked.h). A table of our own, for by the kernel's a packet waits for three places in memory,
 * one after the other: here for one, whose address its key tells. BPF_F_MMAPABLE puts it on a page's begin, so that a
 * flow is two whole cache lines, and the agent reads it in place.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1000000 / WEIR_FLOWS_A_BUCKET);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct weir_bucket);
} flow_buckets SEC(".maps");

#define FLOW_LOCKS 4096

struct flow_lock {
	struct bpf_spin_lock lock;
};

/* Of the buckets; several have the same. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOW_LOCKS);
	__type(key, __u32);
	__type(value, struct flow_lock);
} flow_locks SEC(".maps");

/*
 * Those of IPv6, and those of IPv4 whose bucket is full. A plain hash, not an LRU: a counted flow that were evicted
 * would stay in N_i for ever.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1000000);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_flow_key);
	__type(value, struct weir_flow);
} other_flows SEC(".maps");

/*
 * The key of each flow in either table, once: what a sweep goes by, for a walk over a table costs its size, not what
 * it holds. There are no more flows than it has room for.
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1000000);
	__type(value, struct weir_flow_key);
} flow_keys SEC(".maps");

/*
 * A call of the sweep takes a flow for each of them (bpf_loop needs Linux 5.17); where the kernel does not preempt
 * itself nothing else runs on the CPU meanwhile.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, __u8);
} sweep_steps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1000000);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_exact_key);
	__type(value, struct weir_rule);
} exact_rules SEC(".maps");

/* From 1; another one with each rule and each port that comes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} rules_epoch SEC(".maps");

/* Reflex entries (ARM): exact rules that the data plane switches on and off by itself. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_exact_key);
	__type(value, struct weir_rule);
} armed_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * WEIR_MAX_BRIDGES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_list_key);
	__type(value, struct weir_list);
} lists SEC(".maps");

/* Most segments need no look at the list itself. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * WEIR_MAX_BRIDGES);
	__type(key, __u32); /* 2 bridge + direction */
	__type(value, struct weir_flags_table);
} list_flags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32); /* struct weir_listed.tally */
	__type(value, struct weir_rule);
} tallies SEC(".maps");

/* What listed rules count, each CPU for itself: few rules see all segments. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32); /* struct weir_listed.tally */
	__type(value, struct weir_counts);
} list_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

/* Flow reports: room for 1.6 s of 50,000 openings a second, two reports each. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} reports SEC(".maps");

/* Reports that found `reports` full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} reports_lost SEC(".maps");

#endif
