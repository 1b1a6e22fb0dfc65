/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The division of a port among hosts first (docs/decisions/0080-shares-by-host.md). A host that opens 60 connections
 * has 60 shares otherwise. Here the weight of a flow is the full one, divided by the number of flows of its host that
 * send to the port. They are counted in the port's turns, once per flow and turn, when the flow is counted as an active
 * sender, so that its handshake is complete and its address is not forged.
 *
 * A host that is not in the map has the weight of a single flow.
 */
#ifndef WEIR_HOST_H
#define WEIR_HOST_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "weir_consts.h"
#include "weir_maps.h"
#include "weir_structs.h"

static __always_inline struct weir_host_key host_key(__u32 ifindex, const __u32 *address)
{
	return (struct weir_host_key){ifindex, {address[0], address[1], address[2], address[3]}};
}

/* The weight of each flow of a host: the most that sent in one of the last two turns of the port count. */
static __always_inline __u32 host_weight(const struct weir_host *host, __u32 turn)
{
	__u32 age = turn - host->turn, senders = host->senders[host->turn & 1];

	if (!age && host->senders[(turn + 1) & 1] > senders)
		senders = host->senders[(turn + 1) & 1];
	if (age > 1 || !senders)
		return WEIR_FULL_WEIGHT;
	return WEIR_FULL_WEIGHT / (senders < WEIR_MOST_HOST_SENDERS ? senders : WEIR_MOST_HOST_SENDERS);
}

static __noinline __u32 host_find_weight(__u32 ifindex, __u32 turn, const __u32 *address)
{
	struct weir_host_key key = host_key(ifindex, address);
	struct weir_host *host = bpf_map_lookup_elem(&hosts, &key);

	return host ? host_weight(host, turn) : WEIR_FULL_WEIGHT;
}

/* A flow of the host sends for the first time in this turn of the port. Returns its weight. */
static __noinline __u32 host_count_sender(__u32 ifindex, struct weir_port_state *state, const __u32 *address)
{
	struct weir_host_key key = host_key(ifindex, address);
	struct weir_host *host = bpf_map_lookup_elem(&hosts, &key);
	__u32 turn = state->turn, before, *most = &state->host_most_in_turn[turn & 1];

	if (!host) {
		struct weir_host first = {.turn = turn, .senders = {!(turn & 1), turn & 1}};

		bpf_map_update_elem(&hosts, &key, &first, BPF_NOEXIST);
		if (!*most)
			*most = 1;
		return WEIR_FULL_WEIGHT;
	}
	before = host->turn;
	if (before != turn && __sync_val_compare_and_swap(&host->turn, before, turn) == before) {
		if (turn - before > 1)
			host->senders[(turn + 1) & 1] = 0;
		host->senders[turn & 1] = 0;
	}
	__sync_fetch_and_add(&host->senders[turn & 1], 1);
	if (host->senders[turn & 1] > *most)
		*most = host->senders[turn & 1];
	return host_weight(host, turn);
}

#endif
