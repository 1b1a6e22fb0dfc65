// SPDX-License-Identifier: GPL-2.0
// Adaptive Pacing on DCTCP.
#include "weir_pacing.bpf.h"
#include "weir_dctcp.bpf.h"

SEC(".struct_ops")
struct tcp_congestion_ops weir_ap_dctcp = {
	WEIR_ECN_OPS,
	WEIR_PACING_OPS,
	.name = "weir_ap_dctcp",
};

char _license[] SEC("license") = "GPL";
