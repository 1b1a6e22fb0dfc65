/* SPDX-License-Identifier: GPL-2.0-only */
/* Flow reports, in their wire format, so that the agent only has to batch them. */
#ifndef WEIR_REPORT_H
#define WEIR_REPORT_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_flow_table.h"
#include "weir_maps.h"
#include "weir_port.h"
#include "weir_structs.h"

static __always_inline void report_count_lost(void)
{
	__u32 zero = 0;
	__u64 *lost = bpf_map_lookup_elem(&reports_lost, &zero);

	if (lost)
		__sync_fetch_and_add(lost, 1);
}

/* Reports the direction that leaves by the port: the remote host is its source. */
static __always_inline void report_send(const struct weir_flow_key *key, const struct weir_flow *flow,
					const struct weir_port *port, __u8 kind, __u8 reason, __u64 rtt_ns)
{
	const struct weir_settings *host = host_settings();
	struct weir_report *r;

	if (!host || !(host->report_kinds >> kind & 1))
		return;
	r = bpf_ringbuf_reserve(&reports, sizeof(*r), 0);
	if (!r) {
		report_count_lost();
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->bridge = port->bridge;
	r->kind = kind;
	r->ip_version = flow_key_is_ipv4(key) ? 4 : 6;
	r->scale_src = flow->flags & WEIR_SYN_OUT ? flow->remote.scale : WEIR_NO_SCALE;
	r->scale_dst = flow->flags & WEIR_SYN_IN ? flow->local.scale : WEIR_NO_SCALE;
	__builtin_memcpy(r->src, key->remote, sizeof(r->src));
	__builtin_memcpy(r->dst, key->local, sizeof(r->dst));
	r->src_port = key->remote_port;
	r->dst_port = key->local_port;
	r->mss_src = bpf_htons(flow->remote.mss);
	r->mss_dst = bpf_htons(flow->local.mss);
	r->in_port = WEIR_ANY_PORT;
	r->out_port = bpf_htonl(port->ofport);
	r->sent_bytes = bpf_cpu_to_be64(flow->out_bytes);
	r->first_ns = bpf_cpu_to_be64(flow->first_ns + host->unix_offset_ns);
	r->last_ns = bpf_cpu_to_be64(flow->last_ns + host->unix_offset_ns);
	r->handshake_rtt_us = bpf_htonl(rtt_ns / NS_PER_US);
	r->reason = reason;
	bpf_ringbuf_submit(r, host->report_wakes ? 0 : BPF_RB_NO_WAKEUP);
}

#endif
