// SPDX-License-Identifier: Apache-2.0
// The sink of long and planned flows: receives and discards, and records how much it has received in total.
#include "connection.h"
#include "events.h"
#include "options.h"
#include "records.h"
#include "roles.h"
#include "sockets.h"

#define READ_BYTES (1 << 20)
#define WAKE_PERIOD_MS 10

static void report_goodput(uint64_t received_bytes)
{
	record_begin("goodput");
	record_put(",\"bytes\":%llu", (unsigned long long)received_bytes);
	record_end();
}

int run_sink(void)
{
	struct epoll_event events[MAX_EVENTS];
	struct connection *list = NULL;
	uint64_t received_bytes = 0, next_report_ns = 0;
	int listeners[MAX_CCS], count;
	for (int i = 0; i < MAX_CCS && options.cc[i]; i++) {
		listeners[i] = listen_on_port(options.port + i, options.cc[i]);
		events_watch(listeners[i], &listeners[i], EPOLLIN, EPOLL_CTL_ADD);
	}
	record_begin("listening");
	record_end();
	while ((count = events_wait(events, list ? WAKE_PERIOD_MS : -1)) >= 0) {
		for (int i = 0; i < count; i++) {
			int *listener = events[i].data.ptr;
			if (listener >= listeners && listener < listeners + MAX_CCS) {
				list = connection_accept(*listener, list);
				continue;
			}
			struct connection *c = events[i].data.ptr;
			ssize_t received = discard(c->fd, READ_BYTES);
			if (received < 0)
				list = connection_close(list, c);
			else
				received_bytes += (uint64_t)received;
		}
		uint64_t now = now_ns();
		if (list && options.sample_ms && now >= next_report_ns) {
			report_goodput(received_bytes);
			next_report_ns = now + REPORT_PERIOD_MS * NS_PER_MS;
		}
	}
	return 0;
}
