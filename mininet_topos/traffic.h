// SPDX-License-Identifier: Apache-2.0
// What every role of the lab's traffic program shares: records, sockets, connections, signals.
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
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

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull
#define REPORT_EVERY_MS 100
#define MOST_CCS 4
#define QUERY_TIMEOUT_MS 30000
#define CONNECT_TIMEOUT_S 10
#define FINISH_TIMEOUT_S 8
#define MAX_EVENTS 64
#define RECORD_BYTES (64 * 1024)
#define CHUNK_BYTES (64 * 1024)
#define MAX_RESPONSE_BYTES (64u << 20)

struct options {
    const char *host, *to, *workers, *schedstat, *plan;
    const char *cc[MOST_CCS]; // a sink listens with the i-th at port + i; all else takes the first
    int port;
    uint32_t size_bytes, queries, gap_ms, period_ms, sample_ms;
    uint64_t start_ns; // of a plan's flows, CLOCK_MONOTONIC
    bool fresh;
};

struct request { // big endian on the wire
    uint32_t size_bytes;
};

struct conn {
    int fd;
    char peer[64];
    const char *address, *cc; // of a root's worker
    bool connecting;
    struct request request;
    size_t request_have;  // bytes of `request` read so far
    uint64_t to_send;     // response bytes still to be written
    uint64_t to_read;     // response bytes still to come
    uint64_t done_ns;
    struct conn *next, *prev;
};

static struct options opt = {.host = "?", .cc = {"reno"}, .queries = 1, .sample_ms = REPORT_EVERY_MS};
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
        "\"rwnd_limited_us\":%llu,\"busy_us\":%llu,\"rtt_us\":%u,\"min_rtt_us\":%u,\"rto_us\":%u,\"mss\":%u,"
        "\"delivered\":%u,\"delivered_ce\":%u",
        (unsigned long long)info.tcpi_bytes_acked, (unsigned long long)info.tcpi_bytes_received,
        info.tcpi_total_retrans, info.tcpi_snd_cwnd, info.tcpi_snd_wnd,
        (unsigned long long)info.tcpi_rwnd_limited, (unsigned long long)info.tcpi_busy_time, info.tcpi_rtt,
        info.tcpi_min_rtt, info.tcpi_rto, info.tcpi_snd_mss, info.tcpi_delivered, info.tcpi_delivered_ce);
}

static void report_conn(const char *event, const struct conn *c)
{
    begin(event);
    put(",\"peer\":\"%s\"", c->peer);
    put_tcp_info(c->fd);
    end_record();
}

static int tcp_socket(const char *cc)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0)
        fail("no socket: %s", strerror(errno));
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) < 0)
        fail("congestion control %s: %s", cc, strerror(errno));
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

static int listen_on_port(int port, const char *cc)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = tcp_socket(cc), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&any, sizeof any) < 0 || listen(fd, 1024) < 0)
        fail("port %d: %s", port, strerror(errno));
    set_nonblocking(fd);
    return fd;
}

// A non-blocking socket whose handshake is under way.
static int begin_connecting(const char *address, const char *cc)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        fail("not an address: %.40s", address);
    int fd = tcp_socket(cc);
    set_nonblocking(fd);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
        fail("no connection to %s:%d: %s", address, opt.port, strerror(errno));
    return fd;
}

// What became of a handshake: 0, or an error of errno.
static int connect_error(int fd)
{
    int error = 0;
    socklen_t len = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    return error;
}

static void require_connected(int fd, const char *address)
{
    int error = connect_error(fd);
    if (error)
        fail("no connection to %s:%d: %s", address, opt.port, strerror(error));
}

// Waits until the handshake is done; again and again while nobody answers ARP, as before the controller knows
// its network.
static int connect_to(const char *address, const char *cc)
{
    uint64_t until = now_ns() + CONNECT_TIMEOUT_S * NS_PER_S;
    for (;;) {
        struct pollfd ready = {.fd = begin_connecting(address, cc), .events = POLLOUT};
        if (poll(&ready, 1, CONNECT_TIMEOUT_S * 1000) == 0)
            fail("no connection to %s:%d: no answer", address, opt.port);
        int error = connect_error(ready.fd);
        if (!error)
            return ready.fd;
        if (error != EHOSTUNREACH || now_ns() > until)
            fail("no connection to %s:%d: %s", address, opt.port, strerror(error));
        close(ready.fd);
    }
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
