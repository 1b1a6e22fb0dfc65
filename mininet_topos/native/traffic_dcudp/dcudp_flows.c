// SPDX-License-Identifier: Apache-2.0
// DCUDP as the transport of flows. The handle of a flow is the number of its connection. All flows of a host share a
// node, whose events are read on its descriptor; a timer gives the node more bytes.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "events.h"
#include "node.h"
#include "options.h"
#include "records.h"
#include "transport.h"

#define CONNECTION_BYTES 40 // header and protection of a data packet (dcudp/WIRE.md)
#define MESSAGE_PACKETS 6   // a sink counts whole messages, so they are short
#define MESSAGE_BYTES (MESSAGE_PACKETS * (PAYLOAD_BYTES - CONNECTION_BYTES) - 1) // without the channel's byte
#define FILL_MS 10 // how often the node is given more bytes

static const uint8_t zeros[MESSAGE_BYTES];
static dcudp_node *node;
static int timer_fd;
static bool ending; // SIGTERM has come: flows that end are not complete

// What the node last said of a flow's connection. Nothing can be asked of a connection that has ended, so the record of
// a completed flow has figures that are up to FILL_MS old.
static struct known {
	struct flow *flow;
	struct dcudp_statistics statistics;
} * known;
static uint32_t known_count;

static void open_node(void)
{
	struct itimerspec every = {
		.it_value.tv_nsec = FILL_MS * NS_PER_MS,
		.it_interval.tv_nsec = FILL_MS * NS_PER_MS,
	};
	if (!options.link_bps || !options.rate_bps)
		fail("a flow over DCUDP needs --link-bps and --rate-bps");
	node = node_open(0, false);
	events_watch(dcudp_event_fd(node), node, EPOLLIN, EPOLL_CTL_ADD);
	timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (timer_fd < 0 || timerfd_settime(timer_fd, 0, &every, NULL) < 0)
		fail("timerfd: %s", strerror(errno));
	events_watch(timer_fd, &timer_fd, EPOLLIN, EPOLL_CTL_ADD);
}

static struct known *known_of(const struct flow *f)
{
	for (uint32_t i = 0; i < known_count; i++)
		if (known[i].flow == f)
			return &known[i];
	fail("flow %u has no connection", f->number);
}

void transport_connect(struct flow *f)
{
	char peer[96], error[200];
	uint32_t connection;
	if (!node)
		open_node();
	snprintf(peer, sizeof peer, "%s:%d", f->peer, options.port);
	if (dcudp_connect(node, peer, &connection, error, sizeof error))
		fail("cannot connect to %s: %s", peer, error);
	known = realloc(known, (known_count + 1) * sizeof *known);
	if (!known)
		fail("out of memory");
	known[known_count++] = (struct known){.flow = f};
	f->handle = connection;
}

// The newest statistics of a flow's connection, or the last ones before it ended.
static const struct dcudp_statistics *statistics_of(const struct flow *f)
{
	struct known *k = known_of(f);
	struct dcudp_statistics now;
	if (flow_is_open(f) && dcudp_get_statistics(node, (uint32_t)f->handle, &now) == 0)
		k->statistics = now;
	return &k->statistics;
}

void transport_put_figures(const struct flow *f)
{
	const struct dcudp_statistics *s = statistics_of(f);
	uint64_t buffered = s->send_buffer_bytes < f->taken_bytes ? s->send_buffer_bytes : f->taken_bytes;
	record_put(",\"bytes_acked\":%llu,\"total_retrans\":%llu,\"timeouts\":%llu,\"rate_pps\":%.0f,\"rtt_us\":%llu,"
		   "\"min_rtt_us\":%llu,\"mss\":%u,\"delivered\":%llu,\"mode\":%u,\"congestion_entries\":%llu,"
		   "\"ecn_bleached\":%u",
		   (unsigned long long)(f->taken_bytes - buffered), (unsigned long long)s->retransmitted,
		   (unsigned long long)s->timeouts, s->rate_pps, (unsigned long long)s->rtt_us,
		   (unsigned long long)s->rtt_idle_us, s->mtu_bytes, (unsigned long long)s->acknowledged, s->mode,
		   (unsigned long long)s->congestion_entries, s->ecn_bleached);
}

// The bytes of a flow that the node has not sent: what it holds, without the packets that are on their way.
static uint64_t unsent_bytes(const struct flow *f)
{
	const struct dcudp_statistics *s = statistics_of(f);
	uint64_t in_flight = s->data_sent - s->retransmitted - s->acknowledged;
	uint64_t sent_bytes = in_flight * (s->mtu_bytes - CONNECTION_BYTES);
	return s->send_buffer_bytes > sent_bytes ? s->send_buffer_bytes - sent_bytes : 0;
}

// Gives the node as much of a flow as lasts until the next time.
static void fill(struct flow *f)
{
	uint64_t most_bytes = flow_most_unsent_bytes();
	for (uint64_t unsent = unsent_bytes(f); unsent < most_bytes;) {
		size_t bytes = f->to_send < MESSAGE_BYTES ? (size_t)f->to_send : MESSAGE_BYTES;
		int sent = dcudp_send_message(node, (uint32_t)f->handle, zeros, bytes);
		if (sent == DCUDP_FULL || sent == DCUDP_NO_CONNECTION)
			return; // an event follows
		if (sent != DCUDP_SENT)
			fail("flow %u to %s: DCUDP refuses a message of %zu bytes", f->number, f->peer, bytes);
		unsent += bytes;
		if (flow_take(f, bytes)) {
			dcudp_close_connection(node, (uint32_t)f->handle);
			return;
		}
	}
}

static void handle(const struct dcudp_event *event)
{
	for (uint32_t i = 0; i < known_count; i++) {
		struct flow *f = known[i].flow;
		if (f->handle != event->connection || f->state == FLOW_DONE)
			continue;
		if (event->kind == DCUDP_CONNECTED)
			flow_connected(f);
		if (event->kind != DCUDP_CLOSED)
			return;
		if (event->text || (f->state != FLOW_FINISHING && !ending))
			fail("flow %u to %s ended: %s", f->number, f->peer, event->text ? event->text : "closed");
		known[i].statistics.send_buffer_bytes = 0; // the peer has all of it
		if (ending)
			f->state = FLOW_DONE;
		else
			flow_complete(f, now_ns());
		return;
	}
}

static void read_events(void)
{
	struct dcudp_event event;
	while (node_next_event(node, &event)) {
		handle(&event);
		dcudp_free_event(&event);
	}
}

void transport_advance(const struct epoll_event *event)
{
	uint64_t expirations;
	if (event->data.ptr == &timer_fd && read(timer_fd, &expirations, sizeof expirations) < 0)
		return;
	read_events();
	for (uint32_t i = 0; i < known_count; i++) {
		if (known[i].flow->state == FLOW_SENDING)
			fill(known[i].flow);
		else if (known[i].flow->state == FLOW_FINISHING)
			statistics_of(known[i].flow);
	}
}

void transport_finish(struct flow *f)
{
	uint64_t until_ns = now_ns() + FINISH_TIMEOUT_S * NS_PER_S;
	struct pollfd readable = {.fd = dcudp_event_fd(node), .events = POLLIN};
	ending = true;
	dcudp_close_connection(node, (uint32_t)f->handle);
	for (uint64_t now = now_ns(); flow_is_open(f) && now < until_ns; now = now_ns()) {
		poll(&readable, 1, (int)((until_ns - now) / NS_PER_MS) + 1);
		read_events();
	}
	if (flow_is_open(f))
		fail("the sink did not receive the rest of flow %u in %d s", f->number, FINISH_TIMEOUT_S);
}
