// SPDX-License-Identifier: Apache-2.0
// The DCUDP node of the program.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "dcudp.h"

#define PAYLOAD_BYTES 1472 // of a full Ethernet packet: 1500 - 20 (IPv4) - 8 (UDP)

// Opens the node at a port of all addresses; 0: any port. Ends the program with an error record if it cannot.
dcudp_node *node_open(int port, bool listens);

// The node's next event; false if there is none. It ends the program with an error record if the node has failed.
bool node_next_event(dcudp_node *node, struct dcudp_event *event);
