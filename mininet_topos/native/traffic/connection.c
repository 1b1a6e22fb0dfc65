// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events.h"
#include "records.h"

struct connection *connection_accept(int listener, struct connection *list)
{
	struct sockaddr_in from;
	socklen_t len = sizeof from;
	int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			fail("cannot accept a connection: %s", strerror(errno));
		return list;
	}
	struct connection *connection = calloc(1, sizeof *connection);
	if (!connection)
		fail("out of memory");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	inet_ntop(AF_INET, &from.sin_addr, connection->peer, sizeof connection->peer);
	connection->fd = fd;
	connection->next = list;
	if (list)
		list->prev = connection;
	events_watch(fd, connection, EPOLLIN, EPOLL_CTL_ADD);
	return connection;
}

struct connection *connection_close(struct connection *list, struct connection *connection)
{
	if (connection->prev)
		connection->prev->next = connection->next;
	else
		list = connection->next;
	if (connection->next)
		connection->next->prev = connection->prev;
	close(connection->fd);
	free(connection);
	return list;
}

void connection_report(const char *event, const struct connection *connection)
{
	record_begin(event);
	record_put(",\"peer\":\"%s\"", connection->peer);
	record_tcp_info(connection->fd);
	record_end();
}
