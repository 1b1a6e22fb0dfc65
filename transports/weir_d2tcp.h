/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The arithmetic of D2TCP (Vamanan, Hasan, Vijaykumar: Deadline-Aware Datacenter TCP, SIGCOMM 2012) in integers. No
 * state, no I/O, no libc. The penalty alpha^d itself is in weir_power.h.
 *
 * The imminence d = Tc / D is a fraction of WEIR_DCTCP_ONE. Tc, the time that the message still needs, and D, the time
 * to its deadline, are both in microseconds.
 */
#ifndef WEIR_D2TCP_H
#define WEIR_D2TCP_H

#include "weir_dctcp.h"

#define WEIR_D2TCP_LEAST_D (WEIR_DCTCP_ONE / 2) /* far deadlines, and missed deadlines */
#define WEIR_D2TCP_MOST_D (2 * WEIR_DCTCP_ONE)
#define WEIR_D2TCP_MOST_SIZE (1ull << 40)     /* bytes of a message */
#define WEIR_D2TCP_MOST_TIME_US 3600000000ull /* more is not a time that is left, but the reading of a clock */
#define WEIR_D2TCP_MOST_RTT_US (1u << 26)     /* keeps the products below 2^64 */

/* What an application sets for its next message. end_byte counts the bytes of the connection; 0: no deadline. */
struct weir_deadline {
	weir_u64 end_byte;
	weir_u64 at_ns; /* CLOCK_MONOTONIC */
};

/* The value of the socket option WEIR_DEADLINE, in the host's byte order. */
struct weir_deadline_option {
	weir_u64 size_bytes;   /* of the message; 0 with time_left_us 0: none */
	weir_u64 time_left_us; /* until its deadline; 0: it is missed */
};

enum weir_deadline_verdict { WEIR_DEADLINE_SET, WEIR_DEADLINE_CLEARED, WEIR_DEADLINE_REFUSED };

/* A deadline without a size is refused, and so is a time of more than an hour, for example that of another clock. */
WEIR_INLINE enum weir_deadline_verdict weir_deadline_check(const struct weir_deadline_option *option)
{
	if (!option->size_bytes)
		return option->time_left_us ? WEIR_DEADLINE_REFUSED : WEIR_DEADLINE_CLEARED;
	if (option->size_bytes > WEIR_D2TCP_MOST_SIZE || option->time_left_us > WEIR_D2TCP_MOST_TIME_US)
		return WEIR_DEADLINE_REFUSED;
	return WEIR_DEADLINE_SET;
}

/*
 * Tc in microseconds: the bytes that are left at 3W/4 per RTT, the average of a window that falls to half and grows
 * back to W. Rounded down; the bytes are rounded up to whole segments. cwnd is W in segments.
 */
WEIR_INLINE weir_u64 weir_d2tcp_time_needed_us(weir_u64 left_bytes, weir_u32 cwnd, weir_u32 mss, weir_u32 srtt_us)
{
	weir_u64 segments = (left_bytes + mss - 1) / (mss ? mss : 1);
	weir_u64 rtt_us = srtt_us < WEIR_D2TCP_MOST_RTT_US ? srtt_us : WEIR_D2TCP_MOST_RTT_US;

	return segments * 4 * rtt_us / (3ull * (cwnd ? cwnd : 1));
}

/* d = Tc / D between 1/2 and 2, rounded down. A deadline that is missed (left_us 0) gives 1/2. */
WEIR_INLINE weir_u32 weir_d2tcp_imminence(weir_u64 needed_us, weir_u64 left_us)
{
	if (!left_us || needed_us <= left_us / 2)
		return WEIR_D2TCP_LEAST_D;
	if (needed_us / 2 >= left_us)
		return WEIR_D2TCP_MOST_D;
	return needed_us * WEIR_DCTCP_ONE / left_us;
}

#endif
