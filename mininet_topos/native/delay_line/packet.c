// SPDX-License-Identifier: Apache-2.0
#include "packet.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES sizeof(struct virtio_net_hdr)
#define ADDRESSES_BYTES (2u * ETH_ALEN)

static void move_offsets(struct virtio_net_hdr *header)
{
	if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		header->csum_start += VLAN_TAG_BYTES;
	if (header->hdr_len)
		header->hdr_len += VLAN_TAG_BYTES;
}

struct packet *packet_make(const uint8_t *bytes, uint32_t len, struct vlan_tag tag)
{
	const size_t before_tag = HEADER_BYTES + ADDRESSES_BYTES;
	struct virtio_net_hdr header;
	struct packet *packet = malloc(sizeof *packet + len + VLAN_TAG_BYTES);
	if (!packet)
		return NULL;
	packet->len = len;
	if (!tag.present || len < before_tag) {
		memcpy(packet->bytes, bytes, len);
		return packet;
	}
	uint16_t inserted[2] = {htons(tag.tpid), htons(tag.tci)};
	memcpy(&header, bytes, sizeof header);
	move_offsets(&header);
	memcpy(packet->bytes, &header, sizeof header);
	memcpy(packet->bytes + HEADER_BYTES, bytes + HEADER_BYTES, ADDRESSES_BYTES);
	memcpy(packet->bytes + before_tag, inserted, sizeof inserted);
	memcpy(packet->bytes + before_tag + VLAN_TAG_BYTES, bytes + before_tag, len - before_tag);
	packet->len += VLAN_TAG_BYTES;
	return packet;
}

struct packet *packet_copy(const struct packet *packet)
{
	struct packet *copy = malloc(sizeof *copy + packet->len);
	if (copy)
		memcpy(copy, packet, sizeof *copy + packet->len);
	return copy;
}
