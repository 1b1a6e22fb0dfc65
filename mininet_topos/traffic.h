// SPDX-License-Identifier: Apache-2.0
// What every role of the lab's traffic program shares: records, sockets, connections, signals.
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull
#define REPORT_EVERY_MS 100
#define QUERY_TIMEOUT_MS 30000
#define CONNECT_TIMEOUT_S 10
#define FINISH_TIMEOUT_S 8
#define MAX_EVENTS 64
#define RECORD_BYTES (64 * 1024)
#define CHUNK_BYTES (64 * 1024)
#define MAX_RESPONSE_BYTES (64u << 20)

struct options {
    const char *host, *cc, *to, *workers, *schedstat;
    int port;
    uint32_t size_bytes, queries, gap_ms;
};

struct request { // big endian on the wire
    uint32_t size_bytes;
};

struct conn {
    int fd;
    char peer[64];
    struct request request;
    size_t request_have;  // bytes of `request` read so far
    uint64_t to_send;     // response bytes still to be written
    uint64_t to_read;     // response bytes still to come
    uint64_t done_ns;
    struct conn *next, *prev;
};

static struct options opt = {.host = "?", .cc = "reno", .queries = 1};
static const char zeros[CHUNK_BYTES];
static int epoll_fd, signal_fd;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static char record[RECORD_BYTES];
static size_t record_len;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(record + record_len, sizeof record - record_len, format, args);
    va_end(args);
    if (n > 0)
        record_len += (size_t)n;
    if (record_len >= sizeof record) {
        fprintf(stderr, "%s: record too long\n", opt.host);
        exit(1);
    }
}

static void begin(const char *event)
{
    record_len = 0;
    put("{\"host\":\"%s\",\"event\":\"%s\",\"t_ns\":%llu", opt.host, event, (unsigned long long)now_ns());
}

static void end_record(void)
{
    put("}\n");
    if (write(STDOUT_FILENO, record, record_len) != (ssize_t)record_len) {
        fprintf(stderr, "%s: cannot write a record: %s\n", opt.host, strerror(errno));
        exit(1);
    }
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    begin("error");
    put(",\"error\":\"%s\"", text);
    end_record();
    exit(1);
}

static void put_tcp_info(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return;
    put(",\"bytes_acked\":%llu,\"bytes_received\":%llu,\"total_retrans\":%u,\"cwnd\":%u,\"snd_wnd\":%u,"
        "\"rwnd_limited_us\":%llu,\"busy_us\":%llu,\"rtt_us\":%u,\"min_rtt_us\":%u,\"rto_us\":%u,\"mss\":%u",
        (unsigned long long)info.tcpi_bytes_acked, (unsigned long long)info.tcpi_bytes_received,
        info.tcpi_total_retrans, info.tcpi_snd_cwnd, info.tcpi_snd_wnd,
        (unsigned long long)info.tcpi_rwnd_limited, (unsigned long long)info.tcpi_busy_time, info.tcpi_rtt,
        info.tcpi_min_rtt, info.tcpi_rto, info.tcpi_snd_mss);
}

static void report_conn(const char *event, const struct conn *c)
{
    begin(event);
    put(",\"peer\":\"%s\"", c->peer);
    put_tcp_info(c->fd);
    end_record();
}

static int tcp_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0)
        fail("no socket: %s", strerror(errno));
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, opt.cc, (socklen_t)strlen(opt.cc)) < 0)
        fail("congestion control %s: %s", opt.cc, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void watch(int fd, void *data, uint32_t events, int op)
{
    struct epoll_event e = {.events = events, .data.ptr = data};
    if (epoll_ctl(epoll_fd, op, fd, &e) < 0)
        fail("epoll: %s", strerror(errno));
}

static void set_nonblocking(int fd)
{
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        fail("fcntl: %s", strerror(errno));
}

static int listen_on_port(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    int fd = tcp_socket(), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&any, sizeof any) < 0 || listen(fd, 1024) < 0)
        fail("port %d: %s", opt.port, strerror(errno));
    set_nonblocking(fd);
    return fd;
}

// Blocks until the handshake is done, then leaves the socket non-blocking.
static int connect_to(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    struct timeval patience = {.tv_sec = CONNECT_TIMEOUT_S};
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        fail("not an address: %.40s", address);
    int fd = tcp_socket();
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    uint64_t until = now_ns() + CONNECT_TIMEOUT_S * NS_PER_S;
    int result;
    do // nobody answers ARP before the controller knows its network
        result = connect(fd, (struct sockaddr *)&to, sizeof to);
    while (result < 0 && errno == EHOSTUNREACH && now_ns() < until);
    if (result < 0)
        fail("no connection to %s:%d: %s", address, opt.port,
             errno == EINPROGRESS ? "no answer" : strerror(errno));
    set_nonblocking(fd);
    return fd;
}

// Waits for events; returns their number, or -1 once SIGTERM has come.
static int wait_events(struct epoll_event *events, int timeout_ms)
{
    int n = epoll_wait(epoll_fd, events, MAX_EVENTS, timeout_ms);
    if (n < 0 && errno != EINTR)
        fail("epoll: %s", strerror(errno));
    for (int i = 0; i < n; i++)
        if (events[i].data.ptr == &signal_fd)
            return -1;
    return n < 0 ? 0 : n;
}

static struct conn *accept_conn(int listener, struct conn *list)
{
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
    if (fd < 0)
        return list;
    struct conn *c = calloc(1, sizeof *c);
    if (!c)
        fail("no memory");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    inet_ntop(AF_INET, &from.sin_addr, c->peer, sizeof c->peer);
    c->fd = fd;
    c->next = list;
    if (list)
        list->prev = c;
    watch(fd, c, EPOLLIN, EPOLL_CTL_ADD);
    return c;
}

static struct conn *close_conn(struct conn *list, struct conn *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        list = c->next;
    if (c->next)
        c->next->prev = c->prev;
    close(c->fd);
    free(c);
    return list;
}

// Reads and forgets; returns the bytes, 0 if there were none, -1 at the end of the connection.
static ssize_t discard(int fd, size_t at_most)
{
    ssize_t n = recv(fd, NULL, at_most, MSG_TRUNC);
    if (n > 0)
        return n;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

// Writes what the socket takes; returns the bytes, or -1 when the peer is gone.
static ssize_t write_zeros(int fd, uint64_t at_most)
{
    size_t n = at_most < sizeof zeros ? (size_t)at_most : sizeof zeros;
    ssize_t sent = send(fd, zeros, n, MSG_NOSIGNAL);
    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

static void take_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); // ends with the lab, also when that is killed
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    if (epoll_fd < 0 || signal_fd < 0)
        fail("epoll or signalfd: %s", strerror(errno));
    watch(signal_fd, &signal_fd, EPOLLIN, EPOLL_CTL_ADD);
}
