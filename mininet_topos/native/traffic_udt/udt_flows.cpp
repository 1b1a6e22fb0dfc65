// SPDX-License-Identifier: Apache-2.0
// UDT as the transport of flows. The handle of a flow is its UDT socket. A timer looks at all sockets.
//
// UDT does not report that the peer has read all. A flow is complete when the peer's UDT has acknowledged all of it.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <vector>

#include "udt_sockets.h"

extern "C" {
#include "transport.h"
}

#define PAYLOAD_BYTES 1456 // of a packet of 1500 bytes: without IP 20, UDP 8, UDT 16
#define CHUNK_BYTES (64 * 1024)
#define US_PER_MS 1000
#define CONNECT_TIMEOUT_S 5
#define FIRST_CHANCE_MS 1 // until the timer fires for the first time

static std::vector<struct flow *> begun;
static int timer_fd = -1;

static UDTSOCKET socket_of(const struct flow *f)
{
	return (UDTSOCKET)f->handle;
}

static void start_timer(void)
{
	struct itimerspec every = {};
	every.it_value.tv_nsec = FIRST_CHANCE_MS * NS_PER_MS;
	every.it_interval.tv_nsec = POLL_MS * NS_PER_MS;
	timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (timer_fd < 0 || timerfd_settime(timer_fd, 0, &every, NULL) < 0)
		fail("timerfd: %s", strerror(errno));
	events_watch(timer_fd, &timer_fd, EPOLLIN, EPOLL_CTL_ADD);
}

void transport_connect(struct flow *f)
{
	if (!options.rate_bps)
		fail("a flow over UDT needs --rate-bps");
	if (timer_fd < 0) {
		UDT::startup();
		atexit([] { UDT::cleanup(); }); // the peers are told that the connections have ended
		start_timer();
	}
	struct sockaddr_in to = udt_address(f->peer, options.port);
	UDTSOCKET udt = udt_socket();
	if (UDT::connect(udt, (struct sockaddr *)&to, sizeof to) == UDT::ERROR)
		fail("cannot connect to %s:%d: %s", f->peer, options.port, UDT::getlasterror().getErrorMessage());
	f->handle = udt;
	begun.push_back(f);
}

// The packets that UDT holds: not sent, or not acknowledged.
static uint64_t held_pkts(const struct flow *f)
{
	int pkts = 0, len = sizeof pkts;
	if (UDT::getsockopt(socket_of(f), 0, UDT_SNDDATA, &pkts, &len) == UDT::ERROR)
		fail("flow %u to %s ended: %s", f->number, f->peer, UDT::getlasterror().getErrorMessage());
	return (uint64_t)pkts;
}

static UDT::TRACEINFO figures_of(const struct flow *f)
{
	UDT::TRACEINFO figures;
	if (UDT::perfmon(socket_of(f), &figures, false) == UDT::ERROR)
		fail("flow %u to %s ended: %s", f->number, f->peer, UDT::getlasterror().getErrorMessage());
	return figures;
}

void transport_put_figures(const struct flow *f)
{
	UDT::TRACEINFO figures = figures_of(f);
	uint64_t held_bytes = held_pkts(f) * PAYLOAD_BYTES;
	record_put(
		",\"bytes_acked\":%llu,\"total_retrans\":%d,\"rate_pps\":%.0f,\"rtt_us\":%.0f,\"cwnd\":%d,\"mss\":%d",
		(unsigned long long)(held_bytes < f->taken_bytes ? f->taken_bytes - held_bytes : 0),
		figures.pktRetransTotal, 1e6 / figures.usPktSndPeriod, figures.msRTT * US_PER_MS,
		figures.pktCongestionWindow, PAYLOAD_BYTES);
}

// Gives UDT as much of a flow as lasts until the next time.
static void fill(struct flow *f)
{
	static const char zeros[CHUNK_BYTES] = {};
	uint64_t most_bytes = flow_most_unsent_bytes();
	uint64_t in_flight = (uint64_t)figures_of(f).pktFlightSize, held = held_pkts(f);
	uint64_t unsent = held > in_flight ? (held - in_flight) * PAYLOAD_BYTES : 0;
	while (f->state == FLOW_SENDING && unsent < most_bytes) {
		int bytes = f->to_send < CHUNK_BYTES ? (int)f->to_send : CHUNK_BYTES;
		int sent = UDT::send(socket_of(f), zeros, bytes, 0);
		if (sent == UDT::ERROR && UDT::getlasterror().getErrorCode() == CUDTException::EASYNCSND)
			return;
		if (sent == UDT::ERROR)
			fail("flow %u to %s ended: %s", f->number, f->peer, UDT::getlasterror().getErrorMessage());
		flow_take(f, (uint64_t)sent);
		unsent += (uint64_t)sent;
	}
}

static void advance(struct flow *f)
{
	UDTSTATUS status = UDT::getsockstate(socket_of(f));
	if (f->state == FLOW_CONNECTING && status == CONNECTED)
		flow_connected(f);
	if (f->state == FLOW_CONNECTING && now_ns() - f->start_ns > CONNECT_TIMEOUT_S * NS_PER_S)
		fail("cannot connect to %s:%d: no answer in %d s", f->peer, options.port, CONNECT_TIMEOUT_S);
	if (status > CONNECTED)
		fail("flow %u to %s ended: UDT's state is %d", f->number, f->peer, status);
	if (f->state == FLOW_SENDING)
		fill(f);
	if (f->state == FLOW_FINISHING && held_pkts(f) == 0) {
		flow_complete(f, now_ns());
		UDT::close(socket_of(f));
	}
}

void transport_advance(const struct epoll_event *event)
{
	uint64_t expirations;
	(void)event;
	if (read(timer_fd, &expirations, sizeof expirations) < 0)
		return;
	for (struct flow *f : begun)
		if (f->state != FLOW_DONE)
			advance(f);
}

void transport_finish(struct flow *f)
{
	uint64_t until_ns = now_ns() + FINISH_TIMEOUT_S * NS_PER_S;
	while (held_pkts(f)) {
		if (now_ns() > until_ns)
			fail("the sink did not receive the rest of flow %u in %d s", f->number, FINISH_TIMEOUT_S);
		usleep(POLL_MS * US_PER_MS);
	}
	UDT::close(socket_of(f));
}
