// SPDX-License-Identifier: Apache-2.0
// Tells when a CPU stood still: for everything, also for a program of real-time priority.
//
//   stalls LEAST_US CPU...     until SIGTERM, a JSON line for each time that one of the CPUs stood still for so
//                              long or longer
//
// One thread a CPU wakes up every two milliseconds, which takes a CPU about 1 % of its time, and sees how late
// it is. Under a hypervisor that runs something else meanwhile, nothing in the guest's own accounting tells of
// it. Times are CLOCK_MONOTONIC.
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

#define NS_PER_S 1000000000ll
#define PERIOD_NS 2000000ll

static int64_t least_ns;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void tell(long cpu, int64_t since_ns, int64_t ns)
{
    char line[128];
    int len = snprintf(line, sizeof line, "{\"event\":\"stall\",\"cpu\":%ld,\"start_ns\":%" PRId64 ",\"ns\":%" PRId64 "}\n",
                       cpu, since_ns, ns);
    if (write(STDOUT_FILENO, line, (size_t)len) < 0)
        exit(1);
}

static void *watch(void *argument)
{
    long cpu = (long)argument;
    struct sched_param priority = {.sched_priority = 1};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    int error = pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    if (!error)
        error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
    if (error) {
        fprintf(stderr, "cannot watch CPU %ld with real-time priority: %s\n", cpu, strerror(error));
        exit(1);
    }
    for (int64_t due = now_ns() + PERIOD_NS, now;; due = now + PERIOD_NS) {
        struct timespec until = {.tv_sec = due / NS_PER_S, .tv_nsec = due % NS_PER_S};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
        now = now_ns();
        if (now - due >= least_ns)
            tell(cpu, due, now - due);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    sigset_t end;
    pthread_t thread;
    int number;
    if (argc < 3 || (least_ns = atoll(argv[1]) * 1000) <= 0) {
        fprintf(stderr, "usage: stalls LEAST_US CPU...\n");
        return 2;
    }
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigaddset(&end, SIGINT);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    for (int i = 2; i < argc; i++)
        if (pthread_create(&thread, NULL, watch, (void *)atol(argv[i]))) {
            fprintf(stderr, "cannot start a thread: %s\n", strerror(errno));
            return 1;
        }
    sigwait(&end, &number);
    return 0;
}
