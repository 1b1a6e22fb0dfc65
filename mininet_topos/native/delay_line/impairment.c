// SPDX-License-Identifier: Apache-2.0
#include "impairment.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_US 1000.0
#define MAX_TIME_US 20e6
#define PARTS 4294967296.0
#define MAX_SETTING_BYTES 160
#define NORMAL_TERMS 12
#define TERM_BITS 16
#define NORMAL_LIMIT 6

uint64_t random_bits(uint64_t *state)
{
	uint64_t bits = *state += 0x9e3779b97f4a7c15u;
	bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
	bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
	return bits ^ bits >> 31;
}

static bool happens(uint32_t probability, uint64_t *state)
{
	return probability && (uint32_t)random_bits(state) < probability;
}

// Uniform from -1 to 1.
static double uniform(uint64_t *state)
{
	return 2.0 * (double)(random_bits(state) >> 11) / (double)(1ull << 53) - 1.0;
}

// The sum of 12 uniform numbers has a variance of 1 (Irwin-Hall). It approximates a normal distribution that is cut
// off at 6 standard deviations.
static double normal(uint64_t *state)
{
	double sum = 0;
	uint64_t bits = 0;
	for (int term = 0; term < NORMAL_TERMS; term++) {
		if (term % (64 / TERM_BITS) == 0)
			bits = random_bits(state);
		sum += ((double)(bits & ((1u << TERM_BITS) - 1)) + 0.5) / (1u << TERM_BITS);
		bits >>= TERM_BITS;
	}
	return sum - NORMAL_TERMS / 2.0;
}

struct fate impairment_decide(const struct impairment *impairment, uint64_t *random_state)
{
	struct fate fate = {.delay_ns = impairment->delay_ns};
	if ((fate.lost = happens(impairment->loss, random_state)))
		return fate;
	fate.duplicated = happens(impairment->duplication, random_state);
	if (impairment->jitter_ns) {
		double part = impairment->normal ? normal(random_state) : uniform(random_state);
		fate.delay_ns += (int64_t)(part * (double)impairment->jitter_ns);
		if (fate.delay_ns < 0)
			fate.delay_ns = 0;
	}
	if ((fate.overtakes = happens(impairment->overtaking, random_state)))
		fate.delay_ns = 0;
	return fate;
}

int64_t impairment_least_delay_ns(const struct impairment *impairment)
{
	int64_t most_jitter_ns = impairment->jitter_ns * (impairment->normal ? NORMAL_LIMIT : 1);
	if (impairment->overtaking || impairment->delay_ns < most_jitter_ns)
		return 0;
	return impairment->delay_ns - most_jitter_ns;
}

static bool parse_number(const char *text, double largest, double *value)
{
	char *rest;
	*value = strtod(text, &rest);
	return *text >= '0' && *text <= '9' && !*rest && *value <= largest;
}

static bool parse_probability(const char *text, uint32_t *probability)
{
	double percent;
	if (!parse_number(text, 100, &percent))
		return false;
	double parts = percent / 100 * PARTS + 0.5;
	*probability = parts >= PARTS ? UINT32_MAX : (uint32_t)parts;
	return true;
}

static bool parse_time(const char *text, int64_t *time_ns)
{
	double time_us;
	if (!parse_number(text, MAX_TIME_US, &time_us))
		return false;
	*time_ns = (int64_t)(time_us * NS_PER_US + 0.5);
	return true;
}

static const char *parse_setting(const char *name, const char *value, struct impairment *wanted)
{
	static const char bad_time[] = "want a time from 0 to 20000000 us";
	static const char bad_share[] = "want a percentage from 0 to 100";
	if (!value) {
		wanted->normal |= !strcmp(name, "normal");
		return !strcmp(name, "normal") || !strcmp(name, "uniform") ? NULL
									   : "want normal, uniform or NAME=VALUE";
	}
	if (!strcmp(name, "delay_us"))
		return parse_time(value, &wanted->delay_ns) ? NULL : bad_time;
	if (!strcmp(name, "jitter_us"))
		return parse_time(value, &wanted->jitter_ns) ? NULL : bad_time;
	if (!strcmp(name, "loss"))
		return parse_probability(value, &wanted->loss) ? NULL : bad_share;
	if (!strcmp(name, "duplicate"))
		return parse_probability(value, &wanted->duplication) ? NULL : bad_share;
	if (!strcmp(name, "reorder"))
		return parse_probability(value, &wanted->overtaking) ? NULL : bad_share;
	return "unknown setting: want delay_us, jitter_us, loss, duplicate or reorder";
}

const char *impairment_parse(const char *text, struct impairment *wanted)
{
	char copy[MAX_SETTING_BYTES], *save = NULL;
	*wanted = (struct impairment){0};
	if (!strcmp(text, "-"))
		return NULL;
	if (strlen(text) >= sizeof copy)
		return "the settings are too long";
	strcpy(copy, text);
	for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		char *value = strchr(name, '=');
		if (value)
			*value++ = 0;
		const char *error = parse_setting(name, value, wanted);
		if (error)
			return error;
	}
	return NULL;
}
