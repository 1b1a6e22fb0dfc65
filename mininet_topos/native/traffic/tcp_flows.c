// SPDX-License-Identifier: Apache-2.0
// TCP as the transport of flows. The handle of a flow is its socket.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "events.h"
#include "options.h"
#include "records.h"
#include "sockets.h"
#include "transport.h"

#define UNSENT_BYTES (2 * CHUNK_BYTES) // what the kernel buffers beyond what it has sent

static int socket_of(const struct flow *f)
{
	return (int)f->handle;
}

void transport_connect(struct flow *f)
{
	int unsent_bytes = UNSENT_BYTES, fd = begin_connecting(f->peer, options.cc);
	setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
	events_watch(fd, f, EPOLLOUT, EPOLL_CTL_ADD);
	f->handle = fd;
}

void transport_put_figures(const struct flow *f)
{
	record_tcp_info(socket_of(f));
}

static void close_completed(struct flow *f)
{
	uint64_t now = now_ns();
	char end;
	if (recv(socket_of(f), &end, sizeof end, 0) != 0)
		fail("flow %u to %s was broken off: %s", f->number, f->peer, strerror(errno));
	flow_complete(f, now);
	close(socket_of(f));
}

static void state_deadline(const struct flow *f)
{
	uint64_t passed_us = (now_ns() - f->start_ns) / NS_PER_US;
	if (f->deadline_us)
		set_deadline(socket_of(f), f->to_send, passed_us < f->deadline_us ? f->deadline_us - passed_us : 0);
}

void transport_advance(const struct epoll_event *event)
{
	struct flow *f = event->data.ptr;
	if (f->state == FLOW_FINISHING) {
		close_completed(f);
		return;
	}
	if (f->state == FLOW_CONNECTING) {
		require_connected(socket_of(f), f->peer);
		flow_connected(f);
		state_deadline(f);
	}
	ssize_t sent = write_zeros(socket_of(f), f->to_send);
	if (sent < 0)
		fail("flow %u to %s ended: %s", f->number, f->peer, strerror(errno));
	if (flow_take(f, (uint64_t)sent)) {
		shutdown(socket_of(f), SHUT_WR);
		events_watch(socket_of(f), f, EPOLLIN, EPOLL_CTL_MOD);
	}
}

void transport_finish(struct flow *f)
{
	struct timeval timeout = {.tv_sec = FINISH_TIMEOUT_S};
	int fd = socket_of(f);
	char end;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
	shutdown(fd, SHUT_WR);
	if (recv(fd, &end, sizeof end, 0) != 0)
		fail("the sink did not receive the rest of flow %u in %d s", f->number, FINISH_TIMEOUT_S);
	close(fd);
}
