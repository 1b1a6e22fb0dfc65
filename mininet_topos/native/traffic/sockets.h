// SPDX-License-Identifier: Apache-2.0
// TCP sockets. Functions that cannot go on end the program with an error record.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CHUNK_BYTES (64 * 1024) // the most that one write sends

int listen_on_port(int port, const char *cc); // non-blocking

// A non-blocking socket that has begun its handshake with `address`, at the port of the options.
int begin_connecting(const char *address, const char *cc);

// Ends the program if the handshake of `fd` failed.
void require_connected(int fd, const char *address);

// Waits for the handshake. Tries again while ARP gets no answer: the controller may still be learning the network.
int connect_to(const char *address, const char *cc);

// States that the next `size_bytes` of a connection are due in `left_us`; 0: the time is over. It has an effect if a
// congestion control that knows deadlines is loaded (transports/deadline.py).
void set_deadline(int fd, uint64_t size_bytes, uint64_t left_us);

// Receives and discards. Returns the number of bytes, 0 if there were none, -1 if the connection has ended.
ssize_t discard(int fd, size_t at_most);

// Sends zeros, as many as the socket takes at once. Returns the number of bytes, -1 if the connection has ended.
ssize_t write_zeros(int fd, uint64_t at_most);
