// SPDX-License-Identifier: Apache-2.0
// Reports each time that a CPU ran nothing for a while, not even a program with the highest real-time priority.
//
//   weir-stalls LEAST_US CPU...    until SIGTERM, writes a JSON line for each stall of at least LEAST_US
//
// One thread per CPU wakes up every two milliseconds and measures how late it is. A hypervisor may run another guest
// meanwhile, and the guest's own accounting does not show that. Times are CLOCK_MONOTONIC.
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_US 1000ll
#define NS_PER_S 1000000000ll
#define WAKE_PERIOD_NS 2000000ll

static int64_t least_stall_ns;

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

// One write() per line: several threads write to the same file.
static void write_stall(long cpu, int64_t start_ns, int64_t length_ns)
{
	char line[128];
	int len = snprintf(line, sizeof line,
			   "{\"event\":\"stall\",\"cpu\":%ld,\"start_ns\":%" PRId64 ",\"ns\":%" PRId64 "}\n", cpu,
			   start_ns, length_ns);
	if (write(STDOUT_FILENO, line, (size_t)len) < 0)
		exit(1);
}

static int run_on_cpu_in_real_time(long cpu)
{
	struct sched_param priority = {.sched_priority = sched_get_priority_max(SCHED_FIFO)};
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET((size_t)cpu, &cpus);
	int error = pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
	return error ? error : pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
}

static void *watch_cpu(void *argument)
{
	long cpu = (long)argument;
	int error = run_on_cpu_in_real_time(cpu);
	if (error) {
		fprintf(stderr, "cannot watch CPU %ld with the highest real-time priority: %s\n", cpu, strerror(error));
		exit(1);
	}
	for (int64_t due_ns = now_ns() + WAKE_PERIOD_NS, now;; due_ns = now + WAKE_PERIOD_NS) {
		struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
			;
		now = now_ns();
		if (now - due_ns >= least_stall_ns)
			write_stall(cpu, due_ns, now - due_ns);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	sigset_t end;
	pthread_t thread;
	int signal_number;
	if (argc < 3 || (least_stall_ns = atoll(argv[1]) * NS_PER_US) <= 0) {
		fprintf(stderr, "usage: weir-stalls LEAST_US CPU...\n");
		return 2;
	}
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigaddset(&end, SIGINT);
	pthread_sigmask(SIG_BLOCK, &end, NULL);
	for (int i = 2; i < argc; i++)
		if (pthread_create(&thread, NULL, watch_cpu, (void *)atol(argv[i]))) {
			fprintf(stderr, "cannot start a thread: %s\n", strerror(errno));
			return 1;
		}
	sigwait(&end, &signal_number);
	return 0;
}
