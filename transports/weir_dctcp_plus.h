/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The state machine of DCTCP+ (Miao, Cheng, Ren, Shu: Slowing Little Quickens More: Improving DCTCP for Massive
 * Concurrent Flows, ICPP 2015), algorithm 1, in integers. No state of its own, no I/O, no libc.
 * transports/dctcp_plus.py is the same model in Python.
 *
 * A window at its floor cannot shrink. If it is congested nevertheless, slow_time delays each packet further. It grows
 * with each congested ACK by a random part of a backoff unit, and is divided with each other ACK.
 *
 * Inferred, because the paper was not at hand: the unit, the threshold and the largest slow_time, and that cwnd does
 * not grow while there is a slow_time.
 */
#ifndef WEIR_DCTCP_PLUS_H
#define WEIR_DCTCP_PLUS_H

#include "weir_dctcp.h"

#define WEIR_SLOW_DIVISOR 2u
#define WEIR_SLOW_LEAST_UNIT_NS 100000u  /* shorter RTTs are queues of a few packets */
#define WEIR_SLOW_MOST_UNIT_NS 10000000u /* longer RTTs hold a window of every flow */
#define WEIR_SLOW_MOST_NS 100000000u     /* half of Linux's least RTO */
#define WEIR_SLOW_THRESHOLD_FRACTION 8u  /* of a unit: a slow_time below this ends */

enum weir_slow_state { WEIR_SLOW_NORMAL, WEIR_SLOW_TIME_INC, WEIR_SLOW_TIME_DES };

struct weir_slow {
	weir_u32 state;   /* enum weir_slow_state */
	weir_u32 time_ns; /* slow_time; 0 in WEIR_SLOW_NORMAL */
};

/* The backoff unit: the shortest RTT of the connection, within limits. */
WEIR_INLINE weir_u32 weir_slow_unit_ns(weir_u32 least_rtt_us)
{
	if (least_rtt_us <= WEIR_SLOW_LEAST_UNIT_NS / 1000)
		return WEIR_SLOW_LEAST_UNIT_NS;
	if (least_rtt_us >= WEIR_SLOW_MOST_UNIT_NS / 1000)
		return WEIR_SLOW_MOST_UNIT_NS;
	return least_rtt_us * 1000;
}

/* A random part of a unit, from 32 random bits: uniform between 0 and the unit, rounded down. */
WEIR_INLINE weir_u32 weir_slow_backoff_ns(weir_u32 unit_ns, weir_u32 random)
{
	return (weir_u64)unit_ns * random >> 32;
}

/*
 * An ACK. is_at_floor: cwnd cannot shrink; is_congested: the ACK carries ECE, or a loss is being repaired. A connection
 * that is not at the floor stays in WEIR_SLOW_NORMAL.
 */
WEIR_INLINE void weir_slow_on_ack(struct weir_slow *slow, weir_u32 is_at_floor, weir_u32 is_congested, weir_u32 unit_ns,
				  weir_u32 random)
{
	if (slow->state == WEIR_SLOW_NORMAL && !(is_at_floor && is_congested))
		return;
	if (is_congested) {
		slow->state = WEIR_SLOW_TIME_INC;
		slow->time_ns += weir_slow_backoff_ns(unit_ns, random);
		if (slow->time_ns > WEIR_SLOW_MOST_NS)
			slow->time_ns = WEIR_SLOW_MOST_NS;
	} else if (slow->state == WEIR_SLOW_TIME_INC || slow->time_ns > unit_ns / WEIR_SLOW_THRESHOLD_FRACTION) {
		slow->state = WEIR_SLOW_TIME_DES;
		slow->time_ns /= WEIR_SLOW_DIVISOR;
	} else {
		slow->state = WEIR_SLOW_NORMAL;
		slow->time_ns = 0;
	}
}

/* The interval between packets: that of a window per RTT, and slow_time more. 0: DCTCP sends as usual. */
WEIR_INLINE weir_u32 weir_slow_interval_ns(const struct weir_slow *slow, weir_u32 cwnd, weir_u32 srtt_us)
{
	weir_u64 rtt_ns = srtt_us < 1000000 ? srtt_us * 1000ull : 1000000000ull;

	return slow->state == WEIR_SLOW_NORMAL ? 0 : rtt_ns / (cwnd ? cwnd : 1) + slow->time_ns;
}

#endif
