// SPDX-License-Identifier: Apache-2.0
#include "lateness.h"

#define STEP_BITS 4

// Values below LATENESS_STEPS have a bucket each. Above, the highest bit and the STEP_BITS bits after it choose one.
static unsigned bucket_of(uint64_t ns)
{
	if (ns < LATENESS_STEPS)
		return (unsigned)ns;
	unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - STEP_BITS;
	return (shift + 1) * LATENESS_STEPS + (unsigned)((ns >> shift) - LATENESS_STEPS);
}

static int64_t largest_of(unsigned bucket)
{
	if (bucket < LATENESS_STEPS)
		return bucket;
	unsigned shift = bucket / LATENESS_STEPS - 1;
	uint64_t first = (uint64_t)(LATENESS_STEPS + bucket % LATENESS_STEPS) << shift;
	return (int64_t)(first + (1ull << shift) - 1);
}

void lateness_add(struct lateness *lateness, int64_t ns)
{
	if (ns < 0)
		ns = 0;
	lateness->count++;
	lateness->buckets[bucket_of((uint64_t)ns)]++;
	if (ns > lateness->most_ns)
		lateness->most_ns = ns;
}

int64_t lateness_percentile(const struct lateness *lateness, double percent)
{
	double wanted = (double)lateness->count * percent / 100;
	uint64_t seen = 0;
	for (unsigned bucket = 0; bucket < LATENESS_BUCKETS; bucket++) {
		seen += lateness->buckets[bucket];
		if (seen && (double)seen >= wanted) {
			int64_t largest = largest_of(bucket);
			return largest < lateness->most_ns ? largest : lateness->most_ns;
		}
	}
	return lateness->most_ns;
}
