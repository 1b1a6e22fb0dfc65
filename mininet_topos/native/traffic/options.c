// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"

#define MAX_QUERIES (1u << 30)
#define MAX_WAIT_MS (1u << 20)
#define MAX_SAMPLE_MS 60000
#define MAX_DEADLINE_US 3600000000u

struct options options = {.host = "?", .cc = {"reno"}, .queries = 1, .sample_ms = REPORT_PERIOD_MS};

static uint32_t parse_number(const char *name, const char *text, uint32_t largest)
{
	char *rest;
	unsigned long value = strtoul(text, &rest, 10);
	if (*text < '0' || *text > '9' || *rest || value > largest)
		fail("--%s: want a number from 0 to %u, not %.40s", name, largest, text);
	return (uint32_t)value;
}

static void parse_ccs(char *text)
{
	char *save = NULL;
	int count = 0;
	for (char *cc = strtok_r(text, ",", &save); cc; cc = strtok_r(NULL, ",", &save)) {
		if (count == MAX_CCS)
			fail("--cc: want at most %d congestion controls", MAX_CCS);
		options.cc[count++] = cc;
	}
}

static void parse_option(int letter)
{
	switch (letter) {
	case 'h':
		options.host = optarg;
		break;
	case 'c':
		parse_ccs(optarg);
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
		{"host", 1, 0, 'h'},      {"cc", 1, 0, 'c'},    {"to", 1, 0, 't'},          {"workers", 1, 0, 'w'},
		{"port", 1, 0, 'p'},      {"size", 1, 0, 's'},  {"queries", 1, 0, 'q'},     {"gap-ms", 1, 0, 'g'},
		{"schedstat", 1, 0, 'd'}, {"plan", 1, 0, 'l'},  {"start-ns", 1, 0, 'n'},    {"sample-ms", 1, 0, 'm'},
		{"period-ms", 1, 0, 'e'}, {"fresh", 0, 0, 'f'}, {"deadline-us", 1, 0, 'u'}, {0, 0, 0, 0},
	};
	for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;)
		parse_option(letter);
}
