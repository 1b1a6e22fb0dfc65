// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <getopt.h>
#include <stdlib.h>

#include "records.h"

#define MAX_QUERIES (1u << 30)
#define MAX_WAIT_MS (1u << 20)
#define MAX_SAMPLE_MS 60000
#define MAX_DEADLINE_US 3600000000u
#define MAX_MSS 65535
#define LEAST_RATE_BPS 100000ull // of DCUDP
#define MOST_RATE_BPS 100000000000ull

struct options options = {.host = "?", .cc = "reno", .queries = 1, .sample_ms = REPORT_PERIOD_MS};

static uint32_t parse_number(const char *name, const char *text, uint32_t largest)
{
	char *rest;
	unsigned long value = strtoul(text, &rest, 10);
	if (*text < '0' || *text > '9' || *rest || value > largest)
		fail("--%s: want a number from 0 to %u, not %.40s", name, largest, text);
	return (uint32_t)value;
}

static uint64_t parse_rate(const char *name, const char *text)
{
	char *rest;
	unsigned long long bps = strtoull(text, &rest, 10);
	if (*text < '0' || *text > '9' || *rest || bps < LEAST_RATE_BPS || bps > MOST_RATE_BPS)
		fail("--%s: want a number from %llu to %llu, not %.40s", name, LEAST_RATE_BPS, MOST_RATE_BPS, text);
	return bps;
}

static void parse_option(int letter)
{
	switch (letter) {
	case 'h':
		options.host = optarg;
		break;
	case 'c':
		options.cc = optarg;
		break;
	case 't':
		options.destination = optarg;
		break;
	case 'w':
		options.workers = optarg;
		break;
	case 'p':
		options.port = (int)parse_number("port", optarg, 65535);
		break;
	case 's':
		options.response_bytes = parse_number("size", optarg, MAX_RESPONSE_BYTES);
		break;
	case 'q':
		options.queries = parse_number("queries", optarg, MAX_QUERIES);
		break;
	case 'g':
		options.gap_ms = parse_number("gap-ms", optarg, MAX_WAIT_MS);
		break;
	case 'e':
		options.period_ms = parse_number("period-ms", optarg, MAX_WAIT_MS);
		break;
	case 'd':
		options.schedstat = optarg;
		break;
	case 'l':
		options.plan = optarg;
		break;
	case 'n':
		options.start_ns = strtoull(optarg, NULL, 10);
		break;
	case 'm':
		options.sample_ms = parse_number("sample-ms", optarg, MAX_SAMPLE_MS);
		break;
	case 'u':
		options.deadline_us = parse_number("deadline-us", optarg, MAX_DEADLINE_US);
		break;
	case 'x':
		options.mss_bytes = parse_number("mss", optarg, MAX_MSS);
		break;
	case 'k':
		options.key_file = optarg;
		break;
	case 'b':
		options.link_bps = parse_rate("link-bps", optarg);
		break;
	case 'r':
		options.rate_bps = parse_rate("rate-bps", optarg);
		break;
	case 'f':
		options.fresh = true;
		break;
	default:
		exit(2);
	}
}

void parse_options(int argc, char **argv)
{
	static const struct option names[] = {
		{"host", 1, 0, 'h'},      {"cc", 1, 0, 'c'},       {"to", 1, 0, 't'},          {"workers", 1, 0, 'w'},
		{"port", 1, 0, 'p'},      {"size", 1, 0, 's'},     {"queries", 1, 0, 'q'},     {"gap-ms", 1, 0, 'g'},
		{"schedstat", 1, 0, 'd'}, {"plan", 1, 0, 'l'},     {"start-ns", 1, 0, 'n'},    {"sample-ms", 1, 0, 'm'},
		{"period-ms", 1, 0, 'e'}, {"fresh", 0, 0, 'f'},    {"deadline-us", 1, 0, 'u'}, {"mss", 1, 0, 'x'},
		{"key-file", 1, 0, 'k'},  {"link-bps", 1, 0, 'b'}, {"rate-bps", 1, 0, 'r'},    {0, 0, 0, 0},
	};
	for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;)
		parse_option(letter);
}
