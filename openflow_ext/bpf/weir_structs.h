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
#define WEIR_MAX_BRIDGES 256
#define WEIR_MAX_PORTS 4096
#define WEIR_PORT_PLACES 8 /* a port lies at the first that is free of so many places, from its ifindex on */
#define WEIR_ANY_PORT 0xffffffff
#define WEIR_NO_SCALE 0xff
#define WEIR_PLAIN_FLAGS 64 /* FIN, SYN, RST, PSH, ACK, URG */
#define WEIR_FLOW_PLACES 8 /* of a bucket (weir_tracked.h) */
#define WEIR_FLOWS_A_BUCKET 4 /* that are expected of max_flows */

enum weir_direction { WEIR_INGRESS, WEIR_EGRESS };
enum weir_window_op { WEIR_WINDOW_NONE, WEIR_MOD_WINDOW, WEIR_SET_WINDOW, WEIR_FAIR_SHARE };
enum weir_mark { WEIR_MARK_OFF, WEIR_MARK_STEP, WEIR_MARK_RAMP };
enum weir_count_op { WEIR_COUNT_NONE, WEIR_INCREMENT_NI, WEIR_DECREMENT_NI };

/* ---- the whole host, by the agent -------------------------------------------------------------- */

struct weir_settings {
	__u64 unix_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	__u32 report_kinds;   /* bit k: flow reports of enum weir_report_kind k are wanted */
	__u32 simple_count;   /* N_i is the paper's integer: one a matching packet, no flow state */
	__u32 report_wakes;   /* a report wakes the agent; else the agent looks by itself */
	__u32 pad;
};

/* ---- ports: facts by the agent, state by the programs ------------------------------------------ */

struct weir_port {
	__u32 ifindex; /* 0: no port is here */
	__u32 bridge;
	__u32 ofport;
	__u64 capacity_bps;
	__u64 bdp_bytes;          /* capacity x common RTT; 0: no fair share is set here */
	__u64 round_trips_ns;     /* a turn, where the queue is empty */
	__u64 look_ns;            /* RTT/2: how often a congested queue is looked at */
	__u32 k_pkts;             /* 0: no alarm */
	__u32 least_window_bytes; /* 0: one MSS of the flow */
	__u32 buffer_bytes;       /* what its queue holds; 0: not known */
	__u32 turn_shift;         /* a turn lasts 2^turn_shift ns (weir_share.h); 0: all of N_i share */
	__u32 no_share;           /* for the agent's readers: why bdp_bytes is 0 (NoShare of dataplane.py) */
	__u32 assumed_scale;      /* of flows whose handshake was not seen; WEIR_NO_SCALE: leave them alone */
	__u32 place;              /* where it lies in its arrays */
	__u32 netns;              /* inode of the port's network namespace: ifindex alone is not unique */
	__u32 mark_mode;          /* enum weir_mark: CE on ECN-capable packets, */
	__u32 mark_min_pkts;      /* where the queue is longer than this, */
	__u32 mark_max_pkts;      /* and surely from here on (the ramp's end) */
	__u32 armed;              /* how many reflex entries this port has */
	/* What the programs do not need, kept here for the agent's successor: */
	__u64 cookie;
	__u64 asked_capacity_bps; /* 0: the port's own */
	__u32 common_rtt_us;
	__u32 rtt_us;
	__u32 priority;
	__u32 asked_k_pkts;
};

enum weir_alarm { WEIR_QUIET, WEIR_CONGESTED };

struct weir_port_state {
	__u64 n_i;
	__u64 syns_counted;
	__u64 fins_counted;
	__u64 unscaled;
	__u64 untracked;
	__u64 marked;
	__u64 alarms;
	__u64 normals;
	__u64 looked_ns; /* when the queue was last looked at, while congested */
	__u64 moved_ns;  /* when a packet last came or went, while congested */
	__u32 queue_pkts;
	__u32 queue_bytes;
	__u32 queue_max_pkts;
	__u32 queue_max_bytes;
	__u32 alarm;        /* enum weir_alarm */
	__u32 quiet_looks;  /* in a row, while congested */
	__u32 looks;        /* since the crossing */
	__u32 reflex_level; /* armed entries of rank < level are on */
	__u32 reflex_epoch; /* counts the crossings: what an entry left of its window lasts one epoch */
	__u32 paired;       /* flows of N_i that have two segments for the least */
	__u64 tick;         /* the kernel's count of clock ticks */
	__u64 tick_ns;      /* and its coarse time, together */
	__u64 sharing[2];   /* flows that sent in the last even and the last odd turn (weir_share.h) */
	__u64 turn_ns;      /* when this one began, */
	__u64 emptied_ns;   /* and the tick at which the queue was last looked at for its end */
	__u32 turn;
	__u32 pad;
	__u64 crowd_ns;     /* when the port had */
	__u32 crowd;        /* so many flows, the most of late (weir_mss.h) */
	__u32 burst;        /* flows and connections to be, with those of */
	__u64 burst_ns;     /* the burst of SYNs that began then */
	__u64 widened_ns;   /* until when no flow is told more than one that waits (may_widen) */
};

/* Of a port, each CPU for itself. */
struct weir_ack_counts {
	__u64 seen;
	__u64 clamped;
};

/* ---- flows: one entry a port and connection ---------------------------------------------------- */

struct weir_flow_key {
	__u32 ifindex;
	__u32 local[4]; /* the host behind the port: the source of what comes in there */
	__u32 remote[4];
	__u16 local_port;
	__u16 remote_port;
};

/* Of an IPv4 flow in its bucket. */
struct weir_ipv4_flow_key {
	__u32 ifindex;
	__u32 local;
	__u32 remote;
	__u16 local_port;
	__u16 remote_port;
};

enum weir_seen {
	WEIR_SYN_IN = 1,
	WEIR_SYN_OUT = 2,
	WEIR_FIN_IN = 4,
	WEIR_FIN_OUT = 8,
	WEIR_RST = 16,
	WEIR_WAS_COUNTED = 32,
	WEIR_IDLE = 64,        /* counted before, not now: no payload for long */
	WEIR_ESTABLISHED = 128,
	WEIR_SYN_AGAIN = 256,  /* a SYN was repeated: the handshake tells no RTT */
	WEIR_FITTED = 512,     /* the segments towards the local host fill whole steps of its windows */
	WEIR_SINGLE = 1024,    /* its window was last told to hold one of them at the least */
	WEIR_HALVES = 2048,    /* the remote host was never told a window of two: it sends halves of one */
	WEIR_BEGINS = 4096     /* it sends after turns without, and was told no share of those that send yet */
};

struct weir_half {
	__u16 mss;       /* offered in its SYN; 536 where it offered none (RFC 9293, 3.7.1) */
	__u8 scale;      /* offered in its SYN, as it went on; WEIR_NO_SCALE where it offered none */
	__u8 timestamps; /* offered in its SYN */
};

/* What each packet of a flow asks for comes first, up to first_ns. */
struct weir_flow {
	struct weir_half local;
	struct weir_half remote;
	__u64 last_ns;     /* of the last segment, either way */
	__u64 payload_ns;  /* of the last payload that left by the port */
	__u64 out_bytes;   /* leaving by the port, headers included */
	__u32 seen;        /* enum weir_seen */
	__u32 turn;        /* the port's in which it was last counted as one that sends */
	__u32 acked;       /* by the local host */
	__u32 late_ack_us; /* of the last pure ACK that came long after its data; 0: none */
	__u32 no_exact_in; /* the rules_epoch in which the flow's ACKs have no exact rule */
	__u32 paired;      /* its window never falls below two segments; one of the port's `paired` */
	__u16 segment;     /* payload of the largest that left by the port */
	__u8 finer;        /* so much less than its own is the local host's scale told to be */
	__u8 pad[5];
	__u64 first_ns;    /* of the first SYN */
	__u64 reported_ns; /* when it was last reported active */
	__u64 swept_ns;    /* now_ns of the sweep that last came by */
	__u32 counted;     /* this flow is one of the port's N_i */
	__u32 local_isn;   /* initial sequence numbers */
	__u32 remote_isn;
	__u32 spare[3];    /* to the end of a line */
};

/* Of IPv4, with its key: two cache lines. */
struct weir_place {
	struct weir_ipv4_flow_key key; /* ifindex 0: the place is free */
	struct weir_flow flow;
};

struct weir_bucket {
	struct weir_place places[WEIR_FLOW_PLACES];
};

/* What weir_sweep is asked for and answers. */
struct weir_sweep {
	__u64 now_ns;
	__u64 closed_ns; /* flows that have ended leave when silent for this long, */
	__u64 silent_ns; /* others when silent for this long, */
	__u64 translated_ns; /* and those for this long whose windows would be too small for good; */
	__u64 idle_ns;   /* those without payload for this long leave N_i; 0: none */
	__u64 active_ns; /* active flows are reported this often; 0: never */
	__u32 ifindex;   /* not 0: all flows of this port leave, whatever their state */
	__u32 removed;
	__u32 idled;
	__u32 all;       /* not 0: every flow is reported, as active or idle */
	__u32 over;      /* not 0: all flows have been looked at; else it is run again with the same now_ns */
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
	__u8 pad;
	__u32 rank;          /* of a reflex entry, */
	__u32 armed_ifindex; /* and the port whose crossing switches it on */
};

struct weir_counts {
	__u64 packets;
	__u64 bytes;
	__u64 clamped;
};

struct weir_tally {
	struct weir_counts counts; /* of a listed rule they are in the map of counts */
	__u64 used_ns;
	__u32 window_bytes; /* MOD_WINDOW: what is left of it */
	__u32 epoch;        /* of a reflex entry: for which crossing that is */
};

struct weir_exact_key {
	__u32 bridge;
	__u32 src[4];
	__u32 dst[4];
	__u16 src_port;
	__u16 dst_port;
};

struct weir_rule {
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
	__u32 tally;          /* its place in the maps of tallies and of counts */
};

struct weir_list_key {
	__u32 bridge;
	__u32 direction; /* enum weir_direction */
};

/* By falling priority. */
struct weir_list {
	__u32 len;
	__u32 tables; /* bit t: a rule of table t is here */
	struct weir_listed rules[WEIR_MAX_LISTED];
};

/*
 * What a list does with all segments of an IP version and a set of flags: nothing, what the one rule does whose
 * tally lies at FIRST_RULE and so many places, or different things with some of them.
 */
enum weir_by_flags { WEIR_NO_RULE, WEIR_FIRST_RULE, WEIR_ASK_LIST = 0xffff };

/* First of IPv4, then of IPv6. */
struct weir_flags_table {
	__u16 rule[2 * WEIR_PLAIN_FLAGS];
};

/* ---- events ------------------------------------------------------------------------------------ */

enum weir_event_kind { WEIR_BUF_ALARM, WEIR_BUF_NORMAL, WEIR_REFLEX_ON, WEIR_REFLEX_OFF };

struct weir_event {
	__u64 crossing_ns;
	__u32 ifindex;
	__u32 kind; /* enum weir_event_kind */
	__u32 queue_pkts;
	__u32 queue_bytes;
	__u32 n_i;
	__u32 rank; /* of the reflex entry that went on; with WEIR_REFLEX_OFF all are off */
};

enum weir_report_kind { WEIR_FLOW_OPENED = 1, WEIR_FLOW_ACTIVE, WEIR_FLOW_IDLE, WEIR_FLOW_CLOSED };
enum weir_close_reason { WEIR_NOT_CLOSED, WEIR_BY_FIN, WEIR_BY_RST, WEIR_BY_SILENCE };

/* One record of OFPT_FLOW_REPORT as it goes over the wire (docs/wire-format.md): big endian. */
struct weir_report {
	__u32 bridge; /* for the agent, not on the wire; host order */
	__u32 pad0;
	__u8 kind;
	__u8 ip_version;
	__u8 scale_src;
	__u8 scale_dst;
	__u32 src[4];
	__u32 dst[4];
	__u16 src_port;
	__u16 dst_port;
	__u16 mss_src;
	__u16 mss_dst;
	__u32 in_port;
	__u32 out_port;
	__u32 pad1;
	__u64 sent_bytes;
	__u64 first_ns; /* Unix time, like last_ns */
	__u64 last_ns;
	__u32 handshake_rtt_us;
	__u8 reason;
	__u8 pad2[3];
};

#endif
