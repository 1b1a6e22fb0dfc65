/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The arithmetic of DCTCP (RFC 8257) in integers. It keeps no state of its own, does no I/O and needs no libc, so that
 * the BPF program and the tests can both include it.
 *
 * alpha is a fraction of WEIR_DCTCP_ONE. Sequence numbers are compared modulo 2^32 (RFC 9293, section 3.4).
 */
#ifndef WEIR_DCTCP_H
#define WEIR_DCTCP_H

#include "weir_window.h"

#define WEIR_DCTCP_ONE (1u << 16) /* the scaling factor SCF of section 4.2 */
#define WEIR_DCTCP_SHIFT 4        /* SHF: g = 1/16, section 4.2 */
#define WEIR_DCTCP_LEAST_CWND 2u  /* segments, as RFC 5681, equation 4 */

enum weir_dctcp_reduction { WEIR_DCTCP_NOT_REDUCED, WEIR_DCTCP_REDUCED_BY_MARKS, WEIR_DCTCP_REDUCED_BY_LOSS };

/* One connection: the sender's estimate (section 3.3) and the receiver's ACK state (section 3.2). */
struct weir_dctcp {
	weir_u32 alpha;         /* DCTCP.Alpha */
	weir_u32 window_end;    /* DCTCP.WindowEnd */
	weir_u32 acked_bytes;   /* DCTCP.BytesAcked */
	weir_u32 marked_bytes;  /* DCTCP.BytesMarked */
	weir_u32 una;           /* SND.UNA after the last ACK */
	weir_u32 prior_rcv_nxt; /* RCV.NXT after the last data segment */
	weir_u32 ce;            /* DCTCP.CE */
	weir_u32 reduction;     /* enum weir_dctcp_reduction: how cwnd was reduced in the window of data */
	weir_u32 high_seq;      /* that ends here (the kernel's high_seq) */
	weir_u32 delivered;     /* segments delivered, after the last ACK */
};

/* Starts an observation window at sequence number una; alpha is kept. */
WEIR_INLINE void weir_dctcp_start_window(struct weir_dctcp *dctcp, weir_u32 una)
{
	dctcp->una = una;
	dctcp->window_end = una;
	dctcp->acked_bytes = 0;
	dctcp->marked_bytes = 0;
}

/*
 * Section 3.3: alpha = alpha (1 - g) + g M with M = marked / acked, rounded down. It converges to an alpha with
 * alpha <= M < alpha + 1 / (g SCF), and to 0 without marks, as section 4.2 requires. The two shifts that section 4.2
 * suggests would hold an alpha that rises from 0 at M / 16 if M < 1/256.
 */
WEIR_INLINE weir_u32 weir_dctcp_alpha(weir_u32 alpha, weir_u32 marked_bytes, weir_u32 acked_bytes)
{
	weir_u32 scaled_m = acked_bytes ? (weir_u64)marked_bytes * WEIR_DCTCP_ONE / acked_bytes : 0;

	return ((alpha << WEIR_DCTCP_SHIFT) - alpha + scaled_m) >> WEIR_DCTCP_SHIFT;
}

/*
 * Section 3.3, steps 1 to 8, for an ACK that moves SND.UNA to `una`; bytes that only SACK reports are not counted. An
 * observation window is over if its end is not between SND.UNA and SND.NXT, which includes one that never started.
 */
WEIR_INLINE void weir_dctcp_on_ack(struct weir_dctcp *dctcp, weir_u32 una, weir_u32 ece, weir_u32 snd_nxt)
{
	weir_u32 acked = una - dctcp->una;

	dctcp->una = una;
	dctcp->acked_bytes += acked;
	if (ece)
		dctcp->marked_bytes += acked;
	if (dctcp->window_end - una <= snd_nxt - una)
		return;
	dctcp->alpha = weir_dctcp_alpha(dctcp->alpha, dctcp->marked_bytes, dctcp->acked_bytes);
	dctcp->window_end = snd_nxt;
	dctcp->acked_bytes = 0;
	dctcp->marked_bytes = 0;
}

/* Section 3.3, step 9: cwnd (1 - alpha / 2), rounded to the nearest segment. */
WEIR_INLINE weir_u32 weir_dctcp_cwnd_after_marks(weir_u32 cwnd, weir_u32 alpha)
{
	weir_u32 decrease = ((weir_u64)cwnd * alpha + WEIR_DCTCP_ONE) / (2 * WEIR_DCTCP_ONE);
	weir_u32 left = cwnd - decrease;

	return left > WEIR_DCTCP_LEAST_CWND ? left : WEIR_DCTCP_LEAST_CWND;
}

/* Section 3.5: a loss halves cwnd, as in any TCP (RFC 5681, equation 4). */
WEIR_INLINE weir_u32 weir_dctcp_cwnd_after_loss(weir_u32 cwnd)
{
	return cwnd / 2 > WEIR_DCTCP_LEAST_CWND ? cwnd / 2 : WEIR_DCTCP_LEAST_CWND;
}

#endif
