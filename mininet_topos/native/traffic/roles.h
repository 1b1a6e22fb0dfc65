// SPDX-License-Identifier: Apache-2.0
// The roles of the traffic programs. Each runs until its work is done or SIGTERM comes, and returns the exit status.
#pragma once
#include <stddef.h>

struct role {
	const char *name;
	int (*run)(void);
};

// Runs the role that the first argument names, with the options that follow. Returns the exit status.
int run_role(int argc, char **argv, const struct role *roles, size_t count);

int run_worker(void);
int run_root(void);
int run_sink(void);   // each transport has its own
int run_source(void); // flows.c, over the program's transport
int run_flows(void);
