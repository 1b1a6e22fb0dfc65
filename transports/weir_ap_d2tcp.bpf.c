// SPDX-License-Identifier: GPL-2.0
// Adaptive Pacing on D2TCP.
#include "weir_pacing.bpf.h"
#include "weir_d2tcp.bpf.h"

SEC(".struct_ops")
struct tcp_congestion_ops weir_ap_d2tcp = {
	WEIR_ECN_OPS,
	WEIR_PACING_OPS,
	.name = "weir_ap_d2tcp",
};

char _license[] SEC("license") = "GPL";
