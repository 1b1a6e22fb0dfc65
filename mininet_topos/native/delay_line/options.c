// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_MEMORY_MB 1024
#define MAX_MEMORY_MB (1 << 20)
#define DEFAULT_RING_FRAMES 1024
#define MAX_RING_FRAMES 65536
#define MAX_PRIORITY 99

static void usage(void)
{
	fputs("usage: weir-delay-line --links FILE [--priority 0..99] [--seed N] [--memory-mb N] [--ring-frames N]\n",
	      stderr);
	exit(2);
}

static uint64_t number(const char *text, uint64_t largest)
{
	char *rest;
	unsigned long long value = strtoull(text, &rest, 10);
	if (*text < '0' || *text > '9' || *rest || value > largest)
		usage();
	return value;
}

struct options parse_options(int argc, char **argv)
{
	static const struct option names[] = {
		{"links", 1, 0, 'l'},     {"priority", 1, 0, 'p'},    {"seed", 1, 0, 's'},
		{"memory-mb", 1, 0, 'm'}, {"ring-frames", 1, 0, 'r'}, {0, 0, 0, 0},
	};
	struct options options = {
		.seed = 1,
		.memory_bytes = (uint64_t)DEFAULT_MEMORY_MB << 20,
		.ring_frames = DEFAULT_RING_FRAMES,
	};
	for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;)
		switch (letter) {
		case 'l':
			options.links = optarg;
			break;
		case 'p':
			options.priority = (int)number(optarg, MAX_PRIORITY);
			break;
		case 's':
			options.seed = number(optarg, UINT64_MAX);
			break;
		case 'm':
			options.memory_bytes = number(optarg, MAX_MEMORY_MB) << 20;
			break;
		case 'r':
			options.ring_frames = (unsigned)number(optarg, MAX_RING_FRAMES);
			break;
		default:
			usage();
		}
	if (!options.links || !options.ring_frames || optind != argc)
		usage();
	return options;
}
