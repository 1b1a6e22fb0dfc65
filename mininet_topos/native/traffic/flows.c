// SPDX-License-Identifier: Apache-2.0
// Flows that start at a given time, each on a connection of its own, and are sampled while they last: the flows of a
// plan, and the one endless flow of a source. A flow is complete when its peer has read all of it and has closed; an
// endless one lasts until SIGTERM.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "connection.h"
#include "events.h"
#include "options.h"
#include "records.h"
#include "roles.h"
#include "sockets.h"

#define ENDLESS UINT64_MAX
#define UNSENT_BYTES (2 * CHUNK_BYTES) // what the kernel buffers beyond what it has sent
#define FINISH_TIMEOUT_S 8

enum flow_state { FLOW_WAITING, FLOW_CONNECTING, FLOW_SENDING, FLOW_FINISHING, FLOW_DONE };

struct flow {
	enum flow_state state;
	uint32_t number;      // its line in the plan, from 0
	uint64_t start_ns;    // when it shall start; once it has started, when it did
	uint64_t deadline_us; // after its start; 0: it has none
	struct connection connection;
};

static void flow_report(const char *event, const struct flow *f)
{
	record_begin(event);
	record_put(",\"flow\":%u,\"endless\":%s,\"peer\":\"%s\"", f->number,
		   f->connection.to_send == ENDLESS ? "true" : "false", f->connection.peer);
	record_tcp_info(f->connection.fd);
	record_end();
}

static void flow_start(struct flow *f)
{
	int unsent_bytes = UNSENT_BYTES;
	f->connection.fd = begin_connecting(f->connection.peer, options.cc[0]);
	setsockopt(f->connection.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
	events_watch(f->connection.fd, f, EPOLLOUT, EPOLL_CTL_ADD);
	f->state = FLOW_CONNECTING;
	f->start_ns = now_ns();
}

static void flow_complete(struct flow *f)
{
	uint64_t now = now_ns();
	char end;
	if (recv(f->connection.fd, &end, sizeof end, 0) != 0)
		fail("flow %u to %s was broken off: %s", f->number, f->connection.peer, strerror(errno));
	record_begin("flow");
	record_put(",\"flow\":%u,\"fct_ms\":%.3f", f->number, (double)(now - f->start_ns) / NS_PER_MS);
	record_tcp_info(f->connection.fd);
	record_end();
	close(f->connection.fd);
	f->state = FLOW_DONE;
}

static void flow_set_deadline(const struct flow *f)
{
	uint64_t passed_us = (now_ns() - f->start_ns) / NS_PER_US;
	if (f->deadline_us)
		set_deadline(f->connection.fd, f->connection.to_send,
			     passed_us < f->deadline_us ? f->deadline_us - passed_us : 0);
}

// Goes on with a flow whose socket is ready.
static void flow_advance(struct flow *f)
{
	struct connection *c = &f->connection;
	if (f->state == FLOW_FINISHING) {
		flow_complete(f);
		return;
	}
	if (f->state == FLOW_CONNECTING) {
		require_connected(c->fd, c->peer);
		flow_report("connected", f);
		flow_set_deadline(f);
		f->state = FLOW_SENDING;
	}
	ssize_t sent = write_zeros(c->fd, c->to_send);
	if (sent < 0)
		fail("flow %u to %s ended: %s", f->number, c->peer, strerror(errno));
	if (c->to_send != ENDLESS)
		c->to_send -= (uint64_t)sent;
	if (c->to_send == 0) {
		shutdown(c->fd, SHUT_WR);
		events_watch(c->fd, f, EPOLLIN, EPOLL_CTL_MOD);
		f->state = FLOW_FINISHING;
	}
}

// Sends what the socket still holds, closes, and waits until the peer has read all of it.
static void flow_stop(struct flow *f)
{
	struct timeval timeout = {.tv_sec = FINISH_TIMEOUT_S};
	int fd = f->connection.fd;
	char end;
	flow_report("closed", f);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
	shutdown(fd, SHUT_WR);
	if (recv(fd, &end, sizeof end, 0) != 0)
		fail("the sink did not receive the rest of flow %u in %d s", f->number, FINISH_TIMEOUT_S);
	close(fd);
}

static bool flow_is_open(const struct flow *f)
{
	return f->state == FLOW_SENDING || f->state == FLOW_FINISHING;
}

// Starts the flows that are due. Returns when the next one is.
static uint64_t start_due_flows(struct flow *flows, uint32_t count, uint64_t now)
{
	uint64_t next_ns = UINT64_MAX;
	for (uint32_t i = 0; i < count; i++)
		if (flows[i].state == FLOW_WAITING) {
			if (flows[i].start_ns <= now)
				flow_start(&flows[i]);
			else if (flows[i].start_ns < next_ns)
				next_ns = flows[i].start_ns;
		}
	return next_ns;
}

static uint32_t count_unfinished(const struct flow *flows, uint32_t count)
{
	uint32_t unfinished = 0;
	for (uint32_t i = 0; i < count; i++)
		unfinished += flows[i].state != FLOW_DONE;
	return unfinished;
}

static void sample_open_flows(const struct flow *flows, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (flow_is_open(&flows[i]))
			flow_report("sample", &flows[i]);
}

static int run_until_done(struct flow *flows, uint32_t count)
{
	struct epoll_event events[MAX_EVENTS];
	uint64_t sample_ns = now_ns();
	while (count_unfinished(flows, count)) {
		uint64_t now = now_ns(), next_ns = start_due_flows(flows, count, now);
		if (now >= sample_ns) {
			sample_open_flows(flows, count);
			sample_ns += options.sample_ms * NS_PER_MS;
		}
		if (next_ns > sample_ns)
			next_ns = sample_ns;
		int ready = events_wait(events, next_ns > now ? (int)((next_ns - now) / NS_PER_MS) + 1 : 0);
		if (ready < 0)
			break;
		for (int i = 0; i < ready; i++)
			flow_advance(events[i].data.ptr);
	}
	for (uint32_t i = 0; i < count; i++)
		if (flow_is_open(&flows[i]))
			flow_stop(&flows[i]);
	record_begin("done");
	record_end();
	return 0;
}

// The flows of this host: the lines `host start_us address size_bytes deadline_us` of the plan that begin with its
// name.
static struct flow *read_plan(uint32_t *count)
{
	FILE *plan = fopen(options.plan, "r");
	struct flow *flows = NULL;
	char line[160], host[48];
	uint32_t n = 0;
	if (!plan)
		fail("cannot read the plan %.80s: %s", options.plan, strerror(errno));
	for (uint32_t number = 0; fgets(line, sizeof line, plan); number++) {
		struct flow f = {.number = number};
		uint64_t start_us;
		if (sscanf(line, "%47s %" SCNu64 " %63s %" SCNu64 " %" SCNu64, host, &start_us, f.connection.peer,
			   &f.connection.to_send, &f.deadline_us) != 5)
			fail("line %u of the plan: want host start_us address size_bytes deadline_us", number + 1);
		if (strcmp(host, options.host))
			continue;
		f.start_ns = options.start_ns + start_us * NS_PER_US;
		flows = realloc(flows, (n + 1) * sizeof *flows);
		if (!flows)
			fail("out of memory");
		flows[n++] = f;
	}
	fclose(plan);
	*count = n;
	return flows;
}

int run_flows(void)
{
	uint32_t count;
	if (!options.plan)
		fail("flows needs --plan FILE");
	struct flow *flows = read_plan(&count);
	return run_until_done(flows, count);
}

int run_source(void)
{
	struct flow endless = {.start_ns = now_ns(), .connection.to_send = ENDLESS};
	if (!options.destination)
		fail("source needs --to ADDRESS");
	snprintf(endless.connection.peer, sizeof endless.connection.peer, "%s", options.destination);
	return run_until_done(&endless, 1);
}
