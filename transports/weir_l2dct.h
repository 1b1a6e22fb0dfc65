/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The weights of L2DCT (Munir and others: Minimizing Flow Completion Times in Data Centers, INFOCOM 2013) in integers.
 * No state, no I/O, no libc. The decrease alpha^wc itself is in weir_power.h.
 *
 * A weight is a fraction of WEIR_DCTCP_ONE. It depends on the bytes that a flow has sent, without retransmissions.
 */
#ifndef WEIR_L2DCT_H
#define WEIR_L2DCT_H

#include "weir_dctcp.h"

#define WEIR_L2DCT_MOST_WEIGHT (5 * WEIR_DCTCP_ONE / 2)
#define WEIR_L2DCT_LEAST_WEIGHT (WEIR_DCTCP_ONE / 8)
#define WEIR_L2DCT_SHORT_BYTES 200000u
#define WEIR_L2DCT_LONG_BYTES 1000000u

/* wc: 2.5 for up to 200 KB, 0.125 from 1 MB on, and linear between them, rounded up. */
WEIR_INLINE weir_u32 weir_l2dct_weight(weir_u64 sent_bytes)
{
	weir_u64 fall = WEIR_L2DCT_MOST_WEIGHT - WEIR_L2DCT_LEAST_WEIGHT;

	if (sent_bytes <= WEIR_L2DCT_SHORT_BYTES)
		return WEIR_L2DCT_MOST_WEIGHT;
	if (sent_bytes >= WEIR_L2DCT_LONG_BYTES)
		return WEIR_L2DCT_LEAST_WEIGHT;
	return WEIR_L2DCT_MOST_WEIGHT -
	       fall * (sent_bytes - WEIR_L2DCT_SHORT_BYTES) / (WEIR_L2DCT_LONG_BYTES - WEIR_L2DCT_SHORT_BYTES);
}

/*
 * The increase: k = wc / 2.5 segments per RTT instead of one. So of `acked` segments, k times as many count. Parts of a
 * segment stay in `credit`, a fraction of WEIR_DCTCP_ONE.
 */
WEIR_INLINE weir_u32 weir_l2dct_counted(weir_u32 acked, weir_u32 weight, weir_u32 *credit)
{
	weir_u64 parts = *credit + (weir_u64)acked * weight * 2 / 5;

	*credit = parts % WEIR_DCTCP_ONE;
	return parts / WEIR_DCTCP_ONE;
}

#endif
