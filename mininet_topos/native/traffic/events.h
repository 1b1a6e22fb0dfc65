// SPDX-License-Identifier: Apache-2.0
// The event loop: one epoll instance, which also receives SIGTERM and SIGINT.
#pragma once
#include <stdint.h>
#include <sys/epoll.h>

#define MAX_EVENTS 64

void events_init(void);

// Adds or changes the events that are awaited on a descriptor; `op` is EPOLL_CTL_ADD or EPOLL_CTL_MOD.
void events_watch(int fd, void *data, uint32_t events, int op);

// Waits for events, for ever if timeout_ms is -1. Returns their number, or -1 after SIGTERM or SIGINT.
int events_wait(struct epoll_event *events, int timeout_ms);
