// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "failure.h"

#define FRAME_BYTES 2048u
#define BLOCK_BYTES 65536u
#define MAX_PACKET_BYTES (sizeof(struct virtio_net_hdr) + 262144u)
#define SOCKET_BUFFER_BYTES (16 << 20)
#define NS_PER_S 1000000000ll

static uint8_t large[MAX_PACKET_BYTES];

static void set_option(const struct port *port, int level, int option, int value, const char *what)
{
	if (setsockopt(port->fd, level, option, &value, sizeof value) < 0)
		fail("%s: cannot set %s: %s", port->name, what, strerror(errno));
}

static void set_options(const struct port *port)
{
	set_option(port, SOL_PACKET, PACKET_VERSION, TPACKET_V2, "TPACKET_V2");
	// Packets of offloading senders stay whole: a partial checksum and a segment size go on to the other side.
	set_option(port, SOL_PACKET, PACKET_VNET_HDR, 1, "PACKET_VNET_HDR");
	set_option(port, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
	set_option(port, SOL_PACKET, PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS");
	// The kernel keeps a copy of a packet that is larger than a frame of the ring; recv() reads it.
	set_option(port, SOL_PACKET, PACKET_COPY_THRESH, 1, "PACKET_COPY_THRESH");
	set_option(port, SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES, "SO_SNDBUFFORCE");
	set_option(port, SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES, "SO_RCVBUFFORCE");
}

static void map_ring(struct port *port, unsigned ring_frames)
{
	unsigned blocks = (ring_frames * FRAME_BYTES + BLOCK_BYTES - 1) / BLOCK_BYTES;
	struct tpacket_req wanted = {
		.tp_block_size = BLOCK_BYTES,
		.tp_block_nr = blocks,
		.tp_frame_size = FRAME_BYTES,
		.tp_frame_nr = blocks * (BLOCK_BYTES / FRAME_BYTES),
	};
	if (setsockopt(port->fd, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof wanted) < 0)
		fail("%s: cannot make a ring of %u frames: %s", port->name, wanted.tp_frame_nr, strerror(errno));
	port->frames = wanted.tp_frame_nr;
	port->ring = mmap(NULL, (size_t)blocks * BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, port->fd, 0);
	if (port->ring == MAP_FAILED)
		fail("%s: cannot map the ring: %s", port->name, strerror(errno));
}

void port_open(struct port *port, const char *name, unsigned ring_frames)
{
	snprintf(port->name, sizeof port->name, "%s", name);
	if (!(port->index = if_nametoindex(name)))
		fail("there is no interface %s in this network namespace", name);
	// Protocol 0 receives nothing until bind(), so the ring holds no packet of another interface.
	if ((port->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) < 0)
		fail("cannot open a packet socket: %s; run as root", strerror(errno));
	set_options(port);
	map_ring(port, ring_frames);
	struct sockaddr_ll here = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)port->index,
	};
	if (bind(port->fd, (struct sockaddr *)&here, sizeof here) < 0)
		fail("%s: cannot bind: %s", name, strerror(errno));
}

static struct tpacket2_hdr *next_header(const struct port *port)
{
	return (struct tpacket2_hdr *)(port->ring + (size_t)port->next * FRAME_BYTES);
}

static struct vlan_tag tag_of(const struct tpacket2_hdr *header)
{
	struct vlan_tag tag = {.present = header->tp_status & TP_STATUS_VLAN_VALID, .tci = header->tp_vlan_tci};
	tag.tpid = header->tp_status & TP_STATUS_VLAN_TPID_VALID ? header->tp_vlan_tpid : ETH_P_8021Q;
	return tag;
}

static const uint8_t *read_copy(const struct port *port, uint32_t len)
{
	ssize_t read;
	while ((read = recv(port->fd, large, sizeof large, MSG_DONTWAIT)) < 0 && errno == EINTR)
		;
	return read == (ssize_t)len ? large : NULL;
}

bool port_next(struct port *port, struct frame *frame)
{
	struct tpacket2_hdr *header = next_header(port);
	if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
		return false;
	frame->len = (uint32_t)sizeof(struct virtio_net_hdr) + header->tp_len;
	frame->arrived_ns = header->tp_sec * NS_PER_S + header->tp_nsec;
	frame->tag = tag_of(header);
	frame->bytes = NULL;
	if (header->tp_status & TP_STATUS_COPY)
		frame->bytes = read_copy(port, frame->len);
	else if (header->tp_snaplen == header->tp_len)
		frame->bytes = (uint8_t *)header + header->tp_mac - sizeof(struct virtio_net_hdr);
	return true;
}

void port_release(struct port *port)
{
	__atomic_store_n(&next_header(port)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	port->next = (port->next + 1) % port->frames;
}

unsigned port_send(const struct port *port, unsigned first)
{
	struct mmsghdr messages[MAX_BATCH] = {0};
	struct iovec parts[MAX_BATCH];
	unsigned count = port->batched - first;
	int sent;
	for (unsigned i = 0; i < count; i++) {
		struct packet *packet = port->batch[first + i];
		parts[i] = (struct iovec){packet->bytes, packet->len};
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
	}
	while ((sent = sendmmsg(port->fd, messages, count, MSG_DONTWAIT)) < 0 && errno == EINTR)
		;
	return sent > 0 ? (unsigned)sent : 0;
}

void port_read_drops(struct port *port)
{
	struct tpacket_stats stats;
	socklen_t len = sizeof stats;
	if (!getsockopt(port->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len))
		port->dropped += stats.tp_drops;
}

void port_recover(struct port *port)
{
	int error;
	socklen_t len = sizeof error;
	getsockopt(port->fd, SOL_SOCKET, SO_ERROR, &error, &len);
	port->downs++;
}

bool port_exists(const struct port *port)
{
	char name[IF_NAMESIZE];
	return if_indextoname(port->index, name) != NULL;
}
