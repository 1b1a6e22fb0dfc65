// SPDX-License-Identifier: Apache-2.0
#include "node.h"

#include <stdio.h>

#include "options.h"
#include "records.h"

// Packets are neither joined nor divided by the kernel, so that its counters count each packet.
#define FLAGS (DCUDP_NO_SEGMENT | DCUDP_NO_GRO | DCUDP_NO_TXTIME)

dcudp_node *node_open(int port, bool listens)
{
	char address[32], error[200];
	snprintf(address, sizeof address, "0.0.0.0:%d", port);
	struct dcudp_options wanted = {
		.bind = address,
		.key_file = options.key_file,
		.max_rate_bps = options.rate_bps,
		.link_rate_bps = options.link_bps,
		.mtu_bytes = PAYLOAD_BYTES,
		.flags = FLAGS | (listens ? DCUDP_LISTENS : 0),
	};
	dcudp_node *node = dcudp_open(&wanted, error, sizeof error);
	if (!node)
		fail("%s", error);
	return node;
}

bool node_next_event(dcudp_node *node, struct dcudp_event *event)
{
	if (!dcudp_next_event(node, event))
		return false;
	if (event->kind == DCUDP_BROKEN)
		fail("DCUDP: %s", event->text);
	return true;
}
