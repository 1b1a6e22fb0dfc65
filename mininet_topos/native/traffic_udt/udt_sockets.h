// SPDX-License-Identifier: Apache-2.0
// UDT's sockets. They do not block, and are polled: they have no descriptor of the kernel.
#pragma once
#include <netinet/in.h>
#include <udt/udt.h>

extern "C" {
#include "events.h"
#include "options.h"
#include "records.h"
}

#define POLL_MS 2 // how often the sockets are looked at

// Makes a socket. Ends the program with an error record if it cannot.
UDTSOCKET udt_socket();

struct sockaddr_in udt_address(const char *address, int port);
