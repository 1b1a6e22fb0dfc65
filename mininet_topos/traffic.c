// SPDX-License-Identifier: Apache-2.0
// The lab's traffic: partition/aggregate queries (root, worker) and long flows (source, sink).
//
//   traffic worker --host NAME --port P             answers each request at once, on standing connections
//   traffic root   --host NAME --port P --size B --queries Q --gap-ms G --workers "h1=10.0.0.2[/CC] ..."
//                  [--period-ms P]                 from one query's begin to the next one's, in place of the gap
//                  [--fresh]                       connects anew for each query
//                  [--schedstat FILE]              of the switch's thread: how long it waited for a CPU is recorded
//   traffic sink   --host NAME --port P             reads and forgets; with --cc A,B on ports P and P + 1
//   traffic source --host NAME --port P --to ADDR   writes as fast as TCP lets it
//   traffic flows  --host NAME --port P --plan FILE --start-ns T    the flows that the plan has for this host
//
// Every role takes --cc (congestion control of its sockets, default reno) and --sample-ms (how often flows that
// are being sent, and what a sink has got, are recorded; a sink takes 0 for never). Each record is one JSON line, written to stdout by a single write(2), so that many processes may append to one file.
// Times are CLOCK_MONOTONIC nanoseconds. SIGTERM ends a role orderly: last records, then exit 0.
#define _GNU_SOURCE
#include "traffic.h"
#include "traffic_flows.h"

#include <getopt.h>

// One request is answered before the next is read. Returns 0, or -1 when the connection has ended.
static int serve(struct conn *c)
{
    for (;;) {
        while (c->to_send) {
            ssize_t n = write_zeros(c->fd, c->to_send);
            if (n < 0)
                return -1;
            if (n == 0) {
                watch(c->fd, c, EPOLLOUT, EPOLL_CTL_MOD);
                return 0;
            }
            c->to_send -= (uint64_t)n;
            if (c->to_send == 0)
                watch(c->fd, c, EPOLLIN, EPOLL_CTL_MOD);
        }
        ssize_t n = recv(c->fd, (char *)&c->request + c->request_have, sizeof c->request - c->request_have, 0);
        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
        c->request_have += (size_t)n;
        if (c->request_have < sizeof c->request)
            continue;
        c->request_have = 0;
        c->to_send = ntohl(c->request.size_bytes);
        if (c->to_send > MAX_RESPONSE_BYTES)
            return -1;
    }
}

static int run_worker(void)
{
    struct epoll_event events[MAX_EVENTS];
    struct conn *list = NULL;
    int listener = listen_on_port(opt.port, opt.cc[0]), n;
    watch(listener, NULL, EPOLLIN, EPOLL_CTL_ADD);
    begin("listening");
    end_record();
    while ((n = wait_events(events, -1)) >= 0)
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (!c)
                list = accept_conn(listener, list);
            else if (serve(c) < 0) {
                report_conn("closed", c);
                list = close_conn(list, c);
            }
        }
    for (struct conn *c = list; c; c = c->next)
        report_conn("closed", c);
    return 0;
}

static int run_sink(void)
{
    struct epoll_event events[MAX_EVENTS];
    struct conn *list = NULL;
    uint64_t bytes = 0, next = 0;
    int listeners[MOST_CCS], n;
    for (int i = 0; i < MOST_CCS && opt.cc[i]; i++) {
        listeners[i] = listen_on_port(opt.port + i, opt.cc[i]);
        watch(listeners[i], &listeners[i], EPOLLIN, EPOLL_CTL_ADD);
    }
    begin("listening");
    end_record();
    while ((n = wait_events(events, list ? 10 : -1)) >= 0) {
        for (int i = 0; i < n; i++) {
            int *listener = events[i].data.ptr;
            if (listener >= listeners && listener < listeners + MOST_CCS) {
                list = accept_conn(*listener, list);
                continue;
            }
            struct conn *c = events[i].data.ptr;
            ssize_t got = discard(c->fd, 1 << 20);
            if (got < 0)
                list = close_conn(list, c);
            else
                bytes += (uint64_t)got;
        }
        uint64_t now = now_ns();
        if (list && opt.sample_ms && now >= next) {
            begin("goodput");
            put(",\"bytes\":%llu", (unsigned long long)bytes);
            end_record();
            next = now + REPORT_EVERY_MS * NS_PER_MS;
        }
    }
    return 0;
}

// The workers that were named; their words are kept.
static struct conn *parse_workers(uint32_t *count)
{
    char *list = strdup(opt.workers), *save = NULL;
    struct conn *workers = NULL;
    uint32_t n = 0;
    for (char *word = strtok_r(list, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *address = strchr(word, '=');
        if (!address)
            fail("--workers: want name=address, not %.40s", word);
        *address++ = 0;
        workers = realloc(workers, (n + 1) * sizeof *workers);
        if (!workers)
            fail("no memory");
        char *cc = strchr(address, '/');
        if (cc)
            *cc++ = 0;
        workers[n] = (struct conn){.fd = -1, .address = address, .cc = cc ? cc : opt.cc[0]};
        snprintf(workers[n].peer, sizeof workers[n].peer, "%s", word);
        n++;
    }
    *count = n;
    return workers;
}

static void ask(const struct conn *c)
{
    struct request request = {.size_bytes = htonl(opt.size_bytes)};
    if (send(c->fd, &request, sizeof request, MSG_NOSIGNAL) != sizeof request)
        fail("request to %s: %s", c->peer, strerror(errno));
}

// Asks a worker on its standing connection, or opens one to do so.
static void begin_asking(struct conn *c)
{
    c->to_read = opt.size_bytes;
    if (!opt.fresh) {
        ask(c);
        return;
    }
    c->fd = begin_connecting(c->address, c->cc);
    c->connecting = true;
    watch(c->fd, c, EPOLLOUT, EPOLL_CTL_ADD);
}

static void ask_connected(struct conn *c)
{
    require_connected(c->fd, c->address);
    c->connecting = false;
    watch(c->fd, c, EPOLLIN, EPOLL_CTL_MOD);
    ask(c);
}

static void read_response(struct conn *c)
{
    ssize_t n = discard(c->fd, 1 << 20);
    if (n < 0)
        fail("%s closed its connection", c->peer);
    if ((uint64_t)n > c->to_read)
        fail("%s sent more than was asked for", c->peer);
    c->to_read -= (uint64_t)n;
    if (n > 0 && c->to_read == 0)
        c->done_ns = now_ns();
}

// How long the switch's thread has been ready to run without a CPU, since its start. 0 where it is not known.
static unsigned long long switch_waited_ns(void)
{
    static int fd = -1;
    char line[128] = "";
    unsigned long long waited_ns;
    if (!opt.schedstat)
        return 0;
    if (fd < 0)
        fd = open(opt.schedstat, O_RDONLY | O_CLOEXEC);
    if (pread(fd, line, sizeof line - 1, 0) < 0 || sscanf(line, "%*u %llu", &waited_ns) != 1)
        fail("--schedstat: cannot read %s: %s", opt.schedstat, strerror(errno));
    return waited_ns;
}

// Sends all requests, waits for all responses. Returns -1 if SIGTERM came first.
static int query(struct conn *workers, uint32_t count, uint32_t number)
{
    struct epoll_event events[MAX_EVENTS];
    unsigned long long waited = switch_waited_ns();
    uint64_t start = now_ns(), last = start;
    for (uint32_t i = 0; i < count; i++)
        begin_asking(&workers[i]);
    for (uint32_t left = count; left;) {
        int n = wait_events(events, 1000);
        if (n < 0)
            return -1;
        if (now_ns() - start > QUERY_TIMEOUT_MS * NS_PER_MS)
            fail("query %u not complete after %d s: %u responses missing", number, QUERY_TIMEOUT_MS / 1000, left);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (c->connecting) {
                ask_connected(c);
                continue;
            }
            read_response(c);
            if (c->to_read == 0) {
                left--;
                if (opt.fresh)
                    close(c->fd);
            }
        }
    }
    waited = switch_waited_ns() - waited;
    begin("query");
    put(",\"query\":%u,\"start_ns\":%llu,\"workers_ms\":[", number, (unsigned long long)start);
    for (uint32_t i = 0; i < count; i++) {
        put("%s%.3f", i ? "," : "", (double)(workers[i].done_ns - start) / NS_PER_MS);
        if (workers[i].done_ns > last)
            last = workers[i].done_ns;
    }
    put("],\"qct_ms\":%.3f,\"switch_waited_ms\":%.3f", (double)(last - start) / NS_PER_MS,
        (double)waited / NS_PER_MS);
    end_record();
    return 0;
}

// Waits between queries; no data is expected. Returns -1 if SIGTERM came.
static int pause_until(uint64_t until)
{
    struct epoll_event events[MAX_EVENTS];
    for (uint64_t now = now_ns(); now < until; now = now_ns()) {
        int n = wait_events(events, (int)((until - now) / NS_PER_MS) + 1);
        if (n < 0)
            return -1;
        if (n > 0)
            fail("a worker closed its connection or spoke unasked");
    }
    return 0;
}

static int run_root(void)
{
    uint32_t count;
    if (!opt.workers || opt.size_bytes == 0 || opt.size_bytes > MAX_RESPONSE_BYTES)
        fail("root needs --workers and --size 1..%u", MAX_RESPONSE_BYTES);
    struct conn *workers = parse_workers(&count);
    for (uint32_t i = 0; i < count && !opt.fresh; i++) {
        workers[i].fd = connect_to(workers[i].address, workers[i].cc);
        watch(workers[i].fd, &workers[i], EPOLLIN, EPOLL_CTL_ADD);
    }
    begin("connected");
    put(",\"workers\":%u", count);
    end_record();
    uint64_t begin_ns = now_ns() + opt.gap_ms * NS_PER_MS;
    for (uint32_t i = 0; i < opt.queries; i++) {
        if (pause_until(begin_ns) < 0 || query(workers, count, i) < 0)
            return 0;
        begin_ns = opt.period_ms ? begin_ns + opt.period_ms * NS_PER_MS : now_ns() + opt.gap_ms * NS_PER_MS;
    }
    begin("done");
    end_record();
    for (uint32_t i = 0; i < count && !opt.fresh; i++)
        close(workers[i].fd);
    free(workers);
    return 0;
}

static uint32_t number(const char *name, const char *text, uint32_t most)
{
    char *rest;
    unsigned long value = strtoul(text, &rest, 10);
    if (*text < '0' || *text > '9' || *rest || value > most)
        fail("--%s: want a number from 0 to %u", name, most);
    return (uint32_t)value;
}

static void split_ccs(char *text)
{
    char *save = NULL;
    int n = 0;
    for (char *cc = strtok_r(text, ",", &save); cc; cc = strtok_r(NULL, ",", &save)) {
        if (n == MOST_CCS)
            fail("--cc: more than %d", MOST_CCS);
        opt.cc[n++] = cc;
    }
}

static void parse(int argc, char **argv)
{
    static const struct option names[] = {
        {"host", 1, 0, 'h'}, {"cc", 1, 0, 'c'},   {"to", 1, 0, 't'},      {"workers", 1, 0, 'w'},
        {"port", 1, 0, 'p'}, {"size", 1, 0, 's'}, {"queries", 1, 0, 'q'}, {"gap-ms", 1, 0, 'g'},
        {"schedstat", 1, 0, 'd'}, {"plan", 1, 0, 'l'}, {"start-ns", 1, 0, 'n'}, {"sample-ms", 1, 0, 'm'},
        {"period-ms", 1, 0, 'e'}, {"fresh", 0, 0, 'f'}, {0, 0, 0, 0},
    };
    for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (o) {
        case 'h': opt.host = optarg; break;
        case 'c': split_ccs(optarg); break;
        case 't': opt.to = optarg; break;
        case 'w': opt.workers = optarg; break;
        case 'p': opt.port = (int)number("port", optarg, 65535); break;
        case 's': opt.size_bytes = number("size", optarg, MAX_RESPONSE_BYTES); break;
        case 'q': opt.queries = number("queries", optarg, 1u << 30); break;
        case 'g': opt.gap_ms = number("gap-ms", optarg, 1u << 20); break;
        case 'e': opt.period_ms = number("period-ms", optarg, 1u << 20); break;
        case 'd': opt.schedstat = optarg; break;
        case 'l': opt.plan = optarg; break;
        case 'n': opt.start_ns = strtoull(optarg, NULL, 10); break;
        case 'm': opt.sample_ms = number("sample-ms", optarg, 60000); break;
        case 'f': opt.fresh = true; break;
        default: exit(2);
        }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } roles[] = {{"worker", run_worker}, {"root", run_root}, {"sink", run_sink}, {"source", run_source},
                 {"flows", run_flows}};
    if (argc < 2) {
        fprintf(stderr, "usage: traffic worker|root|sink|source|flows --host NAME --port P ...\n");
        return 2;
    }
    parse(argc - 1, argv + 1);
    take_signals();
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(argv[1], roles[i].name))
            return roles[i].run();
    fprintf(stderr, "traffic: no such role: %s\n", argv[1]);
    return 2;
}
