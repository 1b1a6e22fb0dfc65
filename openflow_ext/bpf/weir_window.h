/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The window arithmetic in integers, rounded down. It has no state, no I/O and needs no libc, so that the BPF
 * programs and the tests can both include it. weir_base/window.py is the same arithmetic in Python, and
 * tests/unit/openflow_ext/test_window_arithmetic.py compares both.
 *
 * A window is in bytes. A "field" is the 16-bit window of a TCP header, and field << scale is the window in
 * bytes (RFC 7323, section 2.2).
 */
#ifndef WEIR_WINDOW_H
#define WEIR_WINDOW_H

#ifdef __bpf__
#include "vmlinux.h"

typedef __u8 weir_u8;
typedef __u16 weir_u16;
typedef __u32 weir_u32;
typedef __u64 weir_u64;
typedef __s64 weir_s64;
#else
#include <stdint.h>
typedef uint8_t weir_u8;
typedef uint16_t weir_u16;
typedef uint32_t weir_u32;
typedef uint64_t weir_u64;
typedef int64_t weir_s64;
#endif

#ifndef WEIR_INLINE
#define WEIR_INLINE static inline __attribute__((always_inline, unused))
#endif

#define WEIR_NS_PER_S 1000000000ull
#define WEIR_BITS_US_PER_BYTE_S 8000000ull /* bits in a byte x microseconds in a second */
#define WEIR_MAX_SCALE 14                  /* RFC 7323, section 2.3 */
#define WEIR_MAX_FIELD 0xffffu

/*
 * The bandwidth-delay product: the bytes that a path of capacity_bps holds in rtt_us. Exact if
 * capacity_bps * rtt_us < 2^64 (10 Tbit/s for 1.8 s). The agent computes it (in Python) for each port.
 */
WEIR_INLINE weir_u64 weir_bdp_bytes(weir_u64 capacity_bps, weir_u64 rtt_us)
{
	return capacity_bps * rtt_us / WEIR_BITS_US_PER_BYTE_S;
}

/* SCCP, equation (1): fair_share_i = bdp_i / N_i. The whole BDP if the port has no flow. */
WEIR_INLINE weir_u32 weir_fair_share_bytes(weir_u64 bdp_bytes, weir_u64 flows)
{
	weir_u64 share = flows ? bdp_bytes / flows : bdp_bytes;

	return share > 0xffffffffull ? 0xffffffffu : (weir_u32)share;
}

/* The larger sum of the last two turns, of which the earlier one counts until the current one is over. */
WEIR_INLINE weir_u64 weir_most_in_turn(const weir_u64 in_turn[2], weir_u32 turn, weir_s64 turns_passed)
{
	weir_u64 this_turn = turns_passed < 2 ? in_turn[turn & 1] : 0;
	weir_u64 last_turn = turns_passed < 1 ? in_turn[(turn + 1) & 1] : 0;

	return last_turn > this_turn ? last_turn : this_turn;
}

/*
 * The flows among which a port is shared: the most that sent in one of the last two turns, at most N_i.
 * sent_in_turn holds the flows that sent in the last even and in the last odd turn. turns_passed is the number of
 * whole turns since the current turn began (negative if the caller's clock lags behind the one that began it).
 * All of N_i if no flow has sent: the port has only now learned how long a turn lasts.
 */
WEIR_INLINE weir_u64 weir_active_senders(const weir_u64 sent_in_turn[2], weir_u32 turn, weir_s64 turns_passed,
					 weir_u64 n_i)
{
	weir_u64 flows = weir_most_in_turn(sent_in_turn, turn, turns_passed);

	return flows && flows < n_i ? flows : n_i;
}

/* The time in ns in which a link of capacity_bps (not 0) sends so many bytes. */
WEIR_INLINE weir_u64 weir_drain_ns(weir_u64 bytes, weir_u64 capacity_bps)
{
	return bytes * 8 * WEIR_NS_PER_S / capacity_bps;
}

/* One interval of a port's allowance (weir_allowance.h). */
struct weir_interval {
	weir_u64 length_ns;
	weir_u64 starved_ns;      /* the part in which the link was idle while flows waited for a window */
	weir_u64 departed_bytes;  /* what the link sent */
	weir_u32 queue_min_bytes; /* the least length of the queue */
	weir_u32 starved_before;  /* not 0: the interval before was starved, too */
};

#define WEIR_STARVED_FRACTION 256    /* less idle time than this part of an interval does not count */
#define WEIR_FIRST_GROWTH_FRACTION 4 /* the most growth after one starved interval: this part of the allowance */

WEIR_INLINE weir_u32 weir_is_starved(const struct weir_interval *seen)
{
	return seen->starved_ns > seen->length_ns / WEIR_STARVED_FRACTION;
}

/*
 * The allowance after an interval: the bytes that may be in flight towards a port.
 *
 * Starved for the part s of the interval: the flows need 1/(1-s) of the allowance to fill the link. It grows to that,
 * at most to twice itself and to most_bytes, and by at most what departed. A larger allowance than most_bytes stays.
 * A host that stood still starves the link once. So after a single starved interval it grows by a quarter at most.
 * The queue was always longer than target_bytes: what stood there in excess is not needed.
 * Otherwise it stays, so that small changes do not make all flows step together.
 *
 * Exact if allowance_bytes * starved_ns < 2^64 (1 GB for 17 s).
 */
WEIR_INLINE weir_u64 weir_next_allowance(weir_u64 allowance_bytes, const struct weir_interval *seen,
					 weir_u64 target_bytes, weir_u64 least_bytes, weir_u64 most_bytes)
{
	weir_u64 next = allowance_bytes;

	if (weir_is_starved(seen)) {
		weir_u64 most = most_bytes > allowance_bytes ? most_bytes - allowance_bytes : 0;
		weir_u64 busy_ns = seen->length_ns - seen->starved_ns, more = allowance_bytes;

		if (seen->length_ns > 2 * seen->starved_ns)
			more = allowance_bytes * seen->starved_ns / busy_ns;
		if (!seen->starved_before && more > allowance_bytes / WEIR_FIRST_GROWTH_FRACTION)
			more = allowance_bytes / WEIR_FIRST_GROWTH_FRACTION;
		if (more > seen->departed_bytes)
			more = seen->departed_bytes;
		next = allowance_bytes + (more < most ? more : most);
	} else if (seen->queue_min_bytes > target_bytes) {
		weir_u64 excess = seen->queue_min_bytes - target_bytes;

		next = allowance_bytes > excess ? allowance_bytes - excess : 0;
	}
	return next < least_bytes ? least_bytes : next;
}

#define WEIR_HEADERS 86          /* headers of a segment on the wire: Ethernet 14, IPv6 40, TCP with timestamps 32 */
#define WEIR_SPARE_FRACTION 8    /* part of a queue that segment fitting leaves free */
#define WEIR_MAX_LOSS_FRACTION 8 /* a segment is not cut by more than this part of the MSS */
#define WEIR_LEAST_SEGMENT 256   /* in smaller segments headers take over a quarter of the link */

/*
 * The largest window that Linux fills with one segment. A sender fills a window over 536 bytes with two half segments,
 * whatever its MSS, until it sees a larger one (tcp_bound_to_half_wnd).
 */
#define WEIR_SMALL_WINDOW 512

#define WEIR_FINE_SCALE 7 /* the finest scale that is advertised: steps of 128 bytes, windows up to 8 MB */
#define WEIR_MOST_FINER                                                                                                \
	3 /* limits the translation, so that if the switch stops translating, windows are an eighth and the flow       \
	     continues */

/* The part of a queue that may be filled: an eighth stays free. */
WEIR_INLINE weir_u64 weir_queue_room_bytes(weir_u64 buffer_bytes)
{
	return buffer_bytes - buffer_bytes / WEIR_SPARE_FRACTION;
}

/* By how much the advertised window scale is less than the host's own, for finer window steps. */
WEIR_INLINE weir_u32 weir_finer(weir_u32 scale)
{
	weir_u32 finer = scale > WEIR_FINE_SCALE ? scale - WEIR_FINE_SCALE : 0;

	return finer < WEIR_MOST_FINER ? finer : WEIR_MOST_FINER;
}

/*
 * The payload of a segment, at most mss, such that the queue and the link of a port (room_bytes) can hold one segment
 * of each of its flows, with an eighth to spare. It is a multiple of the window step, so that a window holds whole
 * segments and no runt, and at least WEIR_LEAST_SEGMENT and one step.
 *
 * mss itself if the largest multiple of the step is less than mss by over an eighth of mss, and windows just above one
 * segment fit (a segment and a runt, see weir_window_field).
 */
WEIR_INLINE weir_u32 weir_fitted_segment(weir_u64 room_bytes, weir_u32 flows, weir_u32 mss, weir_u32 scale)
{
	weir_u64 fits = weir_queue_room_bytes(room_bytes) / (flows ? flows : 1);
	weir_u32 step = 1u << (scale > WEIR_MAX_SCALE ? WEIR_MAX_SCALE : scale);
	weir_u32 least = step > WEIR_LEAST_SEGMENT ? step : WEIR_LEAST_SEGMENT;
	weir_u32 whole = mss / step * step;
	weir_u64 segment;

	if (mss - whole > mss / WEIR_MAX_LOSS_FRACTION && fits >= whole + step + 2 * WEIR_HEADERS)
		return mss;
	segment = fits > WEIR_HEADERS ? fits - WEIR_HEADERS : 0;
	segment = (segment < mss ? segment : mss) / step * step;
	segment = segment < least ? least : segment;
	return segment < mss ? (weir_u32)segment : mss;
}

/* SDTCP, equation (4), which the switch applies for each ACK (MOD_WINDOW, section IV.D): alpha MSS less, at least one.
 */
WEIR_INLINE weir_u32 weir_mod_window_next(weir_u32 window_bytes, weir_u32 alpha, weir_u32 mss)
{
	weir_u32 step = alpha * mss;

	return window_bytes > mss + step ? window_bytes - step : mss;
}

/* The least field above one segment: the window holds a segment and a runt. */
WEIR_INLINE weir_u32 weir_field_above_one_segment(weir_u32 mss, weir_u32 scale)
{
	return (mss >> scale) + 1;
}

/*
 * The field that advertises window_bytes to a sender whose segments carry mss bytes, such that it sends whole segments
 * and no needless runt. The window holds k = window_bytes / mss segments.
 *
 * k >= 2: k segments, rounded down to the scale's step. The last segment is short by less than a step; rounding up
 *         would add a runt of less than a step.
 * k <= 1: the least field above one segment. A window below one segment stops a Linux sender until its persist timer.
 *         A window of exactly one leaves each segment to the receiver's delayed ACK (RFC 1122, 4.2.3.2). Here the
 *         runt is worth its cost, because it makes the receiver acknowledge at once.
 *
 * least_bytes replaces that floor unless it is 0:
 * - below mss, windows below one segment are allowed, for senders without SWS avoidance (SCCP, section IV):
 *   window_bytes is rounded down, to at least one step;
 * - from mss on, it is the least window, rounded up.
 */
WEIR_INLINE weir_u32 weir_window_field(weir_u32 window_bytes, weir_u32 scale, weir_u32 mss, weir_u32 least_bytes)
{
	weir_u32 segments = mss ? window_bytes / mss : 0;
	weir_u32 field;

	scale = scale > WEIR_MAX_SCALE ? WEIR_MAX_SCALE : scale;
	if (mss && least_bytes >= mss && segments * mss <= least_bytes) {
		field = (least_bytes + (1u << scale) - 1) >> scale;
	} else if (segments >= 2) {
		field = (segments * mss) >> scale;
	} else if (least_bytes && least_bytes < mss && window_bytes < mss) {
		weir_u32 bytes = window_bytes > least_bytes ? window_bytes : least_bytes;

		field = bytes >> scale;
		field = field ? field : 1;
	} else {
		field = weir_field_above_one_segment(mss, scale);
	}
	return field > WEIR_MAX_FIELD ? WEIR_MAX_FIELD : field;
}

/*
 * The field that a segment leaves with, given the one that it arrived with. Never raises a window, and leaves a closed
 * window (0) closed.
 */
WEIR_INLINE weir_u32 weir_clamp_field(weir_u32 field, weir_u32 window_bytes, weir_u32 scale, weir_u32 mss,
				      weir_u32 least_bytes)
{
	weir_u32 lowered;

	if (!field)
		return field;
	lowered = weir_window_field(window_bytes, scale, mss, least_bytes);
	return lowered < field ? lowered : field;
}

/* A sum of 16-bit words in ones' complement (RFC 1071), whose carries are in the upper half. */
WEIR_INLINE weir_u16 weir_checksum_fold(weir_u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (weir_u16)sum;
}

/*
 * The TCP checksum after one 16-bit word changed from `before` to `after` (RFC 1624, equation 3).
 * All three in the same byte order.
 */
WEIR_INLINE weir_u16 weir_checksum_update(weir_u16 checksum, weir_u16 before, weir_u16 after)
{
	weir_u32 sum = (weir_u16)~checksum;

	sum += (weir_u16)~before;
	sum += after;
	return (weir_u16)~weir_checksum_fold(sum);
}

#endif
