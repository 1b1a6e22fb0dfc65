// SPDX-License-Identifier: Apache-2.0
// The sink of long and planned flows over DCUDP.
#include "events.h"
#include "node.h"
#include "options.h"
#include "records.h"
#include "roles.h"

struct totals {
	uint32_t connections; // that are open
	uint64_t received_bytes;
};

static void read_events(dcudp_node *node, struct totals *totals)
{
	struct dcudp_event event;
	while (node_next_event(node, &event)) {
		if (event.kind == DCUDP_CONNECTED)
			totals->connections++;
		else if (event.kind == DCUDP_MESSAGE)
			totals->received_bytes += event.data_bytes;
		else if (event.kind == DCUDP_CLOSED)
			totals->connections--;
		dcudp_free_event(&event);
	}
}

int run_sink(void)
{
	struct epoll_event events[MAX_EVENTS];
	struct totals totals = {0};
	dcudp_node *node = node_open(options.port, true);
	events_watch(dcudp_event_fd(node), node, EPOLLIN, EPOLL_CTL_ADD);
	record_begin("listening");
	record_end();
	while (events_wait(events, totals.connections ? SINK_WAKE_MS : -1) >= 0) {
		read_events(node, &totals);
		if (totals.connections)
			record_goodput(options.port, totals.received_bytes, options.sample_ms);
	}
	dcudp_close(node);
	return 0;
}
