// SPDX-License-Identifier: GPL-2.0
// At tc egress: does with the n-th TCP segment that carries data what a script says (tests/bpf/wire.py writes it).
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define STEPS (1 << 16)
#define ETHERNET_BYTES 14
#define TC_ACT_OK 0
#define TC_ACT_STOLEN 4 // gone, and the sender does not learn of it

enum step { STEP_PASS, STEP_MARK, STEP_DROP };

struct script {
	__u32 next;
	__u8 steps[STEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct script);
} script SEC(".maps");

static __always_inline bool carries_data(struct __sk_buff *skb)
{
	struct iphdr ip;
	struct tcphdr tcp;

	if (skb->protocol != bpf_htons(0x0800) || bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)) ||
	    ip.protocol != IPPROTO_TCP || bpf_skb_load_bytes(skb, ETHERNET_BYTES + ip.ihl * 4, &tcp, sizeof(tcp)))
		return false;
	return bpf_ntohs(ip.tot_len) > ip.ihl * 4 + tcp.doff * 4;
}

SEC("tc")
int follow_script(struct __sk_buff *skb)
{
	__u32 zero = 0, at;
	struct script *now = bpf_map_lookup_elem(&script, &zero);

	if (!now || !carries_data(skb))
		return TC_ACT_OK;
	at = __sync_fetch_and_add(&now->next, 1);
	if (at >= STEPS)
		return TC_ACT_OK;
	if (now->steps[at] == STEP_DROP)
		return TC_ACT_STOLEN;
	if (now->steps[at] == STEP_MARK)
		bpf_skb_ecn_set_ce(skb);
	return TC_ACT_OK;
}

char _license[] SEC("license") = "GPL";
