// SPDX-License-Identifier: Apache-2.0
// Planned flows: each on a connection of its own, begun at its time, sampled while it lasts. A flow is over when
// the peer has read it all and closed; an endless one goes on until SIGTERM.
#pragma once
#include "traffic.h"

#include <inttypes.h>

#define ENDLESS UINT64_MAX
#define UNSENT_BYTES (2 * CHUNK_BYTES)

enum flow_state { WAITING, CONNECTING, SENDING, FINISHING, DONE };

struct flow {
    enum flow_state state;
    uint32_t number;    // its line in the plan, from 0
    uint64_t start_ns;  // when it is to begin, then when it began
    struct conn conn;
};

static void report_flow(const char *event, const struct flow *f)
{
    begin(event);
    put(",\"flow\":%u,\"endless\":%s,\"peer\":\"%s\"", f->number, f->conn.to_send == ENDLESS ? "true" : "false",
        f->conn.peer);
    put_tcp_info(f->conn.fd);
    end_record();
}

static void begin_flow(struct flow *f)
{
    int unsent_bytes = UNSENT_BYTES;
    f->conn.fd = begin_connecting(f->conn.peer, opt.cc[0]);
    setsockopt(f->conn.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
    watch(f->conn.fd, f, EPOLLOUT, EPOLL_CTL_ADD);
    f->state = CONNECTING;
    f->start_ns = now_ns();
}

static void end_flow(struct flow *f)
{
    uint64_t now = now_ns();
    char end;
    if (recv(f->conn.fd, &end, sizeof end, 0) != 0)
        fail("flow %u to %s was broken off: %s", f->number, f->conn.peer, strerror(errno));
    begin("flow");
    put(",\"flow\":%u,\"fct_ms\":%.3f", f->number, (double)(now - f->start_ns) / NS_PER_MS);
    put_tcp_info(f->conn.fd);
    end_record();
    close(f->conn.fd);
    f->state = DONE;
}

// Goes on with a flow whose socket is ready.
static void advance(struct flow *f)
{
    if (f->state == FINISHING) {
        end_flow(f);
        return;
    }
    if (f->state == CONNECTING) {
        require_connected(f->conn.fd, f->conn.peer);
        report_flow("connected", f);
        f->state = SENDING;
    }
    ssize_t n = write_zeros(f->conn.fd, f->conn.to_send);
    if (n < 0)
        fail("flow %u to %s ended: %s", f->number, f->conn.peer, strerror(errno));
    if (f->conn.to_send != ENDLESS)
        f->conn.to_send -= (uint64_t)n;
    if (f->conn.to_send == 0) {
        shutdown(f->conn.fd, SHUT_WR);
        watch(f->conn.fd, f, EPOLLIN, EPOLL_CTL_MOD);
        f->state = FINISHING;
    }
}

// Sends what is left, closes, and waits for the peer to have read it all.
static void break_off(struct flow *f)
{
    struct timeval patience = {.tv_sec = FINISH_TIMEOUT_S};
    int fd = f->conn.fd;
    char end;
    report_flow("closed", f);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    shutdown(fd, SHUT_WR);
    if (recv(fd, &end, sizeof end, 0) != 0)
        fail("the sink did not take the rest of flow %u", f->number);
    close(fd);
}

static bool is_open(const struct flow *f)
{
    return f->state == SENDING || f->state == FINISHING;
}

// Begins the flows whose time has come, and returns when the next one's comes.
static uint64_t begin_due(struct flow *flows, uint32_t count, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (flows[i].state == WAITING) {
            if (flows[i].start_ns <= now)
                begin_flow(&flows[i]);
            else if (flows[i].start_ns < next)
                next = flows[i].start_ns;
        }
    return next;
}

static uint32_t unfinished(const struct flow *flows, uint32_t count)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        left += flows[i].state != DONE;
    return left;
}

static int run_all(struct flow *flows, uint32_t count)
{
    struct epoll_event events[MAX_EVENTS];
    uint64_t sample_ns = now_ns();
    while (unfinished(flows, count)) {
        uint64_t now = now_ns(), next = begin_due(flows, count, now);
        if (now >= sample_ns) {
            for (uint32_t i = 0; i < count; i++)
                if (is_open(&flows[i]))
                    report_flow("sample", &flows[i]);
            sample_ns += opt.sample_ms * NS_PER_MS;
        }
        if (next > sample_ns)
            next = sample_ns;
        int n = wait_events(events, next > now ? (int)((next - now) / NS_PER_MS) + 1 : 0);
        if (n < 0)
            break;
        for (int i = 0; i < n; i++)
            advance(events[i].data.ptr);
    }
    for (uint32_t i = 0; i < count; i++)
        if (is_open(&flows[i]))
            break_off(&flows[i]);
    begin("done");
    end_record();
    return 0;
}

// The lines of the plan that are this host's: `host start_us address size_bytes`.
static struct flow *read_plan(uint32_t *count)
{
    FILE *plan = fopen(opt.plan, "r");
    struct flow *flows = NULL;
    char line[160], host[48];
    uint32_t n = 0;
    if (!plan)
        fail("cannot read the plan %.80s: %s", opt.plan, strerror(errno));
    for (uint32_t number = 0; fgets(line, sizeof line, plan); number++) {
        struct flow f = {.number = number};
        uint64_t start_us;
        if (sscanf(line, "%47s %" SCNu64 " %63s %" SCNu64, host, &start_us, f.conn.peer, &f.conn.to_send) != 4)
            fail("line %u of the plan: want host start_us address size_bytes", number + 1);
        if (strcmp(host, opt.host))
            continue;
        f.start_ns = opt.start_ns + start_us * NS_PER_US;
        flows = realloc(flows, (n + 1) * sizeof *flows);
        if (!flows)
            fail("no memory");
        flows[n++] = f;
    }
    fclose(plan);
    *count = n;
    return flows;
}

static int run_flows(void)
{
    uint32_t count;
    if (!opt.plan)
        fail("flows needs --plan FILE");
    struct flow *flows = read_plan(&count);
    return run_all(flows, count);
}

static int run_source(void)
{
    struct flow endless = {.start_ns = now_ns(), .conn.to_send = ENDLESS};
    if (!opt.to)
        fail("source needs --to ADDR");
    snprintf(endless.conn.peer, sizeof endless.conn.peer, "%s", opt.to);
    return run_all(&endless, 1);
}
