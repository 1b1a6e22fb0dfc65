/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The state of one connection. Every congestion control of this folder has the same layout in the kernel's
 * icsk_ca_priv, so that dctcp_sockets.bpf.c can read all of them. A control leaves members of others at 0.
 */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#include "weir_ap.h"
#include "weir_dctcp.h"
#include "weir_dctcp_plus.h"

#define WEIR_FLOW_BYTES 104 /* the size of icsk_ca_priv: ICSK_CA_PRIV_SIZE */

struct weir_flow {
	struct weir_dctcp dctcp;
	weir_u32 exponent; /* of alpha, at the last reduction by marks: d of D2TCP, wc of L2DCT; 1 is WEIR_DCTCP_ONE */
	weir_u32 credit;   /* L2DCT: parts of a segment by which cwnd has not grown; 1 is WEIR_DCTCP_ONE */
	weir_u64 start_bytes; /* L2DCT: bytes that the connection had sent when its current flow began */
	struct weir_ap_state ap;
	struct weir_slow slow; /* DCTCP+ */
};

_Static_assert(sizeof(struct weir_flow) <= WEIR_FLOW_BYTES, "icsk_ca_priv is full");

#endif
