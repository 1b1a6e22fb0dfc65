// SPDX-License-Identifier: Apache-2.0
// An interface of the delay line: a packet socket with a receive ring (TPACKET_V2), which also sends.
#pragma once
#include <linux/if_packet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packet.h"

#define MAX_BATCH 32

// dropped: packets for which the ring had no room. downs: errors of the socket, of which there is one each time that
// the interface goes down. kernel_received, kernel_sent: the interface's own counters, since the links were opened.
// batch: packets that the next sendmmsg() sends.
struct port {
	char name[16];
	int fd;
	unsigned index;
	uint8_t *ring;
	unsigned frames;
	unsigned next;
	uint64_t dropped;
	uint64_t downs;
	uint64_t kernel_received;
	uint64_t kernel_sent;
	struct packet *batch[MAX_BATCH];
	unsigned batched;
};

// A frame of the ring, still the kernel's memory. bytes: virtio_net_hdr and frame; NULL if the frame is larger than the
// ring's and the kernel has kept no copy.
struct frame {
	const uint8_t *bytes;
	uint32_t len;
	int64_t arrived_ns; // CLOCK_REALTIME
	struct vlan_tag tag;
};

// Opens an interface of this network namespace. Ends the program if that fails.
void port_open(struct port *port, const char *name, unsigned ring_frames);

// Shows the next frame, which stays valid until port_release(). Returns false if there is none.
bool port_next(struct port *port, struct frame *frame);
void port_release(struct port *port);

// Sends the batch from packet `first` on. Returns how many packets went out; the kernel refused the one after them.
unsigned port_send(const struct port *port, unsigned first);

// Adds what the ring has dropped since the last call.
void port_read_drops(struct port *port);

// Clears and counts an error of the socket.
void port_recover(struct port *port);

// Whether the interface still exists.
bool port_exists(const struct port *port);
