// SPDX-License-Identifier: Apache-2.0
#include "events.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include "records.h"

static int epoll_fd, signal_fd;

void events_init(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM); // the program ends with the lab, even if the lab is killed
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (epoll_fd < 0 || signal_fd < 0)
		fail("cannot create epoll or signalfd: %s", strerror(errno));
	events_watch(signal_fd, &signal_fd, EPOLLIN, EPOLL_CTL_ADD);
}

void events_watch(int fd, void *data, uint32_t events, int op)
{
	struct epoll_event event = {.events = events, .data.ptr = data};
	if (epoll_ctl(epoll_fd, op, fd, &event) < 0)
		fail("epoll_ctl: %s", strerror(errno));
}

int events_wait(struct epoll_event *events, int timeout_ms)
{
	int count = epoll_wait(epoll_fd, events, MAX_EVENTS, timeout_ms);
	if (count < 0 && errno != EINTR)
		fail("epoll_wait: %s", strerror(errno));
	for (int i = 0; i < count; i++)
		if (events[i].data.ptr == &signal_fd)
			return -1;
	return count < 0 ? 0 : count;
}
