// SPDX-License-Identifier: Apache-2.0
// The sink of long and planned flows: receives and discards, and records how much it has received in total.
#include "connection.h"
#include "events.h"
#include "options.h"
#include "records.h"
#include "roles.h"
#include "sockets.h"

#define READ_BYTES (1 << 20)

int run_sink(void)
{
	struct epoll_event events[MAX_EVENTS];
	struct connection *list = NULL;
	uint64_t received_bytes = 0;
	int listener = listen_on_port(options.port, options.cc), count;
	events_watch(listener, NULL, EPOLLIN, EPOLL_CTL_ADD);
	record_begin("listening");
	record_end();
	while ((count = events_wait(events, list ? SINK_WAKE_MS : -1)) >= 0) {
		for (int i = 0; i < count; i++) {
			struct connection *c = events[i].data.ptr;
			if (!c) {
				list = connection_accept(listener, list);
				continue;
			}
			ssize_t received = discard(c->fd, READ_BYTES);
			if (received < 0)
				list = connection_close(list, c);
			else
				received_bytes += (uint64_t)received;
		}
		if (list)
			record_goodput(options.port, received_bytes, options.sample_ms);
	}
	return 0;
}
