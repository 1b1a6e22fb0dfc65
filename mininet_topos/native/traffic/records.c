// SPDX-License-Identifier: Apache-2.0
#include "records.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

#define MAX_RECORD_BYTES (64 * 1024)

static char record[MAX_RECORD_BYTES];
static size_t record_len;

uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void record_put(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int len = vsnprintf(record + record_len, sizeof record - record_len, format, args);
	va_end(args);
	if (len > 0)
		record_len += (size_t)len;
	if (record_len >= sizeof record) {
		fprintf(stderr, "%s: record too long\n", options.host);
		exit(1);
	}
}

void record_begin(const char *event)
{
	record_len = 0;
	record_put("{\"host\":\"%s\",\"event\":\"%s\",\"t_ns\":%llu", options.host, event,
		   (unsigned long long)now_ns());
}

void record_end(void)
{
	record_put("}\n");
	if (write(STDOUT_FILENO, record, record_len) != (ssize_t)record_len) {
		fprintf(stderr, "%s: cannot write a record: %s\n", options.host, strerror(errno));
		exit(1);
	}
}

void record_goodput(int port, uint64_t received_bytes, uint32_t every_ms)
{
	static uint64_t next_ns;
	uint64_t now = now_ns();
	if (!every_ms || now < next_ns)
		return;
	next_ns = now + every_ms * NS_PER_MS;
	record_begin("goodput");
	record_put(",\"port\":%d,\"bytes\":%llu", port, (unsigned long long)received_bytes);
	record_end();
}

void fail(const char *format, ...)
{
	char text[256];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	record_begin("error");
	record_put(",\"error\":\"%s\"", text);
	record_end();
	exit(1);
}

void record_tcp_info(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return;
	record_put(",\"bytes_acked\":%llu,\"bytes_received\":%llu,\"total_retrans\":%u,\"cwnd\":%u,\"snd_wnd\":%u,"
		   "\"rwnd_limited_us\":%llu,\"busy_us\":%llu,\"rtt_us\":%u,\"min_rtt_us\":%u,\"rto_us\":%u,\"mss\":%u,"
		   "\"delivered\":%u,\"delivered_ce\":%u,\"sacked\":%u",
		   (unsigned long long)info.tcpi_bytes_acked, (unsigned long long)info.tcpi_bytes_received,
		   info.tcpi_total_retrans, info.tcpi_snd_cwnd, info.tcpi_snd_wnd,
		   (unsigned long long)info.tcpi_rwnd_limited, (unsigned long long)info.tcpi_busy_time, info.tcpi_rtt,
		   info.tcpi_min_rtt, info.tcpi_rto, info.tcpi_snd_mss, info.tcpi_delivered, info.tcpi_delivered_ce,
		   info.tcpi_sacked);
}
