// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "line.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "failure.h"
#include "removal.h"
#include "report.h"

#define NS_PER_S 1000000000ll
#define MAX_POLL_NS 500000ll
#define LEAST_POLL_NS 50000ll
#define POLLS_PER_DELAY 4
#define MAX_BATCH_NS 100000ll
#define BATCHES_PER_DELAY 200
#define MAX_EVENTS 64
#define MAX_FRAMES_PER_TURN 64
#define CLOCK_STEP_NS 100000000ll
#define RUNS (-1)

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static struct timespec timespec_of(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

static int64_t smaller(int64_t one, int64_t other)
{
	return one < other ? one : other;
}

// If every packet waits at least a while, the line need not wake up for each arrival. It looks at the rings often
// enough to find a packet before it is due. poll_ns is 0 if arrivals have to wake it.
static void choose_periods(struct line *line)
{
	int64_t least_ns = INT64_MAX;
	for (size_t i = 0; i < line->link_count; i++)
		for (int which = 0; which < DIRECTIONS; which++) {
			struct impairment *impairment = &line->links[i].directions[which].impairment;
			least_ns = smaller(least_ns, impairment_least_delay_ns(impairment));
		}
	line->poll_ns = smaller(least_ns / POLLS_PER_DELAY, MAX_POLL_NS);
	if (line->poll_ns < LEAST_POLL_NS)
		line->poll_ns = 0;
	line->batch_ns = smaller(least_ns / BATCHES_PER_DELAY, MAX_BATCH_NS);
}

static void watch(const struct line *line, int fd, void *pointer)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = pointer};
	if (epoll_ctl(line->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
		fail("epoll_ctl: %s", strerror(errno));
}

void line_init(struct line *line)
{
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	line->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	line->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (line->signals < 0 || line->epoll < 0)
		fail("cannot wait for packets: %s", strerror(errno));
	line->removals = removal_watch();
	if (!links_exist(line->links, line->link_count))
		fail("an interface was removed before the line was ready");
	watch(line, line->signals, &line->signals);
	watch(line, line->removals, &line->removals);
	for (size_t i = 0; i < line->link_count; i++)
		for (int which = 0; which < DIRECTIONS; which++)
			watch(line, line->links[i].directions[which].from->fd, &line->links[i].directions[which]);
	choose_periods(line);
	line->looked_ns = monotonic_ns();
}

static void hold(struct line *line, struct packet *packet, int64_t due_ns)
{
	struct direction *direction = packet->direction;
	packet->due_ns = due_ns;
	packet->order = line->arrivals++;
	if (line->waiting_bytes + packet->len > line->memory_bytes || !heap_push(&line->waiting, packet)) {
		direction->counts.no_room++;
		free(packet);
		return;
	}
	line->waiting_bytes += packet->len;
	direction->waiting++;
}

// When the packet is due. Order is kept, also with jitter: a packet is due no earlier than the one before it, except if
// it overtakes.
static int64_t due_ns(struct direction *direction, const struct fate *fate, int64_t arrived_ns)
{
	if (fate->overtakes) {
		direction->counts.overtaking += direction->waiting > 0;
		return arrived_ns;
	}
	if (arrived_ns + fate->delay_ns > direction->last_due_ns)
		direction->last_due_ns = arrived_ns + fate->delay_ns;
	return direction->last_due_ns;
}

static void accept_frame(struct line *line, struct direction *direction, const struct frame *frame, int64_t arrived_ns)
{
	struct counts *counts = &direction->counts;
	struct fate fate = impairment_decide(&direction->impairment, &line->random_state);
	counts->received++;
	if (!frame->bytes) {
		counts->too_large++;
		return;
	}
	if (fate.lost) {
		counts->lost++;
		return;
	}
	struct packet *packet = packet_make(frame->bytes, frame->len, frame->tag);
	if (!packet) {
		counts->no_room++;
		return;
	}
	packet->direction = direction;
	struct packet *copy = fate.duplicated ? packet_copy(packet) : NULL;
	int64_t due = due_ns(direction, &fate, arrived_ns);
	hold(line, packet, due);
	if (copy) {
		counts->duplicated++;
		hold(line, copy, due);
	}
}

// The kernel's time stamp on the monotonic clock. If CLOCK_REALTIME was set meanwhile, the stamp is of no use.
static int64_t arrival_ns(struct line *line, const struct frame *frame, int64_t realtime_ahead_ns, int64_t now_ns)
{
	int64_t arrived_ns = frame->arrived_ns - realtime_ahead_ns;
	if (arrived_ns > now_ns + CLOCK_STEP_NS || arrived_ns < line->looked_ns - CLOCK_STEP_NS) {
		line->clock_steps++;
		return now_ns;
	}
	return smaller(arrived_ns, now_ns);
}

// Takes up to MAX_FRAMES_PER_TURN packets out of a ring. Returns how many.
static unsigned receive(struct line *line, struct direction *direction)
{
	struct port *port = direction->from;
	struct frame frame;
	unsigned count = 0;
	int64_t now = monotonic_ns(), realtime_ahead_ns = clock_ns(CLOCK_REALTIME) - now;
	for (; count < MAX_FRAMES_PER_TURN && port_next(port, &frame); count++) {
		if (frame.arrived_ns - realtime_ahead_ns > now)
			now = monotonic_ns();
		accept_frame(line, direction, &frame, arrival_ns(line, &frame, realtime_ahead_ns, now));
		port_release(port);
	}
	return count;
}

void line_receive_all(struct line *line)
{
	for (size_t i = 0; i < line->link_count; i++)
		for (int which = 0; which < DIRECTIONS; which++)
			while (receive(line, &line->links[i].directions[which]))
				;
}

static void take_out(struct line *line, struct packet *packet)
{
	line->waiting_bytes -= packet->len;
	packet->direction->waiting--;
}

static void count_sent(struct line *line, const struct port *port, unsigned first, unsigned count)
{
	int64_t now = monotonic_ns();
	for (unsigned i = first; i < first + count; i++) {
		struct packet *packet = port->batch[i];
		packet->direction->counts.sent++;
		lateness_add(&packet->direction->lateness, now - packet->due_ns);
		lateness_add(&line->lateness, now - packet->due_ns);
	}
}

static void flush(struct line *line, struct port *port)
{
	for (unsigned done = 0; done < port->batched; done++) {
		unsigned sent = port_send(port, done);
		count_sent(line, port, done, sent);
		done += sent;
		if (done < port->batched)
			port->batch[done]->direction->counts.refused++;
	}
	for (unsigned i = 0; i < port->batched; i++)
		free(port->batch[i]);
	port->batched = 0;
}

void line_send_due(struct line *line)
{
	struct port *port = NULL;
	int64_t now = monotonic_ns();
	for (struct packet *first; (first = heap_first(&line->waiting)) && first->due_ns <= now;) {
		if (port && (port != first->direction->to || port->batched == MAX_BATCH)) {
			flush(line, port);
			now = monotonic_ns();
		}
		port = first->direction->to;
		take_out(line, first);
		port->batch[port->batched++] = heap_pop(&line->waiting);
	}
	if (port)
		flush(line, port);
}

static void note_stall(struct line *line, int64_t wanted_ns)
{
	int64_t late_ns = monotonic_ns() - wanted_ns;
	if (late_ns < STALL_NS)
		return;
	line->stalls++;
	if (late_ns > line->longest_stall_ns)
		line->longest_stall_ns = late_ns;
}

// Waits until a packet is due or the rings are to be looked at. Returns the number of events.
static int wait_for_events(struct line *line, struct epoll_event *events)
{
	const struct packet *first = heap_first(&line->waiting);
	int64_t now = monotonic_ns();
	struct timespec timeout = {0};
	if (!first)
		return epoll_pwait2(line->epoll, events, MAX_EVENTS, NULL, NULL);
	int64_t wake_ns = first->due_ns;
	if (wake_ns < line->looked_ns + line->batch_ns)
		wake_ns = line->looked_ns + line->batch_ns;
	if (line->poll_ns) {
		wake_ns = smaller(wake_ns, now + line->poll_ns);
		timeout = timespec_of(wake_ns);
		while (wake_ns > now && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &timeout, NULL) == EINTR)
			;
		timeout = (struct timespec){0};
	} else if (wake_ns > now) {
		timeout = timespec_of(wake_ns - now);
	}
	int count = epoll_pwait2(line->epoll, events, MAX_EVENTS, &timeout, NULL);
	if (wake_ns > now)
		note_stall(line, wake_ns);
	return count;
}

// Packets that already wait keep their due times. Later packets of a shorter delay leave after them.
static void change_impairments(struct line *line)
{
	const char *error = links_read_impairments(line->path, line->links, line->link_count);
	if (error)
		fprintf(stderr, "weir-delay-line: %s is not used: %s\n", line->path, error);
	choose_periods(line);
	printf("{\"event\":\"%s\",\"t_ns\":%" PRId64 "}\n", error ? "not_changed" : "changed", monotonic_ns());
	fflush(stdout);
}

// Returns false if the line is to end.
static bool read_signal(struct line *line)
{
	struct signalfd_siginfo info;
	if (read(line->signals, &info, sizeof info) != sizeof info)
		return true;
	if (info.ssi_signo == SIGUSR1)
		report_write(line, false);
	else if (info.ssi_signo == SIGHUP)
		change_impairments(line);
	else
		return false;
	return true;
}

static void discard_waiting(struct line *line)
{
	for (struct packet *packet; (packet = heap_pop(&line->waiting));) {
		take_out(line, packet);
		packet->direction->counts.discarded++;
		free(packet);
	}
}

static bool interface_removed(const struct line *line)
{
	return removal_read(line->removals) && !links_exist(line->links, line->link_count);
}

// Returns the exit status if the line is to end, and RUNS otherwise.
static int handle(struct line *line, const struct epoll_event *event)
{
	struct direction *direction = event->data.ptr;
	if (event->data.ptr == &line->signals)
		return read_signal(line) ? RUNS : 0;
	if (event->data.ptr == &line->removals)
		return interface_removed(line) ? 1 : RUNS;
	receive(line, direction);
	if (event->events & EPOLLERR)
		port_recover(direction->from);
	return RUNS;
}

int line_run(struct line *line)
{
	struct epoll_event events[MAX_EVENTS];
	int status = RUNS;
	while (status == RUNS) {
		int count = wait_for_events(line, events);
		int64_t now = monotonic_ns();
		if (count < 0 && errno != EINTR)
			fail("epoll_pwait2: %s", strerror(errno));
		for (int i = 0; i < count; i++) {
			int ended = handle(line, &events[i]);
			status = ended == RUNS ? status : ended;
		}
		line->looked_ns = now;
		line_send_due(line);
	}
	line_receive_all(line);
	line_send_due(line);
	discard_waiting(line);
	report_write(line, true);
	return status;
}
