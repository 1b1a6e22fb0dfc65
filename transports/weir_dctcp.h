/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * DCTCP's arithmetic (RFC 8257), exact and in integers: the BPF program, the tests and ns-3 include this
 * file. No state of its own, no I/O, no libc.
 *
 * alpha is a fraction of WEIR_DCTCP_ONE. Sequence numbers are compared modulo 2^32 (RFC 9293, section 3.4).
 */
#ifndef WEIR_DCTCP_H
#define WEIR_DCTCP_H

#include "weir_window.h"

#define WEIR_DCTCP_ONE (1u << 16) /* the scaling factor SCF of section 4.2 */
#define WEIR_DCTCP_SHIFT 4	  /* SHF: g = 1/16, section 4.2 */
#define WEIR_DCTCP_LEAST_CWND 2u  /* segments, as RFC 5681, equation 4 */

enum weir_dctcp_cut { WEIR_DCTCP_CUT_NONE, WEIR_DCTCP_CUT_MARKED, WEIR_DCTCP_CUT_LOST };

/* One connection: the sender's estimate (section 3.3) and the receiver's ACK state (section 3.2). */
struct weir_dctcp {
	weir_u32 alpha;		/* DCTCP.Alpha */
	weir_u32 window_end;	/* DCTCP.WindowEnd */
	weir_u32 acked_bytes;	/* DCTCP.BytesAcked */
	weir_u32 marked_bytes;	/* DCTCP.BytesMarked */
	weir_u32 una;		/* SND.UNA as the last ACK left it */
	weir_u32 prior_rcv_nxt; /* RCV.NXT as the last data segment left it */
	weir_u32 ce;		/* DCTCP.CE */
	weir_u32 cut;		/* enum weir_dctcp_cut: what was done to cwnd in the window */
	weir_u32 high_seq;	/* that the kernel ends here */
	weir_u32 delivered;	/* segments, as the last ACK left it */
};

/* A new observation window that begins at sequence number una; alpha stays. */
WEIR_INLINE void weir_dctcp_observe_anew(struct weir_dctcp *dctcp, weir_u32 una)
{
	dctcp->una = una;
	dctcp->window_end = una;
	dctcp->acked_bytes = 0;
	dctcp->marked_bytes = 0;
}

/*
 * Section 3.3: alpha = alpha (1 - g) + g M, M = marked / acked, rounded down. It settles where
 * alpha <= M < alpha + 1 / (g SCF), and without marks at 0, as section 4.2 asks. That section's own two shifts
 * would hold an alpha that comes from 0 at M / 16 while M < 1/256.
 */
WEIR_INLINE weir_u32 weir_dctcp_alpha(weir_u32 alpha, weir_u32 marked_bytes, weir_u32 acked_bytes)
{
	weir_u32 scaled_m = acked_bytes ? (weir_u64)marked_bytes * WEIR_DCTCP_ONE / acked_bytes : 0;

	return ((alpha << WEIR_DCTCP_SHIFT) - alpha + scaled_m) >> WEIR_DCTCP_SHIFT;
}

/*
 * Section 3.3, steps 1 to 8, for an ACK that brings SND.UNA to `una`; what SACK says is not counted. A window
 * whose end is not under way any more has ended; so has one that was never begun.
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

/* Section 3.3, step 9: cwnd (1 - alpha / 2), to the nearest segment. */
WEIR_INLINE weir_u32 weir_dctcp_cwnd_marked(weir_u32 cwnd, weir_u32 alpha)
{
	weir_u32 cut = ((weir_u64)cwnd * alpha + WEIR_DCTCP_ONE) / (2 * WEIR_DCTCP_ONE);
	weir_u32 left = cwnd - cut;

	return left > WEIR_DCTCP_LEAST_CWND ? left : WEIR_DCTCP_LEAST_CWND;
}

/* Section 3.5: a loss halves, as in any TCP (RFC 5681, equation 4). */
WEIR_INLINE weir_u32 weir_dctcp_cwnd_lost(weir_u32 cwnd)
{
	return cwnd / 2 > WEIR_DCTCP_LEAST_CWND ? cwnd / 2 : WEIR_DCTCP_LEAST_CWND;
}

#endif
