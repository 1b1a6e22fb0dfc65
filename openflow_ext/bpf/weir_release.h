/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The end of a punishment. A full congestion window waits behind the clamp of a flow, so a sender that gets its whole
 * window at once overflows the queue (docs/decisions/0088-gradual-release.md). So the window begins with the bytes in
 * flight, and grows by a quarter of the acknowledged bytes. The queue then grows by at most a quarter of the link's
 * rate, and an alarm can be answered in time. When the window has grown by a whole queue, the flow is free.
 *
 * Only at a port that corrects its allowance and sets no fair share. A fair share limits the flow in any case. Without
 * corrections, as published, the next ACK has the receiver's own window.
 */
#ifndef WEIR_RELEASE_H
#define WEIR_RELEASE_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_flow_bits.h"
#include "weir_port.h"
#include "weir_structs.h"
#include "weir_window.h"

/* Notes that SDTCP punishes the flow, or does so no longer. */
static __always_inline void release_note_punished(struct weir_flow *flow, const struct weir_port *port, bool punished)
{
	__u32 units;

	if (punished == !!(flow->flags & WEIR_PUNISHED))
		return;
	flow_note(flow, WEIR_PUNISHED, punished);
	if (punished) {
		flow_clear(flow, WEIR_RELEASED);
		return;
	}
	if (port->bdp_bytes)
		return;
	flow_clear(flow, WEIR_WATCHED | WEIR_TIMED);
	flow_set(flow, WEIR_RELEASED);
	flow->watched_seq = flow->local_edges.ack;
	units = (flow->remote_edges.end - flow->watched_seq + 2 * flow->max_payload) >> RELEASED_SHIFT;
	flow->watched_at = units < 0xffff ? units + 1 : 0xffff;
}

/* The window field of a released flow's ACK, at most `field`. */
static __always_inline __u32 release_field(struct weir_flow *flow, const struct weir_port *port, __u32 field,
					   __u32 scale, __u32 mss)
{
	__u32 acked = flow->local_edges.ack - flow->watched_seq, more = acked / RELEASE_FRACTION;

	if (!port->link_ns || more > port->buffer_bytes) {
		flow_clear(flow, WEIR_RELEASED);
		return field;
	}
	if (port_observes(port, WEIR_MOD_WINDOW))
		return field;
	return weir_clamp_field(field, ((__u32)flow->watched_at << RELEASED_SHIFT) + more, scale, mss, 0);
}

#endif
