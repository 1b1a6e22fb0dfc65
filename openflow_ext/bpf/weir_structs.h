/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The structs and constants of the maps. The agent parses this file (../switch/dataplane/structs.py), so it keeps to
 * plain C declarations: no macros but numbers, no attributes.
 *
 * Addresses are IPv6 addresses; an IPv4 address is mapped (::ffff:a.b.c.d). Addresses and ports are in network
 * order. Times are CLOCK_MONOTONIC in ns.
 */
#ifndef WEIR_STRUCTS_H
#define WEIR_STRUCTS_H

#include "vmlinux.h"

#define WEIR_MAX_LISTED 64
#define WEIR_MAX_BRIDGES 256
#define WEIR_MAX_PORTS 4096
#define WEIR_PORT_SLOTS 8 /* a port is in the slot of its ifindex or one of the next */
#define WEIR_ANY_PORT 0xffffffff
#define WEIR_NO_SCALE 0xff
#define WEIR_PLAIN_FLAGS 64         /* FIN, SYN, RST, PSH, ACK and URG: 6 bits */
#define WEIR_FULL_WEIGHT 65536      /* of a flow in the division of a corrected allowance; */
#define WEIR_PUNISHED_FRACTION 16   /* a punished one may have this part of it, */
#define WEIR_MOST_HOST_SENDERS 4096 /* and one of a host with several active flows at least this part */
#define WEIR_USE_STEPS 15           /* the largest step of a flow that uses little of its share (weir_use.h) */
#define WEIR_BUCKET_SLOTS 8         /* slots of a bucket (weir_flow_table.h) */
#define WEIR_FLOWS_PER_BUCKET 4     /* expected load: there are max_flows / this buckets */
#define WEIR_MEANING 5              /* raise it if a field means something else than before (upgrade/meanings.py) */
#define WEIR_MAX_EDITS 32           /* of a record, in one run of weir_move */

enum weir_direction { WEIR_INGRESS, WEIR_EGRESS };
enum weir_window_op { WEIR_WINDOW_NONE, WEIR_MOD_WINDOW, WEIR_SET_WINDOW, WEIR_FAIR_SHARE };
enum weir_mark { WEIR_MARK_OFF, WEIR_MARK_STEP, WEIR_MARK_RAMP };
enum weir_count_op { WEIR_COUNT_NONE, WEIR_INCREMENT_NI, WEIR_DECREMENT_NI };

/* ---- the whole host, written by the agent ------------------------------------------------------ */

struct weir_settings {
	__u64 unix_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	__u32 report_kinds;   /* bit k: send flow reports of enum weir_report_kind k */
	__u32 simple_count;   /* 1: N_i is the paper's integer, one per matching packet, whatever the flow's state */
	__u32 report_wakes;   /* 1: a report wakes the agent if none waits already; 0: the agent polls */
	__u32 meaning;        /* WEIR_MEANING of the version that made the maps; 0: a version before it had a number */
};

/* ---- ports: settings written by the agent, state written by the programs ----------------------- */

struct weir_port {
	__u32 ifindex; /* 0: this slot is free */
	__u32 bridge;
	__u32 ofport;
	__u32 observes; /* bit n: actions of enum weir_window_op n only count; bit WEIR_WINDOW_NONE: so do marks */
	__u64 capacity_bps;
	__u64 bdp_bytes;          /* capacity x common RTT; 0: the port sets no fair share */
	__u64 short_turn_ns;      /* length of a turn while the queue is empty: two common RTTs */
	__u64 check_interval_ns;  /* RTT/2, at least 50 us: how often the queue is checked during an alarm */
	__u32 k_pkts;             /* alarm threshold K; 0: no alarm */
	__u32 least_window_bytes; /* the least window that a clamp sets; 0: one MSS of the flow */
	__u32 buffer_bytes;       /* size of the port's queue; 0: unknown */
	__u32 turn_shift;         /* a turn lasts 2^turn_shift ns (weir_share.h); 0: all of N_i share the port */
	__u32 no_share;           /* why bdp_bytes is 0 (NoShare in the agent); the programs do not read it */
	__u32 assumed_scale; /* window scale assumed if no handshake was seen; WEIR_NO_SCALE: do not clamp such flows */
	__u32 slot;          /* index of this port in ports, port_states and ack_counts */
	__u32 netns;         /* inode of the port's network namespace: ifindex alone is not unique */
	__u32 mark_mode;     /* enum weir_mark: whether ECN-capable packets get CE */
	__u32 mark_min_pkts; /* no packet is marked up to this queue length */
	__u32 mark_max_pkts; /* every packet is marked from this queue length on (end of the ramp) */
	__u32 armed_entries; /* number of armed (reflex) entries of this port */
	__u64 link_ns; /* the time of 2^16 bytes on the link; 0: the allowance stays bdp_bytes (weir_allowance.h) */
	/* The programs do not read the rest. The maps keep it for the next agent, which adopts them. */
	__u64 cookie;
	__u64 asked_capacity_bps; /* as configured; 0: the rate of the port itself */
	__u32 common_rtt_us;
	__u32 rtt_us;
	__u32 priority;
	__u32 asked_k_pkts;
	__u32 corrects_allowance;
	__u32 observes_share; /* as a controller asked */
	__u32 omits;          /* enum weir_omission; the programs do read this one, */
	__u32 by_host;        /* and this one: the allowance is divided among hosts first (weir_host.h) */
};

/*
 * What a port does without, of that which Weir adds to SCCP as published (docs/decisions/0065-what-brings-what.md).
 * PORT_CONFIG has the same bits as flags. The agent sets no turns for a port without active senders.
 */
enum weir_omission {
	WEIR_OMIT_FITTING = 32,         /* SYNs are not changed */
	WEIR_OMIT_FINER_SCALE = 64,     /* the window scale in SYNs is not changed */
	WEIR_OMIT_PSH = 128,            /* segments do not get PSH */
	WEIR_OMIT_ACTIVE_SENDERS = 256, /* all of N_i share the port */
	WEIR_OMIT_CROWD = 512,          /* the peak of N_i is not remembered */
	WEIR_OMIT_TWO_SEGMENTS = 1024   /* no flow's least window becomes larger than one segment */
};

enum weir_alarm { WEIR_QUIET, WEIR_CONGESTED };

/*
 * What held a port's allowance at its last correction: nothing; its least value, which is a segment for each active
 * sender, and at least two; what fits into the queue, although the link was starved; that and what the link carries in
 * the shortest round trip; or the largest value of all. WEIR_LIMIT_HANDSHAKE: it has not been corrected yet, and a
 * handshake's RTT determines it.
 */
enum weir_allowance_limit {
	WEIR_LIMIT_NONE,
	WEIR_LIMIT_SEGMENTS,
	WEIR_LIMIT_QUEUE,
	WEIR_LIMIT_MOST,
	WEIR_LIMIT_HANDSHAKE,
	WEIR_LIMIT_ROUND_TRIP
};

struct weir_port_state {
	__u64 n_i;
	__u64 syns_counted;
	__u64 fins_counted;
	__u64 unscaled;
	__u64 untracked;
	__u64 marked;
	__u64 alarms;
	__u64 normals;
	__u64 checked_ns; /* when the queue was last checked, during an alarm */
	__u64 changed_ns; /* when a packet was last enqueued or dequeued, during an alarm */
	__u32 queue_pkts;
	__u32 queue_bytes;
	__u32 queue_max_pkts;
	__u32 queue_max_bytes;
	__u32 alarm;             /* enum weir_alarm */
	__u32 quiet_checks;      /* consecutive checks at or below K, during an alarm */
	__u32 checks;            /* checks since the crossing */
	__u32 reflex_level;      /* armed entries of a rank below this are active */
	__u32 reflex_epoch;      /* number of crossings; a window that an armed entry decreased is kept for one */
	__u32 two_segment_flows; /* flows of N_i whose least window is two segments */
	__u64 alarmed_ns;        /* when the last alarm was sent */
	__u32 alarm_epoch;       /* the rules_epoch of that alarm */
	__u32 alarm_repeats;     /* alarms sent since that epoch began */
	__u32 alarmed_pkts;      /* the length of the queue at that alarm */
	__u32 disbelieved;       /* SYN, FIN and RST that the hosts would not believe */
	__u64 tick;              /* the kernel's tick count (jiffies) at which */
	__u64 tick_ns;           /* the coarse clock showed this time */
	__u64 sent_in_turn[2];   /* flows that sent in the last even and in the last odd turn (weir_share.h) */
	__u64 turn_start_ns;     /* when the current turn began */
	__u64 turn_checked_ns;   /* tick at which an empty queue was last checked for the end of the turn */
	__u32 turn;
	__u32 allowance_limit; /* enum weir_allowance_limit */
	__u64 crowd_ns;        /* when the port had that many flows: */
	__u32 crowd;           /* the remembered peak of the flows (weir_crowd.h) */
	__u32 burst_flows;     /* flows and connections being opened, since a burst of SYNs began */
	__u64 burst_start_ns;  /* when that burst began */
	__u64 next_growth_ns;  /* no flow's share may grow before this time (share_may_grow) */
	__u64 drops;           /* packets that the port's qdiscs dropped, as far as the tracepoints saw them */
	__u64 qdisc;           /* the root of the qdisc that the tracepoints saw last (its address); 0: none */
	__u32 qdisc_drops;     /* drops of that qdisc that are in `drops`, or came before the port was entered */
	__u32 qdisc_per_cpu;   /* 1: each queue has its own, or it counts per CPU: only netlink has the sum */
	/* The allowance and its current interval (weir_allowance.h). */
	__u64 link_free_ns;      /* when the link has sent all that departed so far */
	__u64 emptied_ns;        /* when the queue last became empty */
	__u64 interval_start_ns; /* leaves out the pauses of applications */
	__u64 starved_ns;        /* time in which the link was idle and flows waited for a window */
	__u64 departed_bytes;
	__u64 short_turn_ns;   /* as in weir_port, for the present allowance; 0: as there */
	__u32 allowance_bytes; /* 0: not yet corrected, bdp_bytes holds */
	__u32 queue_min_bytes;
	__u32 turn_shift;        /* as in weir_port, for the present allowance; 0: as there */
	__u32 window_limits;     /* bit n: n corrections ago the window limited a flow (weir_limit.h) */
	__u32 settled;           /* 1: what departs now was sent under the present allowance */
	__u32 was_starved;       /* 1: so was the interval before */
	__u64 weight_in_turn[2]; /* as sent_in_turn, of the flows' weights; only if the port corrects its allowance */
	__u64 full_in_turn[2];   /* as weight_in_turn, if nobody were punished */
	__u64 little_in_turn[2]; /* the part of weight_in_turn of flows that use little of it (weir_use.h) */
	__u32 host_most_in_turn[2]; /* the most flows of one host that sent in that turn (weir_host.h) */
	__u32 by_host_turns;        /* bit 0: the current turn counts by host, bit 1: so did the one before */
	__u16 round_trip[2]; /* the shortest of a flow that the window limited, in the unit of ROUND_TRIP_SHIFT: since
				round_trip_ns, and in the time before; 0: not known (weir_limit.h) */
	__u64 round_trip_ns;
	__u64 non_tcp_bytes;
	__u64 non_tcp_ns;          /* when this was the length of */
	__u32 non_tcp_queue_bytes; /* the queue that packets which are not TCP would form alone (weir_non_tcp.h) */
	__u32 gives_back;          /* 1: punished flows have the weight of others (allowance_give_back) */
	__u32 segments_bytes;      /* a segment of each flow of N_i, without headers (flow_mean_segment) */
	__u32 keep_alives;         /* packets that the port has sent itself (weir_keep_alive.h) */
};

/* Per port and CPU. */
struct weir_ack_counts {
	__u64 acks_seen;
	__u64 clamped;
};

/* ---- flows: one entry per port and connection -------------------------------------------------- */

struct weir_flow_key {
	__u32 ifindex;
	__u32 local[4]; /* the host behind the port: the source of packets that enter by it */
	__u32 remote[4];
	__u16 local_port;
	__u16 remote_port;
};

/* The key of an IPv4 flow in its bucket. */
struct weir_ipv4_flow_key {
	__u32 ifindex;
	__u32 local;
	__u32 remote;
	__u16 local_port;
	__u16 remote_port;
};

enum weir_flow_flag {
	WEIR_SYN_IN = 1,
	WEIR_SYN_OUT = 2,
	WEIR_FIN_IN = 4,
	WEIR_FIN_OUT = 8,
	WEIR_RST = 16,
	WEIR_WAS_COUNTED = 32,
	WEIR_IDLE = 64, /* it sent no payload for long, so that it has left N_i if it was in it */
	WEIR_ESTABLISHED = 128,
	WEIR_SYN_REPEATED = 256,    /* a SYN was repeated: the handshake gives no RTT */
	WEIR_FITTED = 512,          /* the MSS towards the local host is a whole number of window steps */
	WEIR_ONE_SEGMENT = 1024,    /* its window was last computed with a floor of one segment */
	WEIR_HALF_SEGMENTS = 2048,  /* the remote host has seen no window of two segments, so it sends half segments */
	WEIR_RESUMED = 4096,        /* began a round; it has not yet received the share of an active sender */
	WEIR_ASKED = 8192,          /* the local host has sent a request, to which the next payload may be the answer */
	WEIR_PUNISHED = 16384,      /* SDTCP has chosen it: its ACKs match an exact MOD_WINDOW or an armed entry */
	WEIR_SENT_BEFORE = 32768,   /* it is also counted as an active sender in the turn before last_turn; */
	WEIR_SMALL_WEIGHT = 65536,  /* with the weight of a punished flow in last_turn, */
	WEIR_SMALL_BEFORE = 131072, /* and in the turn before */
	WEIR_ANSWER_IN = 262144,    /* the local host's SYN-ACK answered the SYN of the remote host */
	WEIR_ANSWER_OUT = 524288,   /* and the other way round */
	WEIR_TO_COUNT = 1048576,    /* its SYN matched INCREMENT_NI: it is in N_i once its handshake is complete */
	WEIR_REOFFERED = 2097152,   /* the map reoffers has a SYN on its ports with another sequence number */
	WEIR_KEPT = 4194304,        /* its key is in flow_keys; else it is in opening_keys, as its handshake goes on */
	WEIR_SIGNED = 8388608,      /* its SYNs have TCP-MD5 or TCP-AO, so that a changed header would break it */
	WEIR_WATCHED = 16777216,    /* the answer to a lowered window is awaited (weir_limit.h) */
	WEIR_LEARNS_IN = 33554432,  /* moved from a version that did not follow sequence numbers: the next segment */
	WEIR_LEARNS_OUT = 67108864, /* of the local host (IN) or of the remote host (OUT) states its numbers */
	WEIR_PUSHED = 134217728,    /* its last payload left with PSH because it may have one segment in flight */
	WEIR_TIMED = 268435456,     /* the ACK of its watched segment ends a round trip (weir_limit.h) */
	WEIR_RELEASED = 536870912,  /* no longer punished, but not yet free (weir_release.h) */
	WEIR_WATCHES_USE = 1073741824, /* the watch asks whether the flow uses little of its window */
	WEIR_GIVES_WAY = 2147483648    /* it is removed to make room for a newer flow that is being opened */
};

struct weir_offer {
	__u16 mss;       /* 536 if the SYN has no MSS option (RFC 9293, section 3.7.1) */
	__u8 scale;      /* as forwarded; WEIR_NO_SCALE if the SYN has no such option */
	__u8 timestamps; /* whether the SYN has the option */
};

/* What the switch knows of a side's sequence numbers (weir_sequence.h). */
struct weir_edges {
	__u32 end; /* the next one that it will send: SND.NXT */
	__u32 ack; /* the acknowledgement number that it sent last: its RCV.NXT */
};

/* The fields that every packet reads come first: one cache line, with the key. */
struct weir_flow {
	struct weir_offer local;
	struct weir_offer remote;
	__u64 last_ns;         /* of the last segment in either direction */
	__u64 last_payload_ns; /* of the last payload that left by the port */
	__u64 out_bytes;       /* bytes that left by the port, headers included */
	__u32 flags;           /* enum weir_flow_flag; changed atomically, as the other direction has another CPU */
	__u32 last_turn;       /* the port's turn in which this flow was last counted as an active sender */
	struct weir_edges local_edges;
	struct weir_edges remote_edges;
	__u32 delayed_ack_us; /* when a pure ACK came long after its data; 0: the last ACK did not */
	__u32 no_exact_epoch; /* the rules_epoch in which no exact rule matches the flow's ACKs */
	__u16 max_payload;    /* payload of the largest segment that left by the port */
	__u16 local_window;   /* the largest window fields of both hosts after the handshake */
	__u16 remote_window;
	__u8 scale_shift;  /* the translated window scale is the local host's own minus this */
	__u8 scale_at;     /* where the window scale is among the options of the local host's SYN; 0: it has none */
	__u64 first_ns;    /* of the first SYN */
	__u32 member;      /* enum weir_member and enum weir_use */
	__u32 reported_ms; /* when it was last reported as active, of a clock that wraps after 49 days */
	__u32 swept;       /* the sweep that visited it last: the low half of its now_ns */
	__u32 local_isn;   /* initial sequence numbers */
	__u32 remote_isn;
	/* If the flow is WEIR_WATCHED or WEIR_TIMED (weir_limit.h): */
	__u16 watched_timestamp; /* the low half of that of an ACK whose window the port lowered, */
	__u16 watched_at;        /* when it passed, in the unit of ROUND_TRIP_SHIFT, later by the time of the queue, */
	__u32 watched_seq; /* and the sequence number that the answer has if the window limits the flow; then its end.
			    */
	/* If it is WEIR_RELEASED: watched_at has its window then, and watched_seq the number acknowledged then. */
	__u32 out_before_resume; /* out_bytes when it last resumed for a request */
};

/* The counts of a port in which a flow is, and other long states. Changed atomically, so that each count is exact. */
enum weir_member {
	WEIR_IN_N_I = 1,
	WEIR_IN_TWO_SEGMENTS = 2, /* its window stays at two segments or more; counted in two_segment_flows */
	WEIR_KEEP_ALIVES = 4,     /* a keep-alive follows each segment that leaves alone (weir_keep_alive.h) */
	WEIR_INTERACTIVE = 16, /* its receiver takes the connection for interactive, and delays its ACKs (weir_ato.h) */
	WEIR_DELAYS_ACKS = 32, /* its receiver delays its ACKs for another reason (flow_note_ack) */
	WEIR_ANSWERED = 64     /* its last payload ended an answer, as far as the port can see (share_note_answer) */
};

/* Where in `member` more than the least time is that a receiver delays an ACK, in ms (weir_ato.h). */
#define WEIR_ATO 20
#define WEIR_ATO_MASK 0xff

/* Where in `member` the steps of a flow's weight are (weir_use.h), each with four bits. */
enum weir_use {
	WEIR_USE_NEXT = 8,   /* with which it will be counted as an active sender, */
	WEIR_USE_LAST = 12,  /* with which it was counted in last_turn, */
	WEIR_USE_BEFORE = 16 /* and, if it is WEIR_SENT_BEFORE, in the turn before */
};

#define WEIR_ALL_USE 0xfff00 /* the bits of all three */

/*
 * A SYN on the ports of a flow that has another sequence number. It changes nothing until the other side's SYN-ACK
 * acknowledges it; then it begins the flow anew (weir_offer.h).
 */
struct weir_reoffer {
	__u64 first_ns;
	__u32 isn;
	__u32 end;               /* the sequence number after it */
	__u32 flags;             /* of enum weir_flow_flag, with which the new flow begins */
	struct weir_offer offer; /* as forwarded */
	__u8 scale_shift;        /* as in weir_flow */
	__u8 scale_at;
	__u8 pad[6];
};

/* The flows that a host sends to a port; its key and its counts (weir_host.h). */
struct weir_host_key {
	__u32 ifindex;
	__u32 address[4];
};

struct weir_host {
	__u32 turn;       /* the port's turn in which a flow of the host was last counted */
	__u32 senders[2]; /* as sent_in_turn of the port, of this host's flows */
};

/* An IPv4 flow with its key: two cache lines. */
struct weir_slot {
	struct weir_ipv4_flow_key key; /* ifindex 0: the slot is free */
	struct weir_flow flow;
};

struct weir_bucket {
	struct weir_slot slots[WEIR_BUCKET_SLOTS];
};

/* First the flows that are being opened are visited, then the others. */
enum weir_sweep_stage { WEIR_SWEEP_BEGINS, WEIR_SWEEP_OPENING, WEIR_SWEEP_FLOWS };

/* The request to weir_sweep and its result. */
struct weir_sweep {
	__u64 now_ns;
	__u64 closed_ns;     /* timeout of a flow that has ended: it is removed if silent for this long */
	__u64 silent_ns;     /* timeout of other flows, */
	__u64 translated_ns; /* and of flows with a translated window scale, whose windows would stay too small */
	__u64 opening_ns;    /* a flow whose handshake is not complete is removed this long after its first SYN */
	__u64 idle_ns;       /* a flow without payload for this long leaves N_i; 0: never */
	__u64 active_ns;     /* active flows are reported this often; 0: never */
	__u32 portless;      /* not 0: only remove the flows of interfaces that have ceased to be ports */
	__u32 removed;
	__u32 idled;
	__u32 report_all;    /* not 0: report every flow, as active or idle (roll call) */
	__u32 stage;         /* enum weir_sweep_stage; 0 in the first call */
	__u32 done;          /* set when all flows have been visited; else call again with the same now_ns */
	__u32 visited;       /* flows that are left */
	__u32 opening_steps; /* keys that were taken out of opening_keys */
	__u64 due_ns;        /* no flow that sends and receives nothing needs a sweep before this time */
};

/* ---- records that are moved into the maps of another version (weir_move.h) ----------------------- */

enum weir_moved {
	WEIR_MOVED_FLOW,
	WEIR_MOVED_STATE,       /* of port_states */
	WEIR_MOVED_ACKS,        /* of ack_counts */
	WEIR_MOVED_LIST_COUNTS, /* of list_counts */
	WEIR_MOVED_TALLY,       /* of tallies */
	WEIR_MOVED_EXACT,       /* of exact_rules */
	WEIR_MOVED_ARMED        /* of armed_rules */
};

/*
 * How a field of a record follows that of the earlier version. SET: it becomes `after`, unless a program has changed
 * it since it was `before`. SUM: after - before is added. BITS: the bits that were set are set, and the bits that
 * were cleared are cleared.
 */
enum weir_edit_kind { WEIR_SET_4, WEIR_SET_8, WEIR_SUM_4, WEIR_SUM_8, WEIR_BITS_4 };

struct weir_edit {
	__u32 at;   /* offset in the record */
	__u32 kind; /* enum weir_edit_kind */
	__u64 before;
	__u64 after;
};

struct weir_exact_key {
	__u32 bridge;
	__u32 src[4];
	__u32 dst[4];
	__u16 src_port;
	__u16 dst_port;
};

/* The request to weir_move. */
struct weir_move {
	__u32 what;                  /* enum weir_moved */
	__u32 index;                 /* of the record in an array */
	struct weir_flow_key flow;   /* key of a flow, */
	struct weir_exact_key exact; /* or of an exact or armed rule */
	__u32 kept;                  /* the handshake of the flow is complete */
	__u32 edits_len;
	__u32 moved; /* result: 1; 0 if the record does not exist, or the flow finds no room */
	__u32 pad;
	struct weir_edit edits[WEIR_MAX_EDITS];
};

/* ---- the extension table ----------------------------------------------------------------------- */

struct weir_action {
	__u64 cookie;
	__u64 hard_end_ns; /* 0: none */
	__u64 idle_ns;     /* 0: none */
	__u32 window_bytes;
	__u32 count_ofport; /* the output port that is counted; WEIR_ANY_PORT: the port by which the segment leaves */
	__u16 priority;
	__u16 idle_timeout_s;
	__u16 hard_timeout_s;
	__u8 table_id;
	__u8 window_op;
	__u8 count_op;
	__u8 alpha;
	__u8 ip_version;
	__u8 observes;       /* 1: the window action only counts the segments that it would change */
	__u32 rank;          /* of an armed (reflex) entry: its rank, */
	__u32 armed_ifindex; /* and the port whose crossing activates it */
};

struct weir_counts {
	__u64 packets;
	__u64 bytes;
	__u64 clamped;
};

struct weir_tally {
	struct weir_counts counts; /* of an exact rule; a listed rule has its counts in list_counts */
	__u64 used_ns;
	__u32 window_bytes; /* MOD_WINDOW: the window that its decreases have left */
	__u32 epoch;        /* of an armed entry: the reflex_epoch to which window_bytes belongs */
};

struct weir_rule {
	struct weir_action action;
	struct weir_tally tally;
};

/* A rule with a wildcard. A segment matches if (its value & mask) == value. */
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
	__u32 tally;          /* index of the rule in tallies and list_counts */
};

struct weir_list_key {
	__u32 bridge;
	__u32 direction; /* enum weir_direction */
};

/* Sorted by falling priority. */
struct weir_list {
	__u32 len;
	__u32 tables; /* bit t: the list has a rule of table t */
	struct weir_listed rules[WEIR_MAX_LISTED];
};

/*
 * What a list does with all segments of an IP version and a set of flags: nothing (WEIR_NO_RULE); what the one rule
 * with the tally n does (WEIR_FIRST_RULE + n); or it depends on the segment, so that the list must be searched
 * (WEIR_ASK_LIST).
 */
enum weir_by_flags { WEIR_NO_RULE, WEIR_FIRST_RULE, WEIR_ASK_LIST = 0xffff };

/* First the flags of IPv4 segments, then of IPv6 segments. */
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
	__u32 rank; /* of the armed entry that became active; with WEIR_REFLEX_OFF none is active any longer */
	__u32 non_tcp_percent;
	__u32 allowance_bytes; /* 0: the port does not correct it */
};

enum weir_report_kind { WEIR_FLOW_OPENED = 1, WEIR_FLOW_ACTIVE, WEIR_FLOW_IDLE, WEIR_FLOW_CLOSED };
enum weir_close_reason { WEIR_NOT_CLOSED, WEIR_BY_FIN, WEIR_BY_RST, WEIR_BY_SILENCE };

/* One record of OFPT_FLOW_REPORT in its wire format (docs/wire-format.md): big endian. */
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
