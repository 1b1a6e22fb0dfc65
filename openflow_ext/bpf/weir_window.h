/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The window arithmetic, exact and in integers, written once: the BPF programs, the ns-3 models and
 * the tests include this file. No state, no I/O, no libc.
 *
 * A window is in bytes unless it is called a field: the field is the 16 bits of the TCP header, and
 * field << scale is the window in bytes (RFC 7323, section 2.2).
 */
#ifndef WEIR_WINDOW_H
#define WEIR_WINDOW_H

#ifdef __bpf__
typedef __u8 weir_u8;
typedef __u16 weir_u16;
typedef __u32 weir_u32;
typedef __u64 weir_u64;
#else
#include <stdint.h>
typedef uint8_t weir_u8;
typedef uint16_t weir_u16;
typedef uint32_t weir_u32;
typedef uint64_t weir_u64;
#endif

#ifndef WEIR_INLINE
#define WEIR_INLINE static inline __attribute__((always_inline, unused))
#endif

#define WEIR_BITS_US_PER_BYTE_S 8000000ull
#define WEIR_MAX_SCALE 14 /* RFC 7323, section 2.3 */
#define WEIR_MAX_FIELD 0xffffu

/*
 * Bytes that a path of capacity_bps holds in common_rtt_us: the numerator of SCCP's equation (1).
 * Exact for capacity_bps * common_rtt_us < 2^64 (10 Tbit/s for 1.8 s).
 */
WEIR_INLINE weir_u64 weir_bdp_bytes(weir_u64 capacity_bps, weir_u64 common_rtt_us)
{
	return capacity_bps * common_rtt_us / WEIR_BITS_US_PER_BYTE_S;
}

/* SCCP equation (1): fair_share_i = bdp_i / N_i; the whole of it for an empty port. */
WEIR_INLINE weir_u32 weir_fair_share_bytes(weir_u64 bdp_bytes, weir_u64 n_i)
{
	weir_u64 share = n_i ? bdp_bytes / n_i : bdp_bytes;

	return share > 0xffffffffull ? 0xffffffffu : (weir_u32)share;
}

#define WEIR_HEADERS 86       /* of a segment on the wire: Ethernet 14, IPv6 40, TCP with timestamps 32 */
#define WEIR_LEAST_SEGMENT 256 /* with less, headers take over a quarter of the link */

/*
 * The most that a window may be for Linux to fill it with one segment: one of over 536 bytes, whatever the segment,
 * is filled with two halves (tcp_bound_to_half_wnd), for as long as none was larger.
 */
#define WEIR_SMALL_WINDOW 512

#define WEIR_FINE_SCALE 7 /* windows in steps of 128 bytes, up to 8 MB */
#define WEIR_MOST_FINER 3 /* so that windows which nobody translates any more are an eighth, and do not stop a flow */

/* By how much less than its own a host's window scale is told, for windows in finer steps. */
WEIR_INLINE weir_u32 weir_finer(weir_u32 scale)
{
	weir_u32 finer = scale > WEIR_FINE_SCALE ? scale - WEIR_FINE_SCALE : 0;

	return finer < WEIR_MOST_FINER ? finer : WEIR_MOST_FINER;
}

/*
 * The payload of a segment, at most mss, of which a port whose queue and link together hold room_bytes can take one
 * of each of its flows, with an eighth to spare: a multiple of the scale's step, so that a window can hold whole
 * ones and no runt, at least WEIR_LEAST_SEGMENT and one step. mss itself, where steps are so coarse that a multiple
 * would cost over an eighth of it, and a window just above one segment (a segment and a runt, see
 * weir_window_field) fits that often.
 */
WEIR_INLINE weir_u32 weir_fitted_segment(weir_u64 room_bytes, weir_u32 flows, weir_u32 mss, weir_u32 scale)
{
	weir_u64 fits = (room_bytes - room_bytes / 8) / (flows ? flows : 1);
	weir_u32 step = 1u << (scale > WEIR_MAX_SCALE ? WEIR_MAX_SCALE : scale);
	weir_u32 least = step > WEIR_LEAST_SEGMENT ? step : WEIR_LEAST_SEGMENT;
	weir_u32 whole = mss / step * step;
	weir_u64 segment;

	if (mss - whole > mss / 8 && fits >= whole + step + 2 * WEIR_HEADERS)
		return mss;
	segment = fits > WEIR_HEADERS ? fits - WEIR_HEADERS : 0;
	segment = (segment < mss ? segment : mss) / step * step;
	segment = segment < least ? least : segment;
	return segment < mss ? (weir_u32)segment : mss;
}

/* MOD_WINDOW's own decrease (SDTCP, sections III.D and IV.D): alpha MSS a matching segment, not under one MSS. */
WEIR_INLINE weir_u32 weir_mod_window_next(weir_u32 window_bytes, weir_u32 alpha, weir_u32 mss)
{
	weir_u32 step = alpha * mss;

	return window_bytes > mss + step ? window_bytes - step : mss;
}

/*
 * The field that says window_bytes to a sender whose segments carry mss bytes, so that no runt is
 * let out for nothing: whole segments, k = window_bytes / mss.
 *
 * k >= 2: k segments rounded down to the scale's step. The last segment falls short by less than a
 *         step; rounding up would let out a runt of less than a step besides.
 * k <= 1: the least field above one segment. A window below one segment stops a Linux sender until
 *         its persist timer; a window of exactly one leaves each segment to the receiver's delayed
 *         ACK (RFC 1122, 4.2.3.2), so here the runt, which brings the ACK at once, is worth its cost.
 *
 * least_bytes moves that floor; 0: one segment.
 * Below mss: less than a segment is allowed, for senders that do without SWS avoidance (SCCP, section
 *         IV): window_bytes is taken as it is, rounded down, at least one step.
 * mss and above: so many bytes, rounded up, where less is asked for.
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
		field = (mss >> scale) + 1;
	}
	return field > WEIR_MAX_FIELD ? WEIR_MAX_FIELD : field;
}

/*
 * The field that a segment leaves with, given the one it came with. Never raises a window; leaves a
 * closed window (0) closed.
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

/*
 * The TCP checksum after one 16-bit word changed from `before` to `after` (RFC 1624, equation 3).
 * All three in the same byte order.
 */
WEIR_INLINE weir_u16 weir_checksum_update(weir_u16 checksum, weir_u16 before, weir_u16 after)
{
	weir_u32 sum = (weir_u16)~checksum;

	sum += (weir_u16)~before;
	sum += after;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (weir_u16)~sum;
}

#endif
