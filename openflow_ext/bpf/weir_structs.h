/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the maps hold. The agent reads this very file (openflow_ext/switch/layout.py), so it keeps to
 * what a plain C declaration parser understands: no macros but numbers, no attributes.
 *
 * Addresses are IPv6; IPv4 ones are mapped (::ffff:a.b.c.d). Addresses and ports are in network order.
 * Times are the kernel's CLOCK_MONOTONIC in ns.
 */
#ifndef WEIR_STRUCTS_H
#define WEIR_STRUCTS_H

#define WEIR_MAX_LISTED 64
#define WEIR_ANY_PORT 0xffffffff
#define WEIR_NO_SCALE 0xff

enum weir_direction { WEIR_INGRESS, WEIR_EGRESS };
enum weir_window_op { WEIR_WINDOW_NONE, WEIR_MOD_WINDOW, WEIR_SET_WINDOW, WEIR_FAIR_SHARE };
enum weir_count_op { WEIR_COUNT_NONE, WEIR_INCREMENT_NI, WEIR_DECREMENT_NI };

/* ---- ports: facts by the agent, state by the programs ------------------------------------------ */

struct weir_port {
	__u32 bridge;
	__u32 ofport;
	__u64 capacity_bps;
	__u64 bdp_bytes;          /* capacity x common RTT; 0: no fair share is set here */
	__u64 look_ns;            /* RTT/2: how often a congested queue is looked at */
	__u32 k_pkts;             /* 0: no alarm */
	__u32 least_window_bytes; /* 0: one MSS of the flow */
	__u32 assumed_scale;      /* of flows whose handshake was not seen; WEIR_NO_SCALE: leave them alone */
	__u32 netns;              /* inode of the port's network namespace: ifindex alone is not unique */
};

enum weir_alarm { WEIR_QUIET, WEIR_CONGESTED };

struct weir_port_state {
	__u64 n_i;
	__u64 syns_counted;
	__u64 fins_counted;
	__u64 acks_seen;
	__u64 clamped;
	__u64 unscaled;
	__u64 untracked;
	__u64 marked;
	__u64 alarms;
	__u64 normals;
	__u32 queue_pkts;
	__u32 queue_bytes;
	__u32 queue_max_pkts;
	__u32 queue_max_bytes;
	__u32 alarm;       /* enum weir_alarm */
	__u32 quiet_looks; /* in a row, while congested */
};

/* ---- flows: one entry a port and connection ---------------------------------------------------- */

struct weir_flow_key {
	__u32 ifindex;
	__u32 local[4]; /* the host behind the port: the source of what comes in there */
	__u32 remote[4];
	__u16 local_port;
	__u16 remote_port;
};

enum weir_seen {
	WEIR_SYN_IN = 1,
	WEIR_SYN_OUT = 2,
	WEIR_FIN_IN = 4,
	WEIR_FIN_OUT = 8,
	WEIR_RST = 16,
	WEIR_WAS_COUNTED = 32
};

struct weir_half {
	__u32 isn;
	__u16 mss;       /* offered in its SYN; 536 where it offered none (RFC 9293, 3.7.1) */
	__u8 scale;      /* offered in its SYN; WEIR_NO_SCALE where it offered none */
	__u8 timestamps; /* offered in its SYN */
};

struct weir_flow {
	struct weir_half local;
	struct weir_half remote;
	__u64 first_ns;
	__u64 last_ns;
	__u64 out_bytes; /* leaving by the port, headers included */
	__u32 seen;      /* enum weir_seen */
	__u32 counted;   /* this flow is one of the port's N_i */
};

/* What weir_sweep is asked for and answers. */
struct weir_sweep {
	__u64 now_ns;
	__u64 closed_ns; /* flows that have ended leave when silent for this long, */
	__u64 silent_ns; /* others when silent for this long */
	__u32 ifindex;   /* not 0: all flows of this port leave, whatever their state */
	__u32 removed;
};

/* ---- the extension table ----------------------------------------------------------------------- */

struct weir_action {
	__u64 cookie;
	__u64 hard_end_ns; /* 0: none */
	__u64 idle_ns;     /* 0: none */
	__u32 window_bytes;
	__u32 count_ofport; /* WEIR_ANY_PORT: the port by which the segment leaves */
	__u16 priority;
	__u16 idle_timeout_s;
	__u16 hard_timeout_s;
	__u8 table_id;
	__u8 window_op;
	__u8 count_op;
	__u8 alpha;
	__u8 ip_version;
	__u8 pad[5];
};

struct weir_tally {
	__u64 packets;
	__u64 bytes;
	__u64 clamped;
	__u64 used_ns;
	__u32 window_bytes; /* MOD_WINDOW: what is left of it */
	__u32 pad;
};

struct weir_exact_key {
	__u32 bridge;
	__u32 src[4];
	__u32 dst[4];
	__u16 src_port;
	__u16 dst_port;
};

struct weir_exact {
	struct weir_action action;
	struct weir_tally tally;
};

/* A rule with something wild in it. A segment matches where (its value & mask) == value. */
struct weir_listed {
	struct weir_action action;
	__u32 src[4];
	__u32 src_mask[4];
	__u32 dst[4];
	__u32 dst_mask[4];
	__u16 src_port;
	__u16 src_port_mask;
	__u16 dst_port;
	__u16 dst_port_mask;
	__u16 flags;
	__u16 flags_mask;
	__u32 in_ofport;
	__u32 in_ofport_mask; /* 0: any */
	__u32 tally;          /* its place in the map of tallies */
};

struct weir_list_key {
	__u32 bridge;
	__u32 direction; /* enum weir_direction */
};

/* By falling priority. flags: segments without any of them match no rule of the list. */
struct weir_list {
	__u32 len;
	__u32 flags;
	__u32 tables; /* bit t: a rule of table t is here */
	__u32 pad;
	struct weir_listed rules[WEIR_MAX_LISTED];
};

/* ---- events ------------------------------------------------------------------------------------ */

struct weir_event {
	__u64 crossing_ns;
	__u32 ifindex;
	__u32 normal; /* 0 BUF_ALARM, 1 BUF_NORMAL */
	__u32 queue_pkts;
	__u32 queue_bytes;
	__u32 n_i;
	__u32 pad;
};

#endif
