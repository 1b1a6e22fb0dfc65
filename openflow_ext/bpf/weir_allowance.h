/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The allowance: how many bytes may be in flight towards a port. A closed loop per port finds it, so that it fits any
 * RTT and any number of flows (docs/decisions/0055-allowance.md).
 *
 * Too small: the link was idle although a flow went on as soon as its window allowed. Below its capacity a shaped queue
 * empties after each packet, so an empty queue shows nothing. The sign is idle time of the link: a clock that each
 * departing byte advances (link_free_ns) lies in the past. A pause that ends with the answer to a request is the
 * application's, and at most two round trips of a pause count (allowance_note_gap).
 * Too large: the queue's least length during an interval exceeds a small target.
 *
 * A port without a common RTT sets no fair share, and only clamps of SDTCP limit flows. It begins with what fits into
 * its queue, and corrects the allowance while all active senders are punished, or while it gives back: the link was
 * idle although a punished flow went on as soon as its window allowed, because the other flows do not fill it.
 *
 * A correction takes effect after a round trip. So first the allowance departs once, and then an interval begins that
 * ends when the allowance has departed again. Together these take two round trips or longer.
 *
 * While the allowance is at most seven eighths of the queue, all that it promises fits there, so that it may grow
 * without doing harm, even if flows pause for other reasons. Above that it grows only if the window was seen to limit a
 * flow, in one of the last intervals (weir_limit.h). Then it is at most that and what the link carries in the shortest
 * round trip of such a flow. The rest of a longer round trip is the time of a host that was busy. What it sends later
 * arrives together with what others send.
 */
#ifndef WEIR_ALLOWANCE_H
#define WEIR_ALLOWANCE_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_port.h"
#include "weir_share.h"
#include "weir_structs.h"
#include "weir_window.h"

static __always_inline __u32 allowance_bytes(const struct weir_port *port, const struct weir_port_state *state)
{
	if (port->link_ns && state->allowance_bytes)
		return state->allowance_bytes;
	if (!port->bdp_bytes)
		return weir_queue_room_bytes(port->buffer_bytes);
	return port->bdp_bytes > 0xffffffff ? 0xffffffff : port->bdp_bytes;
}

/* The payload of so many bytes in a queue, which counts headers too. */
static __always_inline __u64 allowance_payload_bytes(__u64 queue_bytes, __u32 mss)
{
	return queue_bytes * mss / (mss + WEIR_HEADERS);
}

/* What fits into the queue with an eighth to spare: all idle flows together may start with this much. */
static __always_inline __u32 allowance_of_idle_flows(const struct weir_port *port, const struct weir_port_state *state,
						     __u32 mss)
{
	__u64 fits = allowance_payload_bytes(weir_queue_room_bytes(port->buffer_bytes), mss);
	__u32 allowance = allowance_bytes(port, state);

	return allowance > fits ? fits : allowance;
}

static __always_inline __u64 allowance_link_ns(const struct weir_port *port, __u64 bytes)
{
	return bytes * port->link_ns >> LINK_NS_SHIFT;
}

/*
 * Turns as long as the allowance needs: a flow may send its window at once and then wait for a round trip. A flow that
 * sends does so in each round trip, and the allowance takes at least a round trip on the link. So while the queue is
 * empty a turn lasts as long as that, and after two of them a flow that has ended holds no share.
 */
static __noinline int allowance_set_turns(const struct weir_port *port, struct weir_port_state *state)
{
	__u64 rtt_ns = allowance_link_ns(port, state->allowance_bytes);
	__u64 drains_ns = allowance_link_ns(port, state->allowance_bytes + port->buffer_bytes);
	__u32 shift = port->turn_shift;

	for (int more = 0; more < MAX_TURN_DOUBLINGS && (drains_ns + drains_ns / 4) >> (shift & 63); more++)
		shift++;
	state->short_turn_ns = rtt_ns > port->short_turn_ns ? rtt_ns : port->short_turn_ns;
	state->turn_shift = shift;
	return 0;
}

/*
 * The link was idle for idle_ns. If that is long, flows start in bursts, which only the queue absorbs. So the allowance
 * is at most what fits there.
 */
static __always_inline void allowance_note_idle(const struct weir_port *port, struct weir_port_state *state,
						__u64 idle_ns)
{
	__u64 fits = weir_queue_room_bytes(port->buffer_bytes);

	if (state->allowance_bytes <= fits || fits < port->bdp_bytes ||
	    idle_ns <= PAUSE_ROUND_TRIPS * allowance_link_ns(port, state->allowance_bytes))
		return;
	state->allowance_bytes = fits;
	allowance_set_turns(port, state);
}

/* Bytes leave by the port, before they are enqueued. Returns for how long the link was idle before them, in ns. */
static __always_inline __u64 allowance_note_departure(const struct weir_port *port, struct weir_port_state *state,
						      __u64 bytes)
{
	__u64 sends_ns, now_ns, free_ns;

	if (!port->link_ns)
		return 0;
	sends_ns = allowance_link_ns(port, bytes);
	state->departed_bytes += bytes;
	if (state->queue_bytes) {
		state->link_free_ns += sends_ns;
		return 0;
	}
	now_ns = bpf_ktime_get_ns();
	free_ns = state->link_free_ns;
	if (free_ns < state->emptied_ns)
		free_ns = state->emptied_ns;
	if (free_ns > now_ns + LINK_LEAD_NS)
		free_ns = now_ns + LINK_LEAD_NS;
	state->link_free_ns = (free_ns > now_ns ? free_ns : now_ns) + sends_ns;
	if (free_ns >= now_ns)
		return 0;
	allowance_note_idle(port, state, now_ns - free_ns);
	return now_ns - free_ns;
}

/*
 * The link was idle before this segment of a flow. The time counts as starved, but not if the flow had been asked for
 * something, for then nothing waited, or if no clamp limits the flow. A pause of the application may be long, and two
 * round trips suffice for the largest growth, so that the rest is left out of the interval.
 */
static __always_inline void allowance_note_gap(const struct weir_flow *flow, const struct weir_port *port,
					       struct weir_port_state *state, __u64 gap_ns)
{
	__u64 round_trip_ns = allowance_link_ns(port, allowance_bytes(port, state));
	__u64 starved_ns = gap_ns < 2 * round_trip_ns ? gap_ns : 2 * round_trip_ns;

	if (flow->flags & WEIR_ASKED || !(port->bdp_bytes || flow->flags & WEIR_PUNISHED))
		starved_ns = 0;
	state->starved_ns += starved_ns;
	state->interval_start_ns += gap_ns - starved_ns;
}

/*
 * A port that has corrected nothing yet begins with the shortest RTT of its handshakes, or with the common RTT if that
 * is longer. A single handshake may have waited for a host or for a controller. What fits into the queue does no harm.
 */
static __always_inline void allowance_note_handshake(const struct weir_port *port, struct weir_port_state *state,
						     __u64 rtt_ns)
{
	__u64 fits = weir_queue_room_bytes(port->buffer_bytes), bytes;

	if (!port->link_ns || !port->bdp_bytes || !rtt_ns)
		return;
	if (state->allowance_bytes && state->allowance_limit != WEIR_LIMIT_HANDSHAKE)
		return;
	if (rtt_ns > LONGEST_HANDSHAKE_NS)
		rtt_ns = LONGEST_HANDSHAKE_NS;
	bytes = (rtt_ns << LINK_NS_SHIFT) / port->link_ns;
	if (bytes > fits)
		bytes = fits;
	if (state->allowance_bytes && bytes > state->allowance_bytes)
		return;
	if (bytes < port->bdp_bytes)
		bytes = port->bdp_bytes;
	state->allowance_bytes = bytes;
	state->allowance_limit = WEIR_LIMIT_HANDSHAKE;
	allowance_set_turns(port, state);
}

/* How long the interval has lasted; 0 if it began after now_ns. */
static __always_inline __u64 allowance_interval_ns(const struct weir_port_state *state, __u64 now_ns)
{
	return now_ns > state->interval_start_ns ? now_ns - state->interval_start_ns : 0;
}

static __always_inline void allowance_begin_interval(struct weir_port_state *state, __u64 now_ns)
{
	state->interval_start_ns = now_ns;
	state->starved_ns = state->departed_bytes = 0;
	state->queue_min_bytes = state->queue_bytes;
}

/*
 * The least allowance: a segment for each flow. A port that shares by host needs more, so that the smallest share is as
 * much as the least window of a flow, one segment or two. Otherwise the host with the most flows would have more than
 * its part. All that is promised has to fit into the queue.
 */
static __always_inline __u64 allowance_least(const struct weir_port *port, const struct weir_port_state *state,
					     __u32 flows, __u32 segment_bytes)
{
	__u64 fits = weir_queue_room_bytes(port->buffer_bytes), least = (__u64)flows * segment_bytes, by_host;
	__u32 most = state->host_most_in_turn[0];

	if (!state->by_host_turns || least >= fits)
		return least;
	if (most < state->host_most_in_turn[1])
		most = state->host_most_in_turn[1];
	if (state->two_segment_flows)
		segment_bytes *= 2;
	by_host = share_active_weight(port, state, state->tick_ns) * most * segment_bytes / WEIR_FULL_WEIGHT;
	if (by_host > fits - least)
		by_host = fits - least;
	return by_host > least ? by_host : least;
}

/*
 * The largest allowance. `fits`: the payload that fits into the queue. A round trip is rounded up. Without timestamps
 * the window limits flows, but no round trip is known. A flow that uses little of its window sends at most USE_PART
 * sixteenths of it, and the rest is added (docs/decisions/0102-unused-windows.md).
 */
static __always_inline __u64 allowance_most(const struct weir_port *port, const struct weir_port_state *state,
					    __u64 fits, __u32 segment_bytes)
{
	__u32 round_trip = state->round_trip[0], before = state->round_trip[1];
	__u64 most, unused;

	if (!(state->window_limits & WINDOW_LIMIT_HISTORY))
		return fits;
	if (!round_trip || (before && before < round_trip))
		round_trip = before;
	if (!round_trip)
		return MOST_ALLOWANCE_BYTES;
	most = ((__u64)(round_trip + 1) << (ROUND_TRIP_SHIFT + LINK_NS_SHIFT)) / port->link_ns;
	most = fits + allowance_payload_bytes(most, segment_bytes);
	unused = share_of_little_use(port, state, allowance_bytes(port, state), state->tick_ns);
	most += unused - unused * USE_PART / 16;
	return most < MOST_ALLOWANCE_BYTES ? most : MOST_ALLOWANCE_BYTES;
}

/* What allowance_most consists of: enum weir_allowance_limit. */
static __always_inline __u32 allowance_bound(__u64 most, __u64 fits)
{
	if (most == fits)
		return WEIR_LIMIT_QUEUE;
	return most < MOST_ALLOWANCE_BYTES ? WEIR_LIMIT_ROUND_TRIP : WEIR_LIMIT_MOST;
}

/*
 * An interval ends in which the port gave back. It does so no longer if its queue was never short
 * during an alarm, if all flows are punished, or if SCCP limits all flows now.
 */
static __always_inline void allowance_take_again(const struct weir_port *port, struct weir_port_state *state,
						 bool has_queue)
{
	bool congested = has_queue && state->alarm == WEIR_CONGESTED;

	if (congested || port->bdp_bytes || share_all_are_small(port, state, state->tick_ns))
		state->gives_back = 0;
}

/*
 * Corrects the allowance. `flows` of `segment_bytes` have windows of at least a segment each, whatever the allowance
 * is. Senders send what the allowance grows by at once. So it grows by no more than half of what fits into the queue,
 * which also holds their other bursts.
 */
static __always_inline void allowance_correct(const struct weir_port *port, struct weir_port_state *state, __u32 flows,
					      __u32 segment_bytes, __u64 now_ns)
{
	__u64 allowance = allowance_bytes(port, state);
	__u64 fits = allowance_payload_bytes(weir_queue_room_bytes(port->buffer_bytes), segment_bytes);
	__u64 target = allowance / TARGET_FRACTION, least = allowance_least(port, state, flows, segment_bytes);
	__u64 most = allowance_most(port, state, fits, segment_bytes);
	__u64 most_now = allowance + fits / GROWTH_ROOM_FRACTION;
	struct weir_interval seen = {
		.length_ns = allowance_interval_ns(state, now_ns),
		.starved_ns = state->starved_ns,
		.departed_bytes = state->departed_bytes,
		.queue_min_bytes = state->queue_min_bytes,
		.starved_before = state->was_starved,
	};

	if (most_now > most)
		most_now = most;
	if (target > port->buffer_bytes / TARGET_QUEUE_FRACTION)
		target = port->buffer_bytes / TARGET_QUEUE_FRACTION;
	if (target < LEAST_TARGET_FRAMES * FRAME_BYTES)
		target = LEAST_TARGET_FRAMES * FRAME_BYTES;
	if (least > fits)
		least = fits;
	if (least < LEAST_ALLOWANCE_FRAMES * FRAME_BYTES)
		least = LEAST_ALLOWANCE_FRAMES * FRAME_BYTES;
	state->allowance_bytes = weir_next_allowance(allowance, &seen, target, least, most_now);
	state->was_starved = weir_is_starved(&seen);
	if (state->gives_back) {
		if (state->allowance_bytes < allowance)
			state->allowance_bytes = allowance; /* other flows fill the queue, too */
		allowance_take_again(port, state, !state->was_starved && seen.queue_min_bytes > target);
	}
	state->allowance_limit = WEIR_LIMIT_NONE;
	if (state->allowance_bytes <= least)
		state->allowance_limit = WEIR_LIMIT_SEGMENTS;
	else if (state->was_starved && state->allowance_bytes >= most)
		state->allowance_limit = allowance_bound(most, fits);
	state->window_limits <<= 1;
	if (now_ns - state->round_trip_ns > ROUND_TRIPS_NS) {
		state->round_trip[1] = state->round_trip[0];
		state->round_trip[0] = 0;
		state->round_trip_ns = now_ns;
	}
	state->settled = 0;
	allowance_begin_interval(state, now_ns);
	allowance_set_turns(port, state);
}

/*
 * What other flows may have in flight while punished flows send, too; `weight` is the sum of all weights. A
 * punished flow has a segment at least, so a small allowance would divide the link by segments instead of by weights.
 * So the burst fills a part of the queue, headers included, until a segment is the part of a punished flow. What the
 * punished flows hold there, a segment each, counts. `missing`: share_missing_weight, by which their number is known.
 */
static __always_inline __u64 allowance_beside_punished(const struct weir_port *port, __u64 allowance, __u64 weight,
						       __u64 missing, __u32 mss)
{
	__u64 punished = missing / (WEIR_FULL_WEIGHT - WEIR_FULL_WEIGHT / WEIR_PUNISHED_FRACTION);
	__u64 room = port->buffer_bytes - port->buffer_bytes / BURST_SPARE_FRACTION;
	__u64 held = punished * (mss + WEIR_HEADERS);
	__u64 most = allowance_payload_bytes(room > held ? room - held : 0, mss);
	__u64 wanted = weight * mss / (WEIR_FULL_WEIGHT / WEIR_PUNISHED_FRACTION);

	if (wanted > most)
		wanted = most;
	return wanted > allowance ? wanted : allowance;
}

/*
 * False if the length of the queue does not follow from the allowance: other flows send beside punished ones
 * (allowance_beside_punished), or flows send that no clamp limits. A port that sets a fair share limits all flows.
 * Otherwise only the punished ones are limited. A port that observes limits none.
 */
static __always_inline bool allowance_rules_queue(const struct weir_port *port, const struct weir_port_state *state)
{
	if (port_observes_share(port))
		return false;
	return state->gives_back || share_all_are_small(port, state, state->tick_ns) ||
	       (port->bdp_bytes && !share_missing_weight(port, state, state->tick_ns));
}

/*
 * Ends an interval in which only some of the flows were limited. If the link was idle while punished flows waited, the
 * port gives back: these have the weight of others, until the queue shows that others need the link, too.
 */
static __always_inline void allowance_give_back(const struct weir_port *port, struct weir_port_state *state,
						__u64 now_ns)
{
	struct weir_interval seen = {
		.length_ns = allowance_interval_ns(state, now_ns),
		.starved_ns = state->starved_ns,
	};

	if (!port->bdp_bytes && !port_observes_share(port) && weir_is_starved(&seen))
		state->gives_back = 1;
}

/*
 * Ends an interval. The first one after a correction only waits until its windows are in force. A global function, so
 * that the verifier does not follow it for each way through the packet's program.
 */
__noinline int allowance_end_interval(const struct weir_port *port, struct weir_port_state *state, __u32 segment_bytes)
{
	__u64 now_ns = bpf_ktime_get_ns();

	if (!port || !state)
		return 0;
	if (state->settled && allowance_rules_queue(port, state)) {
		allowance_correct(port, state, share_active_senders(port, state, state->tick_ns), segment_bytes,
				  now_ns);
		return 0;
	}
	if (state->settled)
		allowance_give_back(port, state, now_ns);
	allowance_begin_interval(state, now_ns);
	state->settled = 1;
	return 0;
}

/* Payload of a flow leaves by the port, after the link was idle for gap_ns. */
static __always_inline void allowance_note_payload(struct weir_flow *flow, const struct weir_port *port,
						   struct weir_port_state *state, __u64 gap_ns)
{
	if (!port->link_ns)
		return;
	if (gap_ns)
		allowance_note_gap(flow, port, state, gap_ns);
	if (state->departed_bytes >= allowance_bytes(port, state))
		allowance_end_interval(port, state, flow->max_payload);
}

/*
 * A part of a segment, by flow and turn. Windows hold whole segments; with it the windows of all flows together are the
 * allowance, and they do not grow all at once. Over many turns every flow receives the same.
 */
static __always_inline __u32 allowance_dither(__u16 port_a, __u16 port_b, __u32 turn, __u32 mss)
{
	__u32 of_flow = ((__u32)port_a * DITHER_A + (__u32)port_b * DITHER_B) >> 8;
	__u32 part = (of_flow + (turn >> DITHER_TURNS_SHIFT) * DITHER_STEP) & 0xff;

	return mss * part >> 8;
}

#endif
