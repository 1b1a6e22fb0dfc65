// SPDX-License-Identifier: GPL-2.0
// At tc egress: applies to the n-th TCP segment that carries data the n-th step of a script, which scripted_wire.py
// writes. In TCP: records each ACK when the sender processes it, which may be after more data has been sent.
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define STEPS (1 << 16)
#define RECEIVER 0x0a4d0002 // 10.77.0.2
#define ETHERNET_BYTES 14
#define TC_ACT_OK 0
#define TC_ACT_STOLEN 4 // dropped, without an error for the sender

#define LATE_CLASS 0x10002 // of the qdisc that Wire.reordering() adds

enum step { STEP_PASS, STEP_MARK, STEP_DROP, STEP_LATE };

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

// scripted_wire.py declares the same struct and reads these records.
struct ack {
	__u32 acked;     // bytes beyond SND.UNA
	__u32 under_way; // bytes from there to SND.NXT
	__u32 ece;
};

struct taken_up {
	__u32 count;
	struct ack acks[STEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct taken_up);
} taken_up SEC(".maps");

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
	if (now->steps[at] == STEP_LATE)
		skb->priority = LATE_CLASS;
	return TC_ACT_OK;
}

// Before TCP looks at the segment.
SEC("tp_btf/tcp_probe")
int BPF_PROG(note_ack, struct sock *sk, const struct sk_buff *skb)
{
	__u32 zero = 0, at, ack;
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct taken_up *now = bpf_map_lookup_elem(&taken_up, &zero);
	struct tcphdr tcp;

	if (!tp || !now || sk->__sk_common.skc_daddr != bpf_htonl(RECEIVER) ||
	    bpf_probe_read_kernel(&tcp, sizeof(tcp), skb->head + skb->transport_header))
		return 0;
	ack = bpf_ntohl(tcp.ack_seq);
	at = now->count;
	if (at >= STEPS || (__s32)(ack - tp->snd_una) < 0)
		return 0;
	now->acks[at] = (struct ack){ack - tp->snd_una, tp->snd_nxt - ack, tcp.ece};
	now->count = at + 1;
	return 0;
}

char _license[] SEC("license") = "GPL";
