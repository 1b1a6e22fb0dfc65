// SPDX-License-Identifier: Apache-2.0
// The root (aggregator) of partition/aggregate queries: asks all workers at once and waits for all responses.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"
#include "events.h"
#include "options.h"
#include "records.h"
#include "roles.h"
#include "sockets.h"

#define QUERY_TIMEOUT_MS 30000
#define READ_BYTES (1 << 20)

// The workers of the options. Their names, addresses and congestion controls point into a copy that is never freed.
static struct connection *parse_workers(uint32_t *count)
{
	char *list = strdup(options.workers), *save = NULL;
	struct connection *workers = NULL;
	uint32_t n = 0;
	for (char *word = strtok_r(list, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *address = strchr(word, '=');
		if (!address)
			fail("--workers: want name=address, not %.40s", word);
		*address++ = 0;
		workers = realloc(workers, (n + 1) * sizeof *workers);
		if (!workers)
			fail("out of memory");
		char *cc = strchr(address, '/');
		if (cc)
			*cc++ = 0;
		workers[n] = (struct connection){.fd = -1, .address = address, .cc = cc ? cc : options.cc};
		snprintf(workers[n].peer, sizeof workers[n].peer, "%s", word);
		n++;
	}
	*count = n;
	return workers;
}

static void send_request(const struct connection *c)
{
	struct request request = {.response_bytes = htonl(options.response_bytes)};
	if (send(c->fd, &request, sizeof request, MSG_NOSIGNAL) != sizeof request)
		fail("cannot send the request to %s: %s", c->peer, strerror(errno));
}

// Asks a worker on its standing connection, or begins a new connection that will carry the request.
static void begin_request(struct connection *c)
{
	c->to_receive = options.response_bytes;
	if (!options.fresh) {
		send_request(c);
		return;
	}
	c->fd = begin_connecting(c->address, c->cc);
	c->connecting = true;
	events_watch(c->fd, c, EPOLLOUT, EPOLL_CTL_ADD);
}

static void finish_connecting(struct connection *c)
{
	require_connected(c->fd, c->address);
	c->connecting = false;
	events_watch(c->fd, c, EPOLLIN, EPOLL_CTL_MOD);
	send_request(c);
}

static void receive_response(struct connection *c)
{
	ssize_t received = discard(c->fd, READ_BYTES);
	if (received < 0)
		fail("worker %s closed its connection", c->peer);
	if ((uint64_t)received > c->to_receive)
		fail("worker %s sent more than the root asked for", c->peer);
	c->to_receive -= (uint64_t)received;
	if (received > 0 && c->to_receive == 0)
		c->completed_ns = now_ns();
}

// Goes on with each worker that is ready. Returns the number of responses that are now complete.
static uint32_t handle_events(const struct epoll_event *events, int count)
{
	uint32_t completed = 0;
	for (int i = 0; i < count; i++) {
		struct connection *c = events[i].data.ptr;
		if (c->connecting) {
			finish_connecting(c);
			continue;
		}
		receive_response(c);
		if (c->to_receive == 0) {
			completed++;
			if (options.fresh)
				close(c->fd);
		}
	}
	return completed;
}

// How long the switch's thread has been ready to run but had no CPU, since its start. 0 without --schedstat.
static unsigned long long switch_waited_ns(void)
{
	static int fd = -1;
	char line[128] = "";
	unsigned long long waited_ns;
	if (!options.schedstat)
		return 0;
	if (fd < 0)
		fd = open(options.schedstat, O_RDONLY | O_CLOEXEC);
	if (pread(fd, line, sizeof line - 1, 0) < 0 || sscanf(line, "%*u %llu", &waited_ns) != 1)
		fail("--schedstat: cannot read %s: %s", options.schedstat, strerror(errno));
	return waited_ns;
}

static void report_query(const struct connection *workers, uint32_t count, uint32_t number, uint64_t start_ns,
			 unsigned long long waited_ns)
{
	uint64_t last_ns = start_ns;
	record_begin("query");
	record_put(",\"query\":%u,\"start_ns\":%llu,\"workers_ms\":[", number, (unsigned long long)start_ns);
	for (uint32_t i = 0; i < count; i++) {
		record_put("%s%.3f", i ? "," : "", (double)(workers[i].completed_ns - start_ns) / NS_PER_MS);
		if (workers[i].completed_ns > last_ns)
			last_ns = workers[i].completed_ns;
	}
	record_put("],\"qct_ms\":%.3f,\"switch_waited_ms\":%.3f", (double)(last_ns - start_ns) / NS_PER_MS,
		   (double)waited_ns / NS_PER_MS);
	record_end();
}

// One query: sends all requests and waits for all responses. Returns false if SIGTERM came first.
static bool run_query(struct connection *workers, uint32_t count, uint32_t number)
{
	struct epoll_event events[MAX_EVENTS];
	unsigned long long waited_before_ns = switch_waited_ns();
	uint64_t start_ns = now_ns();
	for (uint32_t i = 0; i < count; i++)
		begin_request(&workers[i]);
	for (uint32_t missing = count; missing;) {
		int ready = events_wait(events, 1000);
		if (ready < 0)
			return false;
		if (now_ns() - start_ns > QUERY_TIMEOUT_MS * NS_PER_MS)
			fail("query %u is not complete after %d s: %u responses are missing", number,
			     QUERY_TIMEOUT_MS / 1000, missing);
		missing -= handle_events(events, ready);
	}
	report_query(workers, count, number, start_ns, switch_waited_ns() - waited_before_ns);
	return true;
}

// Waits between queries, in which no worker may send. Returns false if SIGTERM came.
static bool pause_until(uint64_t until_ns)
{
	struct epoll_event events[MAX_EVENTS];
	for (uint64_t now = now_ns(); now < until_ns; now = now_ns()) {
		int ready = events_wait(events, (int)((until_ns - now) / NS_PER_MS) + 1);
		if (ready < 0)
			return false;
		if (ready > 0)
			fail("a worker closed its connection or sent data between two queries");
	}
	return true;
}

int run_root(void)
{
	uint32_t count;
	if (!options.workers || options.response_bytes == 0 || options.response_bytes > MAX_RESPONSE_BYTES)
		fail("root needs --workers and --size from 1 to %u", MAX_RESPONSE_BYTES);
	struct connection *workers = parse_workers(&count);
	for (uint32_t i = 0; i < count && !options.fresh; i++) {
		workers[i].fd = connect_to(workers[i].address, workers[i].cc);
		events_watch(workers[i].fd, &workers[i], EPOLLIN, EPOLL_CTL_ADD);
	}
	record_begin("connected");
	record_put(",\"workers\":%u", count);
	record_end();
	if (options.start_ns && now_ns() > options.start_ns)
		fail("the start has passed while the root was connecting to %u workers", count);
	uint64_t begin_ns = options.start_ns ? options.start_ns : now_ns() + options.gap_ms * NS_PER_MS;
	for (uint32_t i = 0; i < options.queries; i++) {
		if (!pause_until(begin_ns) || !run_query(workers, count, i))
			return 0;
		begin_ns = options.period_ms ? begin_ns + options.period_ms * NS_PER_MS
					     : now_ns() + options.gap_ms * NS_PER_MS;
	}
	record_begin("done");
	record_end();
	for (uint32_t i = 0; i < count && !options.fresh; i++)
		close(workers[i].fd);
	free(workers);
	return 0;
}
