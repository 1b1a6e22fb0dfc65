/* SPDX-License-Identifier: GPL-2.0-only */
/* The maps; README.md lists who writes and who reads each. */
#ifndef WEIR_MAPS_H
#define WEIR_MAPS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_structs.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_settings);
} settings SEC(".maps");

/* An array look-up needs no call. A port has the same index in each array; see weir_port.h. */
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

/* Counts of every ACK, per CPU: an atomic operation would wait for all earlier writes, including those to cold memory.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_MAX_PORTS);
	__type(key, __u32); /* struct weir_port.slot */
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
 * IPv4 flows (weir_flow_table.h). In the kernel's hash map a look-up waits for three dependent cache misses; here it
 * waits for one. BPF_F_MMAPABLE aligns the values to a page, so that a slot is two whole cache lines, and lets the
 * agent read them in place. The agent sets max_entries.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DEFAULT_MAX_FLOWS / WEIR_FLOWS_PER_BUCKET);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct weir_bucket);
} flow_buckets SEC(".maps");

struct flow_lock {
	struct bpf_spin_lock lock;
};

/* Locks of the buckets; several buckets share one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOW_LOCKS);
	__type(key, __u32);
	__type(value, struct flow_lock);
} flow_locks SEC(".maps");

/*
 * IPv6 flows, and IPv4 flows whose bucket is full. Not an LRU map: if a counted flow were evicted it would stay in N_i
 * for ever. The agent sets max_entries.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DEFAULT_MAX_FLOWS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_flow_key);
	__type(value, struct weir_flow);
} other_flows SEC(".maps");

/*
 * The key of each flow, once. A sweep visits the flows in this order, because a walk over a table costs its size
 * instead of its content. Its max_entries limits the number of flows. The agent sets it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, DEFAULT_MAX_FLOWS);
	__type(value, struct weir_flow_key);
} flow_keys SEC(".maps");

/*
 * The keys of flows whose handshake is not complete, the oldest first. Its max_entries is the reserve for them, so that
 * no flood of SYNs takes the place of other flows. The agent sets it. A sweep takes out the keys of complete
 * handshakes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, DEFAULT_MAX_FLOWS / OPENING_FRACTION);
	__type(value, struct weir_flow_key);
} opening_keys SEC(".maps");

/* SYNs with another sequence number than that of their flow: at most one per flow (weir_offer.h). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_REOFFERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_flow_key);
	__type(value, struct weir_reoffer);
} reoffers SEC(".maps");

/* The hosts that send to ports which share by host. If it is full, the host that sent least recently is forgotten. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_HOSTS);
	__type(key, struct weir_host_key);
	__type(value, struct weir_host);
} hosts SEC(".maps");

/*
 * A call of the sweep visits one flow per entry (bpf_loop needs Linux 5.17). On a kernel without preemption nothing
 * else runs on the CPU during a call, so that this limits the delay.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SWEEP_STEPS);
	__type(key, __u32);
	__type(value, __u8);
} sweep_steps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_EXACT_RULES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_exact_key);
	__type(value, struct weir_rule);
} exact_rules SEC(".maps");

/* From 1; the agent changes it with each rule and each new port (rule_find_exact). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} rules_epoch SEC(".maps");

/* Armed (reflex) entries: exact rules that a crossing activates without the controller. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ARMED_RULES);
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

/* Spares most segments the search of a list. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * WEIR_MAX_BRIDGES);
	__type(key, __u32); /* 2 x bridge + direction */
	__type(value, struct weir_flags_table);
} list_flags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LISTED_RULES);
	__type(key, __u32); /* struct weir_listed.tally */
	__type(value, struct weir_rule);
} tallies SEC(".maps");

/* Counts of listed rules, per CPU: all segments match few rules. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_LISTED_RULES);
	__type(key, __u32); /* struct weir_listed.tally */
	__type(value, struct weir_counts);
} list_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENT_RING_BYTES);
} events SEC(".maps");

/* Flow reports. Room for 1.6 s of 50,000 connections per second with two reports each. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, REPORT_RING_BYTES);
} reports SEC(".maps");

/* Number of reports that were lost because `reports` was full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} reports_lost SEC(".maps");

#endif
