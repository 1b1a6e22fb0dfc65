// SPDX-License-Identifier: Apache-2.0
#include "udt_sockets.h"

#include <arpa/inet.h>

#define PACKET_BYTES 1500 // with the headers of IP and UDP, as UDT counts
#define LINGER_S 8

template <typename Value> static void set(UDTSOCKET udt, UDTOpt option, const Value &value)
{
	if (UDT::setsockopt(udt, 0, option, &value, sizeof value) == UDT::ERROR)
		fail("UDT: option %d: %s", option, UDT::getlasterror().getErrorMessage());
}

UDTSOCKET udt_socket()
{
	UDTSOCKET udt = UDT::socket(AF_INET, SOCK_STREAM, 0);
	if (udt == UDT::INVALID_SOCK)
		fail("UDT: cannot create a socket: %s", UDT::getlasterror().getErrorMessage());
	struct linger rest = {};
	rest.l_onoff = 1;
	rest.l_linger = LINGER_S;
	set(udt, UDT_MSS, PACKET_BYTES);
	set(udt, UDT_SNDSYN, false);
	set(udt, UDT_RCVSYN, false);
	set(udt, UDT_LINGER, rest);
	if (options.rate_bps)
		set(udt, UDT_MAXBW, (int64_t)options.rate_bps / 8);
	return udt;
}

struct sockaddr_in udt_address(const char *address, int port)
{
	struct sockaddr_in made = {};
	made.sin_family = AF_INET;
	made.sin_port = htons((uint16_t)port);
	if (inet_pton(AF_INET, address, &made.sin_addr) != 1)
		fail("not an IPv4 address: %.40s", address);
	return made;
}
