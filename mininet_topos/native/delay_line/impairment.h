// SPDX-License-Identifier: Apache-2.0
// The impairment of one direction of a link: what happens to each packet. Pure: no clock, no socket.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// loss, duplication and overtaking: a probability in parts of 2^32.
struct impairment {
	int64_t delay_ns;
	int64_t jitter_ns;
	uint32_t loss;
	uint32_t duplication;
	uint32_t overtaking;
	bool normal;
};

// If a packet overtakes, its delay is 0.
struct fate {
	int64_t delay_ns;
	bool lost;
	bool duplicated;
	bool overtakes;
};

// Parses `-` or settings such as `delay_us=5000,jitter_us=100,normal,loss=0.1,duplicate=1,reorder=2`. The last three
// are percentages. Returns NULL, or the error.
const char *impairment_parse(const char *text, struct impairment *wanted);

// Decides what happens to the next packet. Loss comes first: a lost packet is neither duplicated nor sent early.
struct fate impairment_decide(const struct impairment *impairment, uint64_t *random_state);

// The least delay of a packet that this impairment can decide.
int64_t impairment_least_delay_ns(const struct impairment *impairment);

// SplitMix64 (Steele, Lea, Flood 2014): the next 64 random bits.
uint64_t random_bits(uint64_t *state);
