// SPDX-License-Identifier: Apache-2.0
// Records: JSON lines on stdout. Each is written by a single write(2), so that many processes may append to one file.
#pragma once
#include <stdint.h>

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull
#define REPORT_PERIOD_MS 100
#define SINK_WAKE_MS 10 // how often a sink looks whether a record is due

uint64_t now_ns(void); // CLOCK_MONOTONIC

// A record is begun, gets further fields, each with a comma before it, and is ended.
void record_begin(const char *event);
__attribute__((format(printf, 1, 2))) void record_put(const char *format, ...);
void record_tcp_info(int fd);
void record_end(void);

// Records what a sink has received at a port, if every_ms have passed since it did so last; 0: never.
void record_goodput(int port, uint64_t received_bytes, uint32_t every_ms);

// Writes an error record and ends the program.
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
