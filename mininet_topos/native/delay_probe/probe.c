// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ETH_P_PROBE 0x88b5 // for local experiments (IEEE 802)
#define MAGIC 0x77656972u
#define MAX_LINE_BYTES 1024
#define FIELDS 5
#define BUFFER_BYTES (4 << 20)
#define COPIES 4 // room for duplicates

struct probe {
	struct ethhdr ethernet;
	uint32_t magic;
	uint32_t link;
	uint32_t direction;
	uint32_t sequence;
	int64_t sent_ns;
} __attribute__((packed));

void fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("weir-delay-probe: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

int64_t realtime_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int open_socket(const char *namespace, const char *interface)
{
	const int on = 1, buffer = BUFFER_BYTES;
	int file = open(namespace, O_RDONLY | O_CLOEXEC);
	if (file < 0 || setns(file, CLONE_NEWNET) < 0)
		fail("%s: cannot enter the network namespace: %s", namespace, strerror(errno));
	close(file);
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	struct sockaddr_ll here = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_PROBE),
		.sll_ifindex = (int)if_nametoindex(interface),
	};
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) < 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) < 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) < 0 ||
	    bind(fd, (struct sockaddr *)&here, sizeof here) < 0)
		fail("%s: cannot open a packet socket: %s", interface, strerror(errno));
	return fd;
}

static void open_link(struct link *link, char *line, uint32_t packets)
{
	char *fields[FIELDS], *save = NULL;
	for (int i = 0; i < FIELDS; i++)
		if (!(fields[i] = strtok_r(i ? NULL : line, " \t\n", &save)))
			fail("want NAME HOST_NAMESPACE HOST_INTERFACE SWITCH_NAMESPACE SWITCH_INTERFACE in each line");
	snprintf(link->name, sizeof link->name, "%s", fields[0]);
	link->fds[UP] = open_socket(fields[1], fields[2]);
	link->fds[DOWN] = open_socket(fields[3], fields[4]);
	struct sockaddr_ll own;
	socklen_t len = sizeof own;
	if (getsockname(link->fds[UP], (struct sockaddr *)&own, &len) < 0)
		fail("%s: cannot read its address: %s", fields[2], strerror(errno));
	memcpy(link->address, own.sll_addr, sizeof link->address);
	for (int direction = 0; direction < DIRECTIONS; direction++) {
		struct measured *measured = &link->measured[direction];
		measured->room = COPIES * packets;
		measured->last_sequence = -1;
		if (!(measured->delays_ns = calloc(measured->room, sizeof *measured->delays_ns)))
			fail("no memory for %u packets", packets);
	}
}

struct link *links_open(const char *path, uint32_t packets, size_t *count)
{
	char line[MAX_LINE_BYTES];
	FILE *file = fopen(path, "re");
	struct link *links = NULL;
	if (!file)
		fail("%s: %s", path, strerror(errno));
	for (*count = 0; fgets(line, sizeof line, file); ++*count) {
		if (!(links = realloc(links, (*count + 1) * sizeof *links)))
			fail("no memory for %zu links", *count + 1);
		memset(&links[*count], 0, sizeof *links);
		links[*count].number = (uint32_t)*count;
		open_link(&links[*count], line, packets);
	}
	fclose(file);
	if (!*count)
		fail("%s names no link", path);
	return links;
}

void probe_send(struct link *link, int direction, uint32_t bytes)
{
	uint8_t buffer[ETH_FRAME_LEN] = {0};
	struct measured *measured = &link->measured[direction];
	struct probe probe = {
		.magic = MAGIC,
		.link = link->number,
		.direction = (uint32_t)direction,
		.sequence = measured->sent++,
	};
	// A switch that gets a packet for the host behind the same port drops it. It floods one for an unknown host.
	memcpy(probe.ethernet.h_dest, link->address, sizeof link->address);
	memcpy(probe.ethernet.h_source, link->address, sizeof link->address);
	probe.ethernet.h_proto = htons(ETH_P_PROBE);
	if (bytes < sizeof probe)
		bytes = sizeof probe;
	if (bytes > sizeof buffer)
		bytes = sizeof buffer;
	probe.sent_ns = realtime_ns();
	memcpy(buffer, &probe, sizeof probe);
	if (send(link->fds[direction], buffer, bytes, MSG_DONTWAIT) < 0)
		fail("%s: cannot send: %s", link->name, strerror(errno));
}

static int64_t stamp_of(struct msghdr *message)
{
	struct timespec stamp;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part))
		if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_TIMESTAMPNS) {
			memcpy(&stamp, CMSG_DATA(part), sizeof stamp);
			return stamp.tv_sec * NS_PER_S + stamp.tv_nsec;
		}
	return realtime_ns();
}

void probe_receive(struct link *link, int direction)
{
	struct measured *measured = &link->measured[direction];
	struct probe probe;
	char control[CMSG_SPACE(sizeof(struct timespec))];
	for (;;) {
		struct iovec part = {&probe, sizeof probe};
		struct msghdr message = {
			.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		ssize_t read = recvmsg(link->fds[!direction], &message, MSG_DONTWAIT);
		if (read < 0 && errno == EINTR)
			continue;
		if (read < 0)
			return;
		if (read < (ssize_t)sizeof probe || probe.magic != MAGIC || probe.link != link->number ||
		    probe.direction != (uint32_t)direction || measured->received == measured->room)
			continue;
		measured->delays_ns[measured->received++] = stamp_of(&message) - probe.sent_ns;
		if ((int64_t)probe.sequence < measured->last_sequence)
			measured->reordered++;
		else
			measured->last_sequence = probe.sequence;
	}
}
