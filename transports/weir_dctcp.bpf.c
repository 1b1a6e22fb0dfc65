// SPDX-License-Identifier: GPL-2.0
// DCTCP (RFC 8257) as a congestion control for sockets: TCP_CONGESTION=weir_dctcp, on both ends.
#include "weir_dctcp.bpf.h"

SEC(".struct_ops")
struct tcp_congestion_ops weir_dctcp = {
	WEIR_ECN_OPS,
	.name = "weir_dctcp",
};

char _license[] SEC("license") = "GPL";
