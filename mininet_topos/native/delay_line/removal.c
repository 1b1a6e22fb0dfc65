// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "removal.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "failure.h"

int removal_watch(void)
{
	struct sockaddr_nl here = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0)
		fail("cannot watch for removed interfaces: %s", strerror(errno));
	return fd;
}

static bool names_removal(const struct nlmsghdr *message, ssize_t len)
{
	for (; NLMSG_OK(message, len); message = NLMSG_NEXT(message, len))
		if (message->nlmsg_type == RTM_DELLINK)
			return true;
	return false;
}

// An error means that messages were lost (ENOBUFS), which may have named a removal.
bool removal_read(int fd)
{
	_Alignas(struct nlmsghdr) char messages[16384];
	bool removed = false;
	for (;;) {
		ssize_t len = recv(fd, messages, sizeof messages, 0);
		if (len < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return removed;
		removed |= len < 0 ? errno != EINTR : names_removal((struct nlmsghdr *)messages, len);
	}
}
