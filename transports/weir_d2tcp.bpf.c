// SPDX-License-Identifier: GPL-2.0
// D2TCP: DCTCP whose reduction depends on the deadline that the application set on the socket (deadlines.bpf.c).
#include "weir_d2tcp.bpf.h"

SEC(".struct_ops")
struct tcp_congestion_ops weir_d2tcp = {
	WEIR_ECN_OPS,
	.name = "weir_d2tcp",
};

char _license[] SEC("license") = "GPL";
