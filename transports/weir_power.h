/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * alpha^d in fixed point, which D2TCP and L2DCT share. Integers only, no libc. The loops have no branches: the kernel's
 * verifier would follow each way through them.
 *
 * alpha and the result are fractions of WEIR_DCTCP_ONE = 2^16, and so is the exponent, which may be up to 4. The result
 * is 2^(d log2 alpha), rounded to the nearest 1/2^16. Its error is below 0.501/2^16, as
 * tests/unit/transports/test_family_arithmetic.py checks for every alpha. With d = 1 the result is alpha.
 */
#ifndef WEIR_POWER_H
#define WEIR_POWER_H

#include "weir_dctcp.h"

#define WEIR_POWER_BITS 28 /* after the binary point of a logarithm */
#define WEIR_POWER_MANTISSA 31
#define WEIR_POWER_MOST_EXPONENT (4 * WEIR_DCTCP_ONE)

/* -log2(alpha / 2^16) with WEIR_POWER_BITS after the point, rounded up; alpha is between 1 and 2^16. */
WEIR_INLINE weir_u64 weir_power_minus_log2(weir_u32 alpha)
{
	weir_u64 mantissa = alpha, log = 0, is_set;

	for (int bit = 0; bit < 16; bit++) { /* alpha = mantissa / 2^16 / 2^log */
		is_set = mantissa >> 16;
		mantissa <<= 1 - is_set;
		log += 1 - is_set;
	}
	log <<= WEIR_POWER_BITS;
	mantissa <<= WEIR_POWER_MANTISSA - 16; /* 1 <= mantissa < 2, or alpha is 1 */
	for (int bit = WEIR_POWER_BITS - 1; bit >= 0;
	     bit--) { /* squaring doubles the logarithm: one bit of it each time */
		mantissa = (mantissa * mantissa) >> WEIR_POWER_MANTISSA;
		is_set = mantissa >> (WEIR_POWER_MANTISSA + 1);
		mantissa >>= is_set;
		log -= is_set << bit;
	}
	return log;
}

/* 2^-log as a fraction of 2^16, rounded to the nearest; log has WEIR_POWER_BITS after the point. */
WEIR_INLINE weir_u32 weir_power_exp2_minus(weir_u64 log)
{
	/* 2^(-1/2), 2^(-1/4), 2^(-1/8), ... as fractions of 2^32, for the bits after the point */
	static const weir_u32 roots[WEIR_POWER_BITS] = {
		3037000500u, 3611622603u, 3938502376u, 4112874773u, 4202935003u, 4248701965u, 4271771996u,
		4283353945u, 4289156690u, 4292061010u, 4293513907u, 4294240540u, 4294603903u, 4294785595u,
		4294876445u, 4294921870u, 4294944583u, 4294955939u, 4294961618u, 4294964457u, 4294965876u,
		4294966586u, 4294966941u, 4294967119u, 4294967207u, 4294967252u, 4294967274u, 4294967285u,
	};
	weir_u32 whole = log >> WEIR_POWER_BITS;
	weir_u64 power = 1ull << 32, mask;

	if (whole > 32)
		return 0;
	for (int bit = 0; bit < WEIR_POWER_BITS; bit++) {
		mask = 0 - (log >> (WEIR_POWER_BITS - 1 - bit) & 1);
		power -= (power - ((power * roots[bit]) >> 32)) & mask;
	}
	return ((power >> whole) + (1u << 15)) >> 16;
}

/* alpha^exponent. A larger exponent than WEIR_POWER_MOST_EXPONENT counts as that. */
WEIR_INLINE weir_u32 weir_power(weir_u32 alpha, weir_u32 exponent)
{
	if (!alpha)
		return exponent ? 0 : WEIR_DCTCP_ONE;
	if (alpha >= WEIR_DCTCP_ONE)
		return WEIR_DCTCP_ONE;
	if (exponent > WEIR_POWER_MOST_EXPONENT)
		exponent = WEIR_POWER_MOST_EXPONENT;
	return weir_power_exp2_minus(weir_power_minus_log2(alpha) * exponent >> 16);
}

#endif
