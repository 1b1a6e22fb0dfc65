/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets that are not TCP. No window slows them down. If they fill a queue on their own, slower TCP flows do not
 * shorten it, so that the alarm says so, and no armed entry becomes active.
 *
 * The port follows a virtual queue: the bytes that are not TCP, which leave at the port's capacity as if they were
 * alone. A constant stream below the capacity leaves it empty, and then the queue is the fault of TCP. A fragment of an
 * IP packet that is not the first counts as not TCP. Several CPUs may lose an update of each other.
 */
#ifndef WEIR_NON_TCP_H
#define WEIR_NON_TCP_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_port.h"
#include "weir_structs.h"
#include "weir_window.h"

#define NON_TCP_PERCENT 50 /* of the queue: from here on, packets that are not TCP fill it */

static __always_inline __u32 non_tcp_queue_bytes(const struct weir_port *port, const struct weir_port_state *state,
						 __u64 now_ns)
{
	__u32 bytes = state->non_tcp_queue_bytes;
	__u64 elapsed_ns = port_elapsed_ns(now_ns, state->non_tcp_ns), drains_ns;

	if (!bytes || !port->capacity_bps)
		return 0;
	drains_ns = weir_drain_ns(bytes, port->capacity_bps);
	if (elapsed_ns >= drains_ns)
		return 0;
	return bytes - bytes * elapsed_ns / drains_ns;
}

/* A packet that is not TCP is about to be enqueued. */
static __always_inline void non_tcp_note_packet(const struct weir_port *port, struct weir_port_state *state,
						__u32 frame_bytes)
{
	__u64 now_ns = bpf_ktime_get_ns(), bytes = non_tcp_queue_bytes(port, state, now_ns) + (__u64)frame_bytes;

	__sync_fetch_and_add(&state->non_tcp_bytes, frame_bytes);
	if (!port->buffer_bytes)
		return;
	state->non_tcp_queue_bytes = bytes < port->buffer_bytes ? bytes : port->buffer_bytes;
	state->non_tcp_ns = now_ns;
}

/* The part of the queue that would be there without TCP, 0 to 100. */
static __always_inline __u32 non_tcp_percent(const struct weir_port *port, const struct weir_port_state *state,
					     __u64 now_ns)
{
	__u64 bytes = non_tcp_queue_bytes(port, state, now_ns), queue_bytes = state->queue_bytes;

	if (bytes >= queue_bytes)
		return queue_bytes ? 100 : 0;
	return bytes * 100 / queue_bytes;
}

#endif
