/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The arithmetic of ICTCP (Wu, Feng, Guo and Zhang, CoNEXT 2010) in integers. It has no state of its own, does no I/O
 * and needs no libc, so that the BPF program and the tests can both include it.
 *
 *   symbol   name                 unit    meaning
 *   C        capacity_bps         bit/s   rate of the receiver's link
 *   BW_T     (a local)            bit/s   what arrived in the first sub-slot, with headers
 *   BW_A     free_bps             bit/s   max(0, alpha C - BW_T)
 *   T        subslot_ns           ns      mean RTT of the connections, weighted by their volume
 *   RTT_i    rtt_ns               ns      round trip time of a connection
 *   rwnd_i   window_bytes         bytes   the window that the receiver advertises
 *   b_i^m    measured_bps         bit/s   measured throughput of a connection
 *   b_i^e    (a local)            bit/s   expected throughput: max(b_i^m, rwnd_i / RTT_i)
 *   d_i      (a local)            1/1000  (b_i^e - b_i^m) / b_i^e
 *
 * The header of ictcp.bpf.c names the inferred rules.
 */
#ifndef WEIR_ICTCP_H
#define WEIR_ICTCP_H

#include "weir_window.h"

#define WEIR_ICTCP_ALPHA_TENTHS 9      /* alpha = 0.9 */
#define WEIR_ICTCP_GAMMA1_PERMILLE 100 /* gamma1 = 0.1: at most this difference, and the window may grow */
#define WEIR_ICTCP_GAMMA2_PERMILLE 500 /* gamma2 = 0.5: a larger difference, and the window shrinks */
#define WEIR_ICTCP_LOW_INTERVALS 3     /* after so many intervals in a row */
#define WEIR_ICTCP_LEAST_SEGMENTS 2    /* the least window */
#define WEIR_ICTCP_SCARCE_FRACTION 5   /* less free than this part of C, and larger windows than the mean shrink */
#define WEIR_ICTCP_KEPT_QUARTERS 3     /* beta = 3/4, the weight of the earlier throughput */
#define WEIR_ICTCP_IDLE_ROUND_TRIPS 6  /* three intervals of two RTTs */
#define WEIR_ICTCP_LEAST_IDLE_NS 50000000ull
#define WEIR_ICTCP_FIRST_SUBSLOT_NS 1000000ull
#define WEIR_ICTCP_LEAST_SUBSLOT_NS 100000ull
#define WEIR_ICTCP_MOST_SUBSLOT_NS WEIR_NS_PER_S
#define WEIR_ICTCP_MOST_WINDOW_BYTES (1u << 30) /* RFC 7323, section 2.3 */
#define WEIR_ICTCP_MOST_BYTES (1ull << 31)      /* of a rate, so that no product exceeds 64 bits */

/* The receiver's interface. A slot has two sub-slots: traffic is measured in the first, windows grow in the second. */
struct weir_ictcp_port {
	weir_u64 capacity_bps;
	weir_u64 subslot_began_ns; /* 0: no packet so far */
	weir_u64 subslot_ns;
	weir_u64 arrived_bytes; /* in the first sub-slot */
	weir_u64 free_bps;      /* of the last first sub-slot */
	weir_u64 quota_bps;     /* what increases may still add in this second sub-slot */
	weir_u64 rtt_us_bytes;  /* sum over this slot: RTT of each connection x bytes that it received */
	weir_u64 received_bytes;
	weir_u64 windows_bytes;     /* sum of the windows of the connections that were active in this slot */
	weir_u64 mean_window_bytes; /* in the last slot; 0: none was active */
	weir_u32 connections;
	weir_u32 slot; /* its number, from 1 */
	weir_u32 is_second;
	weir_u32 increases;
	weir_u32 decreases;
	weir_u32 restarts;
};

/* A connection. An interval has two RTTs: the new window takes effect in the first, and the second is measured. */
struct weir_ictcp_flow {
	weir_u64 began_ns;         /* the interval */
	weir_u64 measured_from_ns; /* 0: the first RTT is not over */
	weir_u64 measured_from_bytes;
	weir_u64 received_bytes; /* since the connection opened */
	weir_u64 active_ns;      /* when payload last passed, in either direction */
	weir_u64 rtt_ns;
	weir_u64 measured_bps;
	weir_u64 probe_ns;     /* when the segment left whose timestamp the peer echoes next; 0: none */
	weir_u32 probe_value;  /* its timestamp */
	weir_u32 last_value;   /* the timestamp of the last segment that left */
	weir_u32 window_bytes; /* 0: a new connection */
	weir_u32 mss;
	weir_u32 slow_start;
	weir_u32 low_intervals;
	weir_u32 slot; /* in which it was counted */
};

/* The rate of so many bytes in a time, which is not 0. Bytes above 2^31 do not count. */
WEIR_INLINE weir_u64 weir_ictcp_rate_bps(weir_u64 bytes, weir_u64 time_ns)
{
	return (bytes < WEIR_ICTCP_MOST_BYTES ? bytes : WEIR_ICTCP_MOST_BYTES) * 8 * WEIR_NS_PER_S / time_ns;
}

/* BW_A = max(0, alpha C - BW_T) */
WEIR_INLINE weir_u64 weir_ictcp_free_bps(weir_u64 capacity_bps, weir_u64 arrived_bps)
{
	weir_u64 usable = capacity_bps / 10 * WEIR_ICTCP_ALPHA_TENTHS;

	return usable > arrived_bps ? usable - arrived_bps : 0;
}

WEIR_INLINE void weir_ictcp_begin_slot(struct weir_ictcp_port *port, weir_u64 now_ns)
{
	weir_u64 mean_ns = port->subslot_ns;

	if (port->received_bytes)
		mean_ns = port->rtt_us_bytes / port->received_bytes * 1000;
	if (mean_ns < WEIR_ICTCP_LEAST_SUBSLOT_NS)
		mean_ns = port->subslot_ns ? WEIR_ICTCP_LEAST_SUBSLOT_NS : WEIR_ICTCP_FIRST_SUBSLOT_NS;
	port->subslot_ns = mean_ns < WEIR_ICTCP_MOST_SUBSLOT_NS ? mean_ns : WEIR_ICTCP_MOST_SUBSLOT_NS;
	port->mean_window_bytes = port->connections ? port->windows_bytes / port->connections : 0;
	port->subslot_began_ns = now_ns;
	port->slot++;
	port->is_second = 0;
	port->quota_bps = port->arrived_bytes = 0;
	port->rtt_us_bytes = port->received_bytes = port->windows_bytes = port->connections = 0;
}

/* Ends the sub-slot if its time is over. Called for each packet, because nothing else wakes the program. */
WEIR_INLINE void weir_ictcp_tick(struct weir_ictcp_port *port, weir_u64 now_ns)
{
	weir_s64 elapsed_ns = now_ns - port->subslot_began_ns;

	if (!port->slot) {
		weir_ictcp_begin_slot(port, now_ns);
		return;
	}
	if (elapsed_ns < (weir_s64)port->subslot_ns)
		return;
	if (port->is_second) {
		weir_ictcp_begin_slot(port, now_ns);
		return;
	}
	port->free_bps = weir_ictcp_free_bps(port->capacity_bps, weir_ictcp_rate_bps(port->arrived_bytes, elapsed_ns));
	port->quota_bps = port->free_bps;
	port->subslot_began_ns = now_ns;
	port->is_second = 1;
}

WEIR_INLINE void weir_ictcp_note_arrival(struct weir_ictcp_port *port, weir_u32 frame_bytes)
{
	if (!port->is_second)
		port->arrived_bytes += frame_bytes;
}

/* Whether the quota allows so much more. If it does, it is taken. */
WEIR_INLINE weir_u32 weir_ictcp_take(struct weir_ictcp_port *port, weir_u64 more_bps)
{
	if (more_bps > port->quota_bps)
		return 0;
	port->quota_bps -= more_bps;
	return 1;
}

/* Slow start from the least window: a new connection, or one that was idle. */
WEIR_INLINE void weir_ictcp_restart(struct weir_ictcp_flow *flow, weir_u32 mss, weir_u64 now_ns)
{
	flow->window_bytes = WEIR_ICTCP_LEAST_SEGMENTS * mss;
	flow->mss = mss;
	flow->slow_start = 1;
	flow->low_intervals = 0;
	flow->measured_bps = 0;
	flow->began_ns = now_ns;
	flow->measured_from_ns = 0;
	flow->probe_ns = 0;
}

WEIR_INLINE weir_u32 weir_ictcp_is_idle(const struct weir_ictcp_flow *flow, weir_u64 now_ns)
{
	weir_u64 idle_ns = flow->rtt_ns * WEIR_ICTCP_IDLE_ROUND_TRIPS;

	if (idle_ns < WEIR_ICTCP_LEAST_IDLE_NS)
		idle_ns = WEIR_ICTCP_LEAST_IDLE_NS;
	return (weir_s64)(now_ns - flow->active_ns) > (weir_s64)idle_ns;
}

/*
 * The RTT, from TCP timestamps (RFC 7323): the peer echoes the timestamp of what it received last. A timestamp counts
 * whole milliseconds, so only the first segment with a new one is timed. `echo` arrived before this segment leaves with
 * `value`. A segment with payload, such as a request, is timed anew: the peer may have been silent until then.
 */
WEIR_INLINE void weir_ictcp_note_timestamps(struct weir_ictcp_flow *flow, weir_u64 now_ns, weir_u32 value,
					    weir_u32 echo, weir_u32 payload)
{
	if (flow->probe_ns && (weir_u32)(echo - flow->probe_value) < 1u << 31) {
		flow->rtt_ns = now_ns > flow->probe_ns ? now_ns - flow->probe_ns : 1;
		flow->probe_ns = 0;
	}
	if (value != flow->last_value && (payload || !flow->probe_ns)) {
		flow->probe_ns = now_ns;
		flow->probe_value = value;
	}
	flow->last_value = value;
}

/* Counts a connection once in each slot, and what it received. */
WEIR_INLINE void weir_ictcp_note_received(struct weir_ictcp_port *port, struct weir_ictcp_flow *flow,
					  weir_u64 received_bytes)
{
	weir_u64 more = received_bytes - flow->received_bytes;

	flow->received_bytes = received_bytes;
	if (!more)
		return;
	port->received_bytes += more;
	port->rtt_us_bytes += more * (flow->rtt_ns / 1000);
	if (flow->slot == port->slot)
		return;
	flow->slot = port->slot;
	port->windows_bytes += flow->window_bytes;
	port->connections++;
}

WEIR_INLINE void weir_ictcp_end_interval(struct weir_ictcp_flow *flow, weir_u64 now_ns)
{
	flow->began_ns = now_ns;
	flow->measured_from_ns = 0;
}

/* One segment less, at least the least window. The connection leaves slow start. */
WEIR_INLINE void weir_ictcp_decrease(struct weir_ictcp_port *port, struct weir_ictcp_flow *flow)
{
	weir_u32 least = WEIR_ICTCP_LEAST_SEGMENTS * flow->mss;

	flow->slow_start = 0;
	flow->low_intervals = 0;
	if (flow->window_bytes <= least)
		return;
	flow->window_bytes = flow->window_bytes - flow->mss > least ? flow->window_bytes - flow->mss : least;
	port->decreases++;
}

/* The window doubles in slow start, and grows by a segment otherwise, if the quota allows that throughput. */
WEIR_INLINE void weir_ictcp_increase(struct weir_ictcp_port *port, struct weir_ictcp_flow *flow, weir_u64 rtt_ns)
{
	weir_u32 more = flow->slow_start ? flow->window_bytes : flow->mss;

	flow->low_intervals = 0;
	if (flow->window_bytes + more > WEIR_ICTCP_MOST_WINDOW_BYTES ||
	    !weir_ictcp_take(port, weir_ictcp_rate_bps(more, rtt_ns))) {
		flow->slow_start = 0;
		return;
	}
	flow->window_bytes += more;
	port->increases++;
}

/* b^m after a sample: max(sample, beta b^m + (1 - beta) sample) */
WEIR_INLINE weir_u64 weir_ictcp_smoothed_bps(weir_u64 before_bps, weir_u64 sample_bps)
{
	weir_u64 mean = (before_bps * WEIR_ICTCP_KEPT_QUARTERS + sample_bps * (4 - WEIR_ICTCP_KEPT_QUARTERS)) / 4;

	return sample_bps > mean ? sample_bps : mean;
}

/* d in thousandths, rounded down; 0 if nothing is expected. */
WEIR_INLINE weir_u64 weir_ictcp_difference_permille(weir_u64 expected_bps, weir_u64 measured_bps)
{
	return expected_bps > measured_bps ? (expected_bps - measured_bps) * 1000 / expected_bps : 0;
}

/*
 * The window of a connection at the end of its interval: nothing happens before. An increase that is due waits for the
 * second sub-slot, and is measured until then.
 */
WEIR_INLINE void weir_ictcp_adjust(struct weir_ictcp_port *port, struct weir_ictcp_flow *flow, weir_u64 now_ns)
{
	weir_u64 rtt_ns = flow->rtt_ns ? flow->rtt_ns : port->subslot_ns;
	weir_u64 measured_bps, expected_bps, difference;
	weir_s64 elapsed_ns = now_ns - (flow->measured_from_ns ? flow->measured_from_ns : flow->began_ns);

	if (elapsed_ns <= 0 || elapsed_ns < (weir_s64)rtt_ns)
		return;
	if (!flow->measured_from_ns) {
		flow->measured_from_ns = now_ns;
		flow->measured_from_bytes = flow->received_bytes;
		return;
	}
	measured_bps = weir_ictcp_smoothed_bps(
		flow->measured_bps, weir_ictcp_rate_bps(flow->received_bytes - flow->measured_from_bytes, elapsed_ns));
	expected_bps = weir_ictcp_rate_bps(flow->window_bytes, rtt_ns);
	difference = weir_ictcp_difference_permille(expected_bps, measured_bps);
	if (port->free_bps < port->capacity_bps / WEIR_ICTCP_SCARCE_FRACTION && port->mean_window_bytes &&
	    flow->window_bytes > port->mean_window_bytes) {
		weir_ictcp_decrease(port, flow);
	} else if (difference <= WEIR_ICTCP_GAMMA1_PERMILLE ||
		   difference <= (weir_u64)flow->mss * 1000 / flow->window_bytes) {
		if (!port->is_second)
			return;
		weir_ictcp_increase(port, flow, rtt_ns);
	} else {
		flow->slow_start = 0;
		flow->low_intervals = difference > WEIR_ICTCP_GAMMA2_PERMILLE ? flow->low_intervals + 1 : 0;
		if (flow->low_intervals >= WEIR_ICTCP_LOW_INTERVALS)
			weir_ictcp_decrease(port, flow);
	}
	flow->measured_bps = measured_bps;
	weir_ictcp_end_interval(flow, now_ns);
}

/* A segment of a connection that leaves the host. */
struct weir_ictcp_departure {
	weir_u64 now_ns;
	weir_u64 received_bytes; /* by the connection, since it opened */
	weir_u32 payload;
	weir_u32 mss;
	weir_u32 srtt_us; /* the host's own RTT, used until an echo is seen; 0: unknown */
	weir_u32 has_timestamps;
	weir_u32 value;
	weir_u32 echo;
};

/* Chooses the window with which a segment leaves: flow->window_bytes. */
WEIR_INLINE void weir_ictcp_depart(struct weir_ictcp_port *port, struct weir_ictcp_flow *flow,
				   const struct weir_ictcp_departure *seen)
{
	weir_u32 is_new = !flow->window_bytes;

	weir_ictcp_tick(port, seen->now_ns);
	if (is_new)
		flow->received_bytes = seen->received_bytes;
	if (is_new || weir_ictcp_is_idle(flow, seen->now_ns)) {
		weir_ictcp_restart(flow, seen->mss, seen->now_ns);
		port->restarts++;
	}
	if (seen->has_timestamps)
		weir_ictcp_note_timestamps(flow, seen->now_ns, seen->value, seen->echo, seen->payload);
	if (!flow->rtt_ns)
		flow->rtt_ns = seen->srtt_us * 1000ull;
	if (is_new || seen->payload || seen->received_bytes != flow->received_bytes)
		flow->active_ns = seen->now_ns;
	weir_ictcp_note_received(port, flow, seen->received_bytes);
	weir_ictcp_adjust(port, flow, seen->now_ns);
}

/*
 * The field that advertises the window, which holds whole segments. Its least is two segments or, if that is less, one
 * step of the window scale, so that it is never 0. A window of the host that is smaller stays.
 */
WEIR_INLINE weir_u32 weir_ictcp_field(weir_u32 field, weir_u32 window_bytes, weir_u32 mss, weir_u32 scale)
{
	weir_u32 least = WEIR_ICTCP_LEAST_SEGMENTS * mss;

	scale = scale > WEIR_MAX_SCALE ? WEIR_MAX_SCALE : scale;
	return weir_clamp_field(field, window_bytes, scale, mss, 1u << scale > least ? 1u << scale : 0);
}

#endif
