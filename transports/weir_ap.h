/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The arithmetic of Adaptive Pacing (Zou and others: Flow-Aware Adaptive Pacing to Mitigate TCP Incast in Data Center
 * Networks), section III, in integers. No state, no I/O, no libc. transports/adaptive_pacing.py is the same model in
 * Python, and tests/unit/transports/test_pacing_arithmetic.py compares both.
 *
 * The paper counts the buffer in packets; here it is in bytes, and a packet has packet_bytes of it:
 *
 *   t = max(0, min(RTT / w, (n k w packet_bytes - B) / (C (w - 1))))        equation (16)
 *
 * With w = 1 the second term has no value. A window of one packet that does not fit into the buffer is spread over the
 * RTT, and any other is not paced.
 *
 * Linux does not pace the first ten packets of a connection. So its first window is one that needs no pacing
 * (weir_ap_unpaced_window). The paper's senders begin with small windows.
 */
#ifndef WEIR_AP_H
#define WEIR_AP_H

#include "weir_window.h"

#define WEIR_AP_K_ONE 256u                  /* k = 1 */
#define WEIR_AP_MOST_K (16 * WEIR_AP_K_ONE) /* the limits below keep the products under 2^64 */
#define WEIR_AP_MOST_FLOWS 65536u
#define WEIR_AP_MOST_WINDOW 65535u
#define WEIR_AP_MOST_PACKET 65535u
#define WEIR_AP_MOST_RATE (1ull << 40) /* bytes per second */
#define WEIR_AP_MOST_RTT_US 1000000u   /* no interval is longer */
#define WEIR_AP_MOST_EXCESS_BYTES (~0ull / WEIR_NS_PER_S)
#define WEIR_AP_FLOOR_SEGMENTS 2u /* the least window of a switch: one segment, or two if ACKs are delayed */
#define WEIR_AP_HEADER_BYTES 66u  /* Ethernet, IPv4, TCP with timestamps: what a queue counts beyond the MSS */

/* Where n comes from. transports/pacing_paths.py has the same enum. */
enum weir_ap_source {
	WEIR_AP_NOT_PACED, /* no path, or one whose values cannot be used */
	WEIR_AP_COUNTED,   /* counted at this host */
	WEIR_AP_OPERATOR,  /* set by a person or a program at this host */
	WEIR_AP_NETWORK,   /* from the switch of the bottleneck, by its controller */
	WEIR_AP_WINDOW,    /* from the fair share of that switch, which is the advertised window */
};

/* The bottleneck towards a destination, written by user space. */
struct weir_ap_path {
	weir_u64 buffer_bytes;    /* B */
	weir_u64 bytes_per_s;     /* C */
	weir_u64 n_updated_ns;    /* CLOCK_MONOTONIC, when n and the allowance were true */
	weir_u64 n_lifetime_ns;   /* how long after that they count; 0: for ever */
	weir_u32 flows;           /* n; 0: count at this host */
	weir_u32 k;               /* of WEIR_AP_K_ONE */
	weir_u32 source;          /* of n: enum weir_ap_source */
	weir_u32 allowance_bytes; /* what the switch divides into the windows of ACKs; 0: windows carry no n */
};

/* The pacing of one connection, as it was last computed. */
struct weir_ap_state {
	weir_u32 is_counted;   /* as a sender of this host */
	weir_u32 flows;        /* n */
	weir_u32 source;       /* of n: enum weir_ap_source */
	weir_u32 interval_ns;  /* t; 0: not paced */
	weir_u64 n_updated_ns; /* when n was true; of WEIR_AP_WINDOW: when the connection last sent */
};

/* Whether B, C and k are set and possible. If not, the connection is not paced. */
WEIR_INLINE int weir_ap_is_usable(const struct weir_ap_path *path)
{
	return path->buffer_bytes && path->bytes_per_s && path->bytes_per_s <= WEIR_AP_MOST_RATE && path->k &&
	       path->k <= WEIR_AP_MOST_K;
}

WEIR_INLINE int weir_ap_is_fresh(const struct weir_ap_path *path, weir_u64 now_ns)
{
	return !path->n_lifetime_ns ||
	       (path->n_updated_ns <= now_ns && now_ns - path->n_updated_ns <= path->n_lifetime_ns);
}

/* Whether the path states an n, and one that is possible and fresh. If not, the host counts. */
WEIR_INLINE int weir_ap_has_flows(const struct weir_ap_path *path, weir_u64 now_ns)
{
	return path->flows && path->flows <= WEIR_AP_MOST_FLOWS && weir_ap_is_fresh(path, now_ns);
}

/*
 * n from the advertised window, which is the fair share allowance / n. 0: unknown, because the window is larger than
 * the allowance or the allowance is old. A window of WEIR_AP_FLOOR_SEGMENTS or fewer may be the least window instead of
 * the share; then n is at least the result.
 */
WEIR_INLINE weir_u32 weir_ap_flows_of_window(const struct weir_ap_path *path, weir_u32 window_bytes, weir_u64 now_ns)
{
	weir_u32 flows;

	if (!window_bytes || !weir_ap_is_fresh(path, now_ns))
		return 0;
	flows = path->allowance_bytes / window_bytes;
	return flows < WEIR_AP_MOST_FLOWS ? flows : WEIR_AP_MOST_FLOWS;
}

/*
 * n and its source, for a connection of a host that counted `counted` senders of its own. The window of an ACK is newer
 * than what a controller states, so it goes first. If it may be the least window, or if it is old because the
 * connection paused, the larger of both counts.
 */
WEIR_INLINE weir_u32 weir_ap_flows(const struct weir_ap_path *path, weir_u32 counted, weir_u32 window_bytes,
				   weir_u32 is_old, weir_u32 mss, weir_u64 now_ns, weir_u32 *source)
{
	weir_u32 stated = weir_ap_has_flows(path, now_ns) ? path->flows : 0;
	weir_u32 shared = weir_ap_flows_of_window(path, window_bytes, now_ns);
	weir_u32 at_floor = (weir_u64)window_bytes <= (weir_u64)WEIR_AP_FLOOR_SEGMENTS * mss;

	if (shared && !((at_floor || is_old) && stated > shared)) {
		*source = WEIR_AP_WINDOW;
		return shared;
	}
	*source = stated ? path->source : WEIR_AP_COUNTED;
	return stated ? stated : counted;
}

/*
 * The largest window, in packets, for which equation (16) gives t = 0: n k w packets fit into the buffer. At least 1.
 * The path is usable.
 */
WEIR_INLINE weir_u32 weir_ap_unpaced_window(const struct weir_ap_path *path, weir_u32 flows, weir_u32 packet_bytes)
{
	weir_u32 packet = packet_bytes < WEIR_AP_MOST_PACKET ? packet_bytes : WEIR_AP_MOST_PACKET;
	weir_u32 n = flows < WEIR_AP_MOST_FLOWS ? flows : WEIR_AP_MOST_FLOWS;
	weir_u64 round_bytes = (weir_u64)n * path->k * packet, window;

	if (!round_bytes || path->buffer_bytes > ~0ull / WEIR_AP_K_ONE)
		return WEIR_AP_MOST_WINDOW;
	window = path->buffer_bytes * WEIR_AP_K_ONE / round_bytes;
	if (window > WEIR_AP_MOST_WINDOW)
		return WEIR_AP_MOST_WINDOW;
	return window ? window : 1;
}

/* Equation (16) in ns, rounded down. window is w in packets; the path is usable. Without an RTT nothing is paced. */
WEIR_INLINE weir_u32 weir_ap_interval_ns(const struct weir_ap_path *path, weir_u32 flows, weir_u32 window,
					 weir_u32 packet_bytes, weir_u32 rtt_us)
{
	weir_u32 packet = packet_bytes < WEIR_AP_MOST_PACKET ? packet_bytes : WEIR_AP_MOST_PACKET;
	weir_u32 n = flows < WEIR_AP_MOST_FLOWS ? flows : WEIR_AP_MOST_FLOWS;
	weir_u32 w = window < WEIR_AP_MOST_WINDOW ? window : WEIR_AP_MOST_WINDOW;
	weir_u32 rtt = rtt_us < WEIR_AP_MOST_RTT_US ? rtt_us : WEIR_AP_MOST_RTT_US;
	weir_u64 arriving_bytes = (weir_u64)n * path->k * w * packet / WEIR_AP_K_ONE;
	weir_u64 excess_bytes, most_ns, wanted_ns;

	if (!w || arriving_bytes <= path->buffer_bytes)
		return 0;
	most_ns = (weir_u64)rtt * 1000 / w;
	if (w == 1)
		return most_ns;
	excess_bytes = arriving_bytes - path->buffer_bytes;
	if (excess_bytes > WEIR_AP_MOST_EXCESS_BYTES) /* 18 GB: more than 137 Gbit/s forward in the longest RTT */
		return most_ns;
	wanted_ns = excess_bytes * WEIR_NS_PER_S / (path->bytes_per_s * (w - 1));
	return wanted_ns < most_ns ? wanted_ns : most_ns;
}

/* t (1 + x) with x uniform in [-1, 1), from 32 random bits. */
WEIR_INLINE weir_u64 weir_ap_random_interval_ns(weir_u32 interval_ns, weir_u32 random)
{
	return (weir_u64)interval_ns * random >> 31;
}

/* The pacing rate in bytes per second that leaves interval_ns between packets of mss bytes. */
WEIR_INLINE weir_u64 weir_ap_rate(weir_u32 mss, weir_u64 interval_ns)
{
	return mss * WEIR_NS_PER_S / (interval_ns ? interval_ns : 1);
}

#endif
