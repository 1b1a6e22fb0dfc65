// SPDX-License-Identifier: Apache-2.0
// The roles of the traffic program. Each runs until its work is done or SIGTERM comes, and returns the exit status.
#pragma once

int run_worker(void);
int run_root(void);
int run_sink(void);
int run_source(void);
int run_flows(void);
