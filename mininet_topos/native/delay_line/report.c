// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define NS_PER_US 1000.0
#define US_PER_S 1000000ll
#define MOST_LOOKS 5
#define LOOK_PAUSE_NS 200000

// What the kernel's counters of the interfaces say and this program's do not. unseen: packets that reached an interface
// of the line and were neither received nor dropped by its ring. vanished: packets that the kernel accepted for
// sending and did not send.
struct difference {
	int64_t unseen;
	int64_t vanished;
};

static struct difference difference_of(const struct direction *direction)
{
	const struct port *from = direction->from, *to = direction->to;
	return (struct difference){
		.unseen = (int64_t)(from->kernel_received - direction->counts.received - from->dropped),
		.vanished = (int64_t)(direction->counts.sent - to->kernel_sent),
	};
}

static bool any_difference(struct line *line)
{
	bool any = false;
	for (size_t i = 0; i < line->link_count; i++)
		for (int which = 0; which < DIRECTIONS; which++) {
			struct direction *direction = &line->links[i].directions[which];
			port_read_drops(direction->from);
			struct difference found = difference_of(direction);
			any |= found.unseen || found.vanished;
		}
	return any;
}

// A packet may be on its way between the counters. So the counters are read again if there is a difference. Packets are
// sent meanwhile.
static void read_counters(struct line *line)
{
	const struct timespec pause = {.tv_nsec = LOOK_PAUSE_NS};
	for (int look = 0; look < MOST_LOOKS; look++) {
		line_receive_all(line);
		line_send_due(line);
		links_read_kernel_counts(line->links, line->link_count);
		line_receive_all(line);
		if (!any_difference(line))
			break;
		nanosleep(&pause, NULL);
	}
}

static void put_lateness(const struct lateness *lateness)
{
	printf("{\"pkts\":%" PRIu64 ",\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}", lateness->count,
	       (double)lateness_percentile(lateness, 50) / NS_PER_US,
	       (double)lateness_percentile(lateness, 99) / NS_PER_US,
	       (double)lateness_percentile(lateness, 99.9) / NS_PER_US, (double)lateness->most_ns / NS_PER_US);
}

static void put_direction(struct direction *direction)
{
	struct difference difference = difference_of(direction);
	const struct counts *counts = &direction->counts;
	printf("\"%s\":{\"received\":%" PRIu64 ",\"duplicated\":%" PRIu64 ",\"sent\":%" PRIu64 ",\"lost\":%" PRIu64
	       ",\"overtaking\":%" PRIu64 ",\"too_large\":%" PRIu64 ",\"no_room\":%" PRIu64 ",\"refused\":%" PRIu64
	       ",\"discarded\":%" PRIu64,
	       direction->name, counts->received, counts->duplicated, counts->sent, counts->lost, counts->overtaking,
	       counts->too_large, counts->no_room, counts->refused, counts->discarded);
	printf(",\"waiting\":%" PRIu64 ",\"ring_dropped\":%" PRIu64 ",\"downs\":%" PRIu64 ",\"unseen\":%" PRId64
	       ",\"vanished\":%" PRId64 ",\"lateness_us\":",
	       direction->waiting, direction->from->dropped, direction->from->downs, difference.unseen,
	       difference.vanished);
	put_lateness(&direction->lateness);
	printf("}");
	memset(&direction->lateness, 0, sizeof direction->lateness);
}

static int64_t cpu_us(void)
{
	struct rusage used;
	getrusage(RUSAGE_SELF, &used);
	return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * US_PER_S + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

void report_write(struct line *line, bool last)
{
	read_counters(line);
	printf("{\"event\":\"report\",\"last\":%s,\"t_ns\":%" PRId64 ",\"cpu_us\":%" PRId64, last ? "true" : "false",
	       monotonic_ns(), cpu_us());
	printf(",\"stalls\":%" PRIu64 ",\"longest_stall_us\":%.1f,\"clock_steps\":%" PRIu64 ",\"lateness_us\":",
	       line->stalls, (double)line->longest_stall_ns / NS_PER_US, line->clock_steps);
	put_lateness(&line->lateness);
	printf(",\"links\":{");
	for (size_t i = 0; i < line->link_count; i++) {
		struct link *link = &line->links[i];
		printf("%s\"%s\":{", i ? "," : "", link->name);
		put_direction(&link->directions[UP]);
		printf(",");
		put_direction(&link->directions[DOWN]);
		printf("}");
	}
	printf("}}\n");
	fflush(stdout);
	memset(&line->lateness, 0, sizeof line->lateness);
	line->stalls = 0;
	line->longest_stall_ns = 0;
}
