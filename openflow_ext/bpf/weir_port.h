/* SPDX-License-Identifier: GPL-2.0-only */
/* The ports: where one lies in its arrays, and what time it is there. */
#ifndef WEIR_PORT_H
#define WEIR_PORT_H

/*
 * The port of an interface and its state; false: the interface is no port. Interface numbers grow without end on
 * a host that makes and deletes many, so they are no places themselves.
 */
static __always_inline bool find_port(__u32 ifindex, struct weir_port **port, struct weir_port_state **state)
{
	*state = NULL; /* also where there is none: before Linux 6.3 no stack may be read that nothing wrote */
	for (__u32 i = 0; i < WEIR_PORT_PLACES; i++) {
		__u32 place = (ifindex + i) % WEIR_MAX_PORTS;

		*port = bpf_map_lookup_elem(&ports, &place);
		if (!*port)
			return false;
		if ((*port)->ifindex == ifindex) {
			*state = bpf_map_lookup_elem(&port_states, &place);
			return *state;
		}
	}
	return false;
}

/*
 * The time of the last clock tick. The kernel's coarse clock is asked once a tick and port: the count of ticks is
 * read in place, the clock by two calls.
 */
static __always_inline __u64 tick_ns(struct weir_port_state *state)
{
	__u64 tick = bpf_jiffies64();

	if (state->tick != tick) {
		state->tick_ns = bpf_ktime_get_coarse_ns();
		state->tick = tick;
	}
	return state->tick_ns;
}

#endif
