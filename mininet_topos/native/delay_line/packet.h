// SPDX-License-Identifier: Apache-2.0
// A packet that waits, as it will be sent: a virtio_net_hdr, then the frame.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define VLAN_TAG_BYTES 4

struct port;
struct direction;

// order: of arrival. Of packets that are due at the same time the first one leaves first.
struct packet {
	int64_t due_ns;
	uint64_t order;
	struct direction *direction;
	uint32_t len;
	uint8_t bytes[];
};

// A VLAN tag that the kernel has taken out of the frame (tp_vlan_tpid, tp_vlan_tci).
struct vlan_tag {
	bool present;
	uint16_t tpid;
	uint16_t tci;
};

// Makes a packet of `len` bytes (virtio_net_hdr and frame), and puts the tag back into the frame. The offsets of
// the virtio_net_hdr move with it. Returns NULL if memory is short. The caller frees the packet.
struct packet *packet_make(const uint8_t *bytes, uint32_t len, struct vlan_tag tag);

struct packet *packet_copy(const struct packet *packet);
