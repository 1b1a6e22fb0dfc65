// SPDX-License-Identifier: Apache-2.0
// The worker of partition/aggregate queries: answers each request at once, on standing connections.
#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>

#include "connection.h"
#include "events.h"
#include "options.h"
#include "records.h"
#include "roles.h"
#include "sockets.h"

// Sends the rest of the response. Returns false if the connection has ended.
static bool send_response(struct connection *c)
{
	while (c->to_send) {
		ssize_t sent = write_zeros(c->fd, c->to_send);
		if (sent < 0)
			return false;
		if (sent == 0) {
			events_watch(c->fd, c, EPOLLOUT, EPOLL_CTL_MOD);
			return true;
		}
		c->to_send -= (uint64_t)sent;
		if (c->to_send == 0)
			events_watch(c->fd, c, EPOLLIN, EPOLL_CTL_MOD);
	}
	return true;
}

// Goes on with a connection that is ready. A request is answered before the next one is read. Returns false if the
// connection has ended.
static bool serve(struct connection *c)
{
	for (;;) {
		if (!send_response(c))
			return false;
		if (c->to_send)
			return true;
		ssize_t received = recv(c->fd, (char *)&c->request + c->request_received,
					sizeof c->request - c->request_received, 0);
		if (received <= 0)
			return received < 0 && (errno == EAGAIN || errno == EINTR);
		c->request_received += (size_t)received;
		if (c->request_received < sizeof c->request)
			continue;
		c->request_received = 0;
		c->to_send = ntohl(c->request.response_bytes);
		if (c->to_send > MAX_RESPONSE_BYTES)
			return false;
		if (options.deadline_us)
			set_deadline(c->fd, c->to_send, options.deadline_us);
	}
}

int run_worker(void)
{
	struct epoll_event events[MAX_EVENTS];
	struct connection *list = NULL;
	int listener = listen_on_port(options.port, options.cc), count;
	events_watch(listener, NULL, EPOLLIN, EPOLL_CTL_ADD);
	record_begin("listening");
	record_end();
	while ((count = events_wait(events, -1)) >= 0)
		for (int i = 0; i < count; i++) {
			struct connection *c = events[i].data.ptr;
			if (!c)
				list = connection_accept(listener, list);
			else if (!serve(c)) {
				connection_report("closed", c);
				list = connection_close(list, c);
			}
		}
	for (struct connection *c = list; c; c = c->next)
		connection_report("closed", c);
	return 0;
}
