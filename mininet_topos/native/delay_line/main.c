// SPDX-License-Identifier: Apache-2.0
// A delay line: delays, loses, duplicates and reorders the packets between pairs of interfaces.
//
//   weir-delay-line --links FILE   a line for each link: NAME HOST_INTERFACE SWITCH_INTERFACE UP DOWN
//                   [--priority N]     of SCHED_FIFO, 1 to 99, if the kernel allows it; 0: none
//                   [--seed N]         of the random decisions
//                   [--memory-mb N]    the most that waiting packets may hold
//                   [--ring-frames N]  of each interface's receive ring
//
// UP and DOWN are the impairments from host to switch and back: `-`, or a list such as
// delay_us=5000,jitter_us=100,normal,loss=0.1,duplicate=1,reorder=2 (the last three in percent).
//
// - A packet leaves delay_us after the kernel received it. Jitter adds a random time: uniform between -jitter_us and
//   jitter_us, or normal with that standard deviation (at most six of them). A delay is never negative.
// - Jitter keeps the order of packets: a packet leaves no earlier than the one before it, which makes the mean delay
//   longer if packets follow each other within the jitter. Only `reorder` changes the order, as in tc-netem(8): that
//   share of packets is sent without delay, and overtakes the packets that wait.
// - A duplicate leaves directly after its packet. A lost packet is not duplicated.
//
// SIGHUP reads the impairments from FILE again, so that a delay can change during a run; links and interfaces stay.
//
// stdout gets a line of JSON when the line is ready, at each SIGUSR1 and SIGHUP, and at the end (SIGTERM, SIGINT).
// Counters are sums since the start; latenesses and stalls are of the time since the last report. A lateness is the
// time from the moment at which a packet was due to the end of its system call.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "line.h"
#include "options.h"

static int set_priority(int wanted)
{
	struct sched_param priority = {.sched_priority = wanted};
	if (!wanted)
		return 0;
	if (!sched_setscheduler(0, SCHED_FIFO, &priority))
		return wanted;
	fprintf(stderr, "weir-delay-line: runs without real-time priority: %s\n", strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	static struct line line;
	struct options options = parse_options(argc, argv);
	mallopt(M_MMAP_THRESHOLD, 1 << 30); // memory that was given back would have to be faulted in again
	mallopt(M_TRIM_THRESHOLD, -1);
	prctl(PR_SET_TIMERSLACK, 1);
	line.path = options.links;
	line.links = links_open(options.links, options.ring_frames, &line.link_count);
	line.memory_bytes = options.memory_bytes;
	line.random_state = options.seed;
	line_init(&line);
	mlockall(MCL_CURRENT | MCL_FUTURE); // without the right to lock memory, page faults may delay packets
	int priority = set_priority(options.priority);
	printf("{\"event\":\"ready\",\"links\":%zu,\"priority\":%d}\n", line.link_count, priority);
	fflush(stdout);
	return line_run(&line);
}
