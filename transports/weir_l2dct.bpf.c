// SPDX-License-Identifier: GPL-2.0
// L2DCT: DCTCP in which a flow that has sent little grows faster and reduces less than one that has sent much.
#include "weir_l2dct.bpf.h"

SEC(".struct_ops")
struct tcp_congestion_ops weir_l2dct = {
	WEIR_ECN_OPS,
	.name = "weir_l2dct",
};

char _license[] SEC("license") = "GPL";
