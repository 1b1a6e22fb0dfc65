/* SPDX-License-Identifier: GPL-2.0-only */
/* Ports: the settings of their host, the index of a port in the port arrays, and the port's clock. */
#ifndef WEIR_PORT_H
#define WEIR_PORT_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_maps.h"
#include "weir_structs.h"

#define WINDOW_OP_MASK 31

static __always_inline struct weir_settings *host_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&settings, &zero);
}

/*
 * The port of an interface and its state; false if the interface is not a port. ifindex cannot be the index of the
 * arrays: it grows without limit on a host that creates and deletes many interfaces.
 */
static __always_inline bool port_find(__u32 ifindex, struct weir_port **port, struct weir_port_state **state)
{
	*state = NULL; /* set on this path too: before Linux 6.3 a program may not read stack that was not written */
	for (__u32 i = 0; i < WEIR_PORT_SLOTS; i++) {
		__u32 slot = (ifindex + i) % WEIR_MAX_PORTS;

		*port = bpf_map_lookup_elem(&ports, &slot);
		if (!*port)
			return false;
		if ((*port)->ifindex == ifindex) {
			*state = bpf_map_lookup_elem(&port_states, &slot);
			return *state;
		}
	}
	return false;
}

/* Whether the port only counts what a window action (enum weir_window_op) would change. */
static __always_inline bool port_observes(const struct weir_port *port, __u32 window_op)
{
	return port->observes >> (window_op & WINDOW_OP_MASK) & 1;
}

/* Whether the port changes nothing for a fair share: windows, offers of SYNs, PSH. It counts what it would change. */
static __always_inline bool port_observes_share(const struct weir_port *port)
{
	return port_observes(port, WEIR_FAIR_SHARE);
}

/* The time since then_ns; 0 if another CPU has written then_ns, and later than this CPU has read now_ns. */
static __always_inline __u64 port_elapsed_ns(__u64 now_ns, __u64 then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

/*
 * The coarse clock as of the last tick. The tick count is read in place, while the clock costs calls, so it is read
 * once per tick and port.
 */
static __always_inline __u64 port_tick_ns(struct weir_port_state *state)
{
	__u64 tick = bpf_jiffies64();

	if (state->tick != tick) {
		state->tick_ns = bpf_ktime_get_coarse_ns();
		state->tick = tick;
	}
	return state->tick_ns;
}

#endif
