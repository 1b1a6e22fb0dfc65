// SPDX-License-Identifier: Apache-2.0
#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "options.h"
#include "records.h"

#define CONNECT_TIMEOUT_S 10
#define LISTEN_BACKLOG 1024

#define SOL_WEIR 0x57656972 // as in transports/deadline.py
#define WEIR_DEADLINE 1

static const char zeros[CHUNK_BYTES];

static int tcp_socket(const char *cc)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	if (fd < 0)
		fail("cannot create a socket: %s", strerror(errno));
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) < 0)
		fail("congestion control %s: %s", cc, strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

static void set_nonblocking(int fd)
{
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
		fail("fcntl: %s", strerror(errno));
}

int listen_on_port(int port, const char *cc)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = tcp_socket(cc), one = 1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (options.mss_bytes &&
	    setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &options.mss_bytes, sizeof options.mss_bytes) < 0)
		fail("MSS %u: %s", options.mss_bytes, strerror(errno));
	if (bind(fd, (struct sockaddr *)&any, sizeof any) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
		fail("cannot listen on port %d: %s", port, strerror(errno));
	set_nonblocking(fd);
	return fd;
}

int begin_connecting(const char *address, const char *cc)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		fail("not an IPv4 address: %.40s", address);
	int fd = tcp_socket(cc);
	set_nonblocking(fd);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
		fail("cannot connect to %s:%d: %s", address, options.port, strerror(errno));
	return fd;
}

// The result of a handshake: 0, or an errno.
static int connect_error(int fd)
{
	int error = 0;
	socklen_t len = sizeof error;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	return error;
}

void require_connected(int fd, const char *address)
{
	int error = connect_error(fd);
	if (error)
		fail("cannot connect to %s:%d: %s", address, options.port, strerror(error));
}

int connect_to(const char *address, const char *cc)
{
	uint64_t deadline_ns = now_ns() + CONNECT_TIMEOUT_S * NS_PER_S;
	for (;;) {
		struct pollfd ready = {.fd = begin_connecting(address, cc), .events = POLLOUT};
		if (poll(&ready, 1, CONNECT_TIMEOUT_S * 1000) == 0)
			fail("cannot connect to %s:%d: no answer in %d s", address, options.port, CONNECT_TIMEOUT_S);
		int error = connect_error(ready.fd);
		if (!error)
			return ready.fd;
		if (error != EHOSTUNREACH || now_ns() > deadline_ns)
			fail("cannot connect to %s:%d: %s", address, options.port, strerror(error));
		close(ready.fd);
	}
}

void set_deadline(int fd, uint64_t size_bytes, uint64_t left_us)
{
	uint64_t option[] = {size_bytes, left_us};
	if (setsockopt(fd, SOL_WEIR, WEIR_DEADLINE, option, sizeof option) < 0 && errno != ENOPROTOOPT)
		fail("cannot set a deadline of %llu us: %s", (unsigned long long)left_us, strerror(errno));
}

// MSG_TRUNC: the kernel discards the bytes, they are not copied.
ssize_t discard(int fd, size_t at_most)
{
	ssize_t received = recv(fd, NULL, at_most, MSG_TRUNC);
	if (received > 0)
		return received;
	return received < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

ssize_t write_zeros(int fd, uint64_t at_most)
{
	size_t len = at_most < sizeof zeros ? (size_t)at_most : sizeof zeros;
	ssize_t sent = send(fd, zeros, len, MSG_NOSIGNAL);
	if (sent >= 0)
		return sent;
	return errno == EAGAIN || errno == EINTR ? 0 : -1;
}
