/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sizes, fractions and times of the data plane. The agent reads the constants in weir_structs.h. The window
 * arithmetic has its own in weir_window.h, and packet formats are in weir_parse.h.
 */
#ifndef WEIR_CONSTS_H
#define WEIR_CONSTS_H

#include "weir_window.h"

#define NS_PER_S WEIR_NS_PER_S
#define NS_PER_US 1000
#define NS_PER_MS 1000000ull
#define MS_SHIFT 20 /* times in "ms" are in units of 2^20 ns */

/* ---- sizes of maps ------------------------------------------------------------------------------- */

#define DEFAULT_MAX_FLOWS 1000000 /* the agent resizes the flow maps */
#define MAX_EXACT_RULES 1000000
#define MAX_ARMED_RULES 65536
#define MAX_LISTED_RULES 4096
#define OPENING_FRACTION 4 /* reserve for flows that are being opened: this part of all flows */
#define MAX_REOFFERS 65536
#define MAX_HOSTS 16384
#define FLOW_LOCKS 4096
#define SWEEP_STEPS 512
#define EVENT_RING_BYTES (1 << 18)
#define REPORT_RING_BYTES (1 << 24)

/* ---- checksums (weir_checksum.h) ------------------------------------------------------------------ */

#define CHECKSUM_CHUNK 512  /* bpf_csum_diff takes no more on kernels before 6.13 */
#define CHECKSUM_CHUNKS 129 /* a segment of 64 KB with its headers */

/* ---- flow table (weir_flow_table.h) --------------------------------------------------------------- */

#define CACHE_LINE 64
#define HASH_MULTIPLIER_A 0x9e3779b97f4a7c15ull /* odd numbers with well mixed bits */
#define HASH_MULTIPLIER_B 0xd6e8feb86659fd93ull

/* ---- shares and windows (weir_mss.h, weir.bpf.c) --------------------------------------------------- */

#define CROWD_HALVING_NS (10 * NS_PER_S) /* after this time the crowd is halved */
#define MAX_HALVINGS 32                  /* of a 32-bit number */
#define BURST_NS 10000000ull             /* SYNs within this time are one burst */
#define GROWTH_QUEUE_FRACTION 4          /* a share grows only if the queue is shorter than this part of the buffer */
#define LONE_FLOW_QUEUE_FRACTION 16      /* part of the buffer that a lone flow may fill */
#define SCALE_MASK 15                    /* keeps a shift by a window scale inside 32 bits for the verifier */
#define DEFAULT_MSS 1448                 /* if the handshake was not seen: Ethernet, timestamps */

/* ---- allowance (weir_allowance.h) ------------------------------------------------------------------ */

#define BURST_SPARE_FRACTION 4 /* part of the queue that a burst beside punished flows leaves free */
#define LINK_NS_SHIFT 16       /* link_ns is the time of 2^16 bytes */
/* A longer handshake counts as this one, so that it can be shifted by LINK_NS_SHIFT. */
#define LONGEST_HANDSHAKE_NS 1000000000000ull
#define LINK_LEAD_NS 2000000ull         /* a token bucket may send this much time ahead of its rate */
#define TARGET_FRACTION 8               /* a queue whose least length is this part of the allowance is short enough, */
#define TARGET_QUEUE_FRACTION 16        /* at most this part of the buffer, */
#define LEAST_TARGET_FRAMES 2           /* and at least this many frames */
#define LEAST_ALLOWANCE_FRAMES 2        /* one that is sent and one that is acknowledged */
#define GROWTH_ROOM_FRACTION 2          /* a correction adds at most this part of what fits into the queue */
#define WINDOW_LIMIT_HISTORY 0xf        /* a flow that its window limits counts for four corrections */
#define PAUSE_ROUND_TRIPS 4             /* a port that was idle for so long begins anew */
#define MOST_ALLOWANCE_BYTES 1073725440 /* the largest TCP window, RFC 7323 */
#define MAX_TURN_DOUBLINGS 16           /* by which a turn may exceed that of the agent */
#define DITHER_A 40503u                 /* odd numbers with well mixed bits */
#define DITHER_B 24691u
#define DITHER_TURNS_SHIFT 2 /* a flow keeps its part for four turns, */
#define DITHER_STEP 97u      /* then it has another one; of 256 parts it has each once */

/* ---- flows that the window limits (weir_limit.h) ---------------------------------------------------- */

#define USE_PART 7              /* a flow that uses less than this many sixteenths of its window uses little */
#define USE_DEEP_STEP 12        /* from here on a step falls by three */
#define USE_ROOT_PART 75        /* 256 times 1 - 1 / sqrt(2) */
#define KEPT_BACK_FRACTION 3    /* of its window; Linux: net.ipv4.tcp_tso_win_divisor */
#define ROUND_TRIP_SHIFT 18     /* round trips are in units of 2^18 ns (262 us), up to 17 s */
#define ROUND_TRIPS_NS NS_PER_S /* the shortest one counts for once to twice this time */

/* ---- released flows (weir_release.h) ----------------------------------------------------------------- */

#define RELEASE_FRACTION 4 /* the window grows by this part of the acknowledged bytes */
#define RELEASED_SHIFT 8   /* watched_at is in units of 256 bytes */

/* ---- flows (weir_flow.h) -------------------------------------------------------------------------- */

#define TIMESTAMPS_LEN 12          /* the option with its padding, in every segment if both sides offered it */
#define LEAST_MSS 88               /* a smaller MSS is an error or an attack (Linux: TCP_MIN_MSS) */
#define DELAYED_ACK_NS 20000000ull /* Linux delays an ACK by at least 40 ms; RFC 1122 allows 500 ms */
#define RESUME_US 5000             /* payload within this time after an ACK had waited for the ACK */

/* ---- interactive receivers (weir_ato.h); Linux: include/net/tcp.h ----------------------------------- */

#define LEAST_ATO_MS 40          /* TCP_ATO_MIN */
#define MOST_ATO_MS 200          /* TCP_DELACK_MAX */
#define ATO_TICKS_NS 10000000ull /* the longest tick of the host (100 Hz) */

/* ---- alarm (weir_alarm.h) -------------------------------------------------------------------------- */

#define QUIET_CHECKS 3               /* consecutive checks at or below K that end an alarm */
#define CHECKS_PER_STEP 3            /* a check every RTT/2, a step of the reflex every 3/2 RTT */
#define LOST_CHECKS 8                /* no check for this many intervals: the timer was lost */
#define ALARMS_AT_CHECKS 16          /* so many alarms follow at each check, if no rule is added meanwhile; */
#define FOLDED_ALARM_NS 100000000ull /* then one in this time, */
#define RISEN_QUEUE_FRACTION 4       /* or if the queue has grown by this part */
#define STILL_QUEUE_NS 50000000ull   /* a port that is sending sends a packet within this time, */
#define STILL_QUEUE_PACKETS 4        /* plus the time of this many full frames, as its capacity may be overstated */
#define FRAME_BYTES 1514

/* ---- qdiscs (linux/pkt_sched.h, net/sch_generic.h) -------------------------------------------------- */

#define TCQ_F_CPUSTATS 0x20

#endif
