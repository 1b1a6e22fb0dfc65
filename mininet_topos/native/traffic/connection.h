// SPDX-License-Identifier: Apache-2.0
// A connection of a role, and the request that a root sends on it.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A query's request to one worker; big endian on the wire.
struct request {
	uint32_t response_bytes;
};

struct connection {
	int fd;
	char peer[64];            // name or address, for records
	const char *address, *cc; // of a worker, as its root knows it
	bool connecting;
	struct request request;
	size_t request_received; // bytes of `request` received so far
	uint64_t to_send;        // bytes still to be sent
	uint64_t to_receive;     // bytes still to be received
	uint64_t completed_ns;   // when the last byte of the response arrived
	struct connection *next, *prev;
};

// Accepts a connection, watches it for input and puts it at the head of `list`. Returns the list's new head.
struct connection *connection_accept(int listener, struct connection *list);

// Closes and frees a connection of `list`. Returns the list's head.
struct connection *connection_close(struct connection *list, struct connection *connection);

// Writes a record with the kernel's figures (TCP_INFO) of a connection.
void connection_report(const char *event, const struct connection *connection);
