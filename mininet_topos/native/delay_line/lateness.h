// SPDX-License-Identifier: Apache-2.0
// A histogram of latenesses in ns. Each power of two has LATENESS_STEPS buckets, so a percentile is too high by at most
// a 16th of its value. Pure.
#pragma once
#include <stdint.h>

#define LATENESS_STEPS 16
#define LATENESS_BUCKETS (61 * LATENESS_STEPS)

struct lateness {
	uint64_t count;
	int64_t most_ns;
	uint64_t buckets[LATENESS_BUCKETS];
};

// A negative lateness counts as 0.
void lateness_add(struct lateness *lateness, int64_t ns);

// The least value that at least `percent` of the latenesses do not exceed; 0 if there are none.
int64_t lateness_percentile(const struct lateness *lateness, double percent);
