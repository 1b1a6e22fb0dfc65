// SPDX-License-Identifier: GPL-2.0
// Adaptive Pacing on L2DCT.
#include "weir_pacing.bpf.h"
#include "weir_l2dct.bpf.h"

SEC(".struct_ops")
struct tcp_congestion_ops weir_ap_l2dct = {
	WEIR_ECN_OPS,
	WEIR_PACING_OPS,
	.name = "weir_ap_l2dct",
};

char _license[] SEC("license") = "GPL";
