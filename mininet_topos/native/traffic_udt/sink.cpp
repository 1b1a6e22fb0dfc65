// SPDX-License-Identifier: Apache-2.0
// The sink of long and planned flows over UDT.
#include <vector>

#include "udt_sockets.h"

extern "C" {
#include "roles.h"
}

#define LISTEN_BACKLOG 1024
#define READ_BYTES (1 << 16)

static UDTSOCKET listen_on_port()
{
	UDTSOCKET listener = udt_socket();
	struct sockaddr_in any = udt_address("0.0.0.0", options.port);
	if (UDT::bind(listener, (struct sockaddr *)&any, sizeof any) == UDT::ERROR ||
	    UDT::listen(listener, LISTEN_BACKLOG) == UDT::ERROR)
		fail("UDT: cannot listen on port %d: %s", options.port, UDT::getlasterror().getErrorMessage());
	return listener;
}

// Reads what a connection has. Returns the number of bytes, or -1 if the connection has ended.
static int64_t read_all(UDTSOCKET udt)
{
	static char bytes[READ_BYTES];
	int64_t total = 0;
	for (;;) {
		int received = UDT::recv(udt, bytes, sizeof bytes, 0);
		if (received != UDT::ERROR)
			total += received;
		else if (total || UDT::getlasterror().getErrorCode() == CUDTException::EASYNCRCV)
			return total;
		else
			return -1;
	}
}

int run_sink(void)
{
	struct epoll_event events[MAX_EVENTS];
	std::vector<UDTSOCKET> connections;
	uint64_t received_bytes = 0;
	UDT::startup();
	UDTSOCKET listener = listen_on_port();
	record_begin("listening");
	record_end();
	while (events_wait(events, POLL_MS) >= 0) {
		struct sockaddr_in from;
		int len = sizeof from;
		UDTSOCKET made = UDT::accept(listener, (struct sockaddr *)&from, &len);
		if (made != UDT::INVALID_SOCK)
			connections.push_back(made);
		for (size_t i = connections.size(); i-- > 0;) {
			int64_t received = read_all(connections[i]);
			if (received >= 0) {
				received_bytes += (uint64_t)received;
				continue;
			}
			UDT::close(connections[i]);
			connections.erase(connections.begin() + (long)i);
		}
		if (!connections.empty())
			record_goodput(options.port, received_bytes, options.sample_ms);
	}
	UDT::cleanup();
	return 0;
}
