/* SPDX-License-Identifier: GPL-2.0 */
/* The deadlines of sockets: deadlines.bpf.c writes them, D2TCP reads them. A deadline ends with its socket. */
#ifndef WEIR_DEADLINES_BPF_H
#define WEIR_DEADLINES_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_d2tcp.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct weir_deadline);
} weir_deadlines SEC(".maps");

#endif
