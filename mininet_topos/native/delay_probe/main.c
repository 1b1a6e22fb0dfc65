// SPDX-License-Identifier: Apache-2.0
// Measures the delay of links from outside: it sends packets at one end and takes the kernel's time stamp at the other.
//
//   weir-delay-probe --links FILE   NAME HOST_NAMESPACE HOST_INTERFACE SWITCH_NAMESPACE SWITCH_INTERFACE in each line
//                    --count N        packets of each link and direction
//                    [--interval-us U]  time from one packet to the next, of all links together (default 200)
//                    [--wait-ms W]      how long to wait for packets after the last one (default 1000)
//                    [--bytes B]        size of a packet (default 64)
//                    [--priority N]     of SCHED_FIFO
//
// stdout gets a line of JSON. Times are in us. The packets have the EtherType 0x88b5, and pass no qdisc at their
// sender.
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "probe.h"

#define MAX_COUNT 10000000
#define MAX_TIME 100000000
#define RECEIVE_PERIOD_NS (20 * 1000000ll)
#define NS_PER_MS 1000000ll

static struct options {
	const char *links;
	uint32_t count;
	int64_t interval_ns;
	int64_t wait_ns;
	uint32_t bytes;
	int priority;
} options = {.interval_ns = 200 * NS_PER_US, .wait_ns = NS_PER_S, .bytes = 64};

static uint32_t number(const char *text, uint32_t largest)
{
	char *rest;
	unsigned long value = strtoul(text, &rest, 10);
	if (*text < '0' || *text > '9' || *rest || value > largest)
		fail("want a number from 0 to %u, not %.40s", largest, text);
	return (uint32_t)value;
}

static void parse_options(int argc, char **argv)
{
	static const struct option names[] = {
		{"links", 1, 0, 'l'},   {"count", 1, 0, 'c'}, {"interval-us", 1, 0, 'i'},
		{"wait-ms", 1, 0, 'w'}, {"bytes", 1, 0, 'b'}, {"priority", 1, 0, 'p'},
		{0, 0, 0, 0},
	};
	for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;)
		switch (letter) {
		case 'l':
			options.links = optarg;
			break;
		case 'c':
			options.count = number(optarg, MAX_COUNT);
			break;
		case 'i':
			options.interval_ns = number(optarg, MAX_TIME) * NS_PER_US;
			break;
		case 'w':
			options.wait_ns = number(optarg, MAX_TIME) * NS_PER_MS;
			break;
		case 'b':
			options.bytes = number(optarg, UINT16_MAX);
			break;
		case 'p':
			options.priority = (int)number(optarg, 99);
			break;
		default:
			exit(2);
		}
	if (!options.links || !options.count)
		fail("--links and --count are missing");
}

static void receive_all(struct link *links, size_t count)
{
	for (size_t i = 0; i < count; i++)
		for (int direction = 0; direction < DIRECTIONS; direction++)
			probe_receive(&links[i], direction);
}

static int64_t monotonic_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void sleep_until(int64_t wake_ns)
{
	struct timespec wake = {.tv_sec = wake_ns / NS_PER_S, .tv_nsec = wake_ns % NS_PER_S};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL))
		;
}

static void measure(struct link *links, size_t count)
{
	int64_t next_ns = monotonic_ns(), received_ns = next_ns;
	for (uint32_t sequence = 0; sequence < options.count; sequence++)
		for (size_t i = 0; i < count; i++)
			for (int direction = 0; direction < DIRECTIONS; direction++) {
				sleep_until(next_ns += options.interval_ns);
				probe_send(&links[i], direction, options.bytes);
				if (next_ns - received_ns > RECEIVE_PERIOD_NS) {
					receive_all(links, count);
					received_ns = next_ns;
				}
			}
	for (int64_t end_ns = monotonic_ns() + options.wait_ns; monotonic_ns() < end_ns;) {
		sleep_until(monotonic_ns() + RECEIVE_PERIOD_NS);
		receive_all(links, count);
	}
}

static int compare(const void *one, const void *other)
{
	int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
	return (a > b) - (a < b);
}

// The nearest-rank percentile of sorted values.
static double percentile_us(const struct measured *measured, double percent)
{
	double wanted = measured->received * percent / 100;
	uint32_t rank = (uint32_t)wanted + (wanted > (uint32_t)wanted);
	return (double)measured->delays_ns[rank ? rank - 1 : 0] / NS_PER_US;
}

static void put_measured(struct measured *measured)
{
	printf("{\"sent\":%u,\"received\":%u,\"reordered\":%u", measured->sent, measured->received,
	       measured->reordered);
	if (measured->received) {
		qsort(measured->delays_ns, measured->received, sizeof *measured->delays_ns, compare);
		printf(",\"delay_us\":{\"least\":%.1f,\"p1\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"most\":%.1f}",
		       percentile_us(measured, 0), percentile_us(measured, 1), percentile_us(measured, 50),
		       percentile_us(measured, 99), percentile_us(measured, 100));
	}
	printf("}");
}

static struct measured all_of(const struct link *links, size_t count, int direction)
{
	struct measured all = {0};
	for (size_t i = 0; i < count; i++)
		all.room += links[i].measured[direction].received;
	if (!(all.delays_ns = calloc(all.room + 1, sizeof *all.delays_ns)))
		fail("no memory for %u delays", all.room);
	for (size_t i = 0; i < count; i++) {
		const struct measured *one = &links[i].measured[direction];
		all.sent += one->sent;
		all.reordered += one->reordered;
		for (uint32_t packet = 0; packet < one->received; packet++)
			all.delays_ns[all.received++] = one->delays_ns[packet];
	}
	return all;
}

static void put_directions(struct measured *up, struct measured *down)
{
	printf("\"up\":");
	put_measured(up);
	printf(",\"down\":");
	put_measured(down);
}

int main(int argc, char **argv)
{
	struct sched_param priority;
	size_t count;
	parse_options(argc, argv);
	priority.sched_priority = options.priority;
	prctl(PR_SET_TIMERSLACK, 1);
	struct link *links = links_open(options.links, options.count, &count);
	if (options.priority && sched_setscheduler(0, SCHED_FIFO, &priority))
		options.priority = 0;
	measure(links, count);
	struct measured up = all_of(links, count, UP), down = all_of(links, count, DOWN);
	printf("{\"event\":\"measured\",\"priority\":%d,", options.priority);
	put_directions(&up, &down);
	printf(",\"links\":{");
	for (size_t i = 0; i < count; i++) {
		printf("%s\"%s\":{", i ? "," : "", links[i].name);
		put_directions(&links[i].measured[UP], &links[i].measured[DOWN]);
		printf("}");
	}
	printf("}}\n");
	return 0;
}
