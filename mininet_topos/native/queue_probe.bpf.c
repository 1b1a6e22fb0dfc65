// SPDX-License-Identifier: GPL-2.0
// Records the length of one port's queue, packet by packet: for each interval of time the highest, the lowest and the
// last length.
//
// Of other ports it keeps only the sum of length x time, and the greatest length (port_queues).
//
// The program reads the queue's length at each qdisc_enqueue and qdisc_dequeue of the port's root qdisc (the length
// of an HTB root includes its leaves). It sends no events, so that it costs an experiment little: the lab maps
// `queue_buckets` and reads it once, at the end. Both tracepoints run under the qdisc's lock, so that a bucket has
// one writer at a time. mininet_topos/measurement/queue_probe.py declares the same structs.
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define BUCKETS (1 << 20) // 17 minutes of 1 ms

struct probe_settings {
	__u64 start_ns; // CLOCK_MONOTONIC; 0: record nothing
	__u64 bucket_ns;
	__u32 ifindex;
	__u32 netns_inum;
	__u32 others; // number of entries of port_queues; 0: do not look for one
};

struct port_queue {
	__u64 last_ns; // of the last event; 0: there was none
	__u64 byte_ns; // length x time, until then
	__u32 last_bytes;
	__u32 bytes_max;
};

struct queue_bucket {
	__u64 sent_total; // bytes that the qdisc has sent since it was created
	__u32 pkts_max;
	__u32 bytes_max;
	__u32 pkts_last;
	__u32 bytes_last;
	__u32 pkts_min;    // plus 1; 0: nothing was recorded in this interval
	__u32 drops_total; // packets that the qdisc has dropped since it was created
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct probe_settings);
} probe_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct queue_bucket);
} queue_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32); // ifindex
	__type(value, struct port_queue);
} port_queues SEC(".maps");

static __always_inline struct queue_bucket *bucket_at(const struct probe_settings *set, __u64 now_ns)
{
	__u32 index;

	if (!set->bucket_ns || now_ns < set->start_ns)
		return NULL;
	index = (now_ns - set->start_ns) / set->bucket_ns;
	return bpf_map_lookup_elem(&queue_buckets, &index);
}

// The queue had its last length since the last event.
static __always_inline void add_length(struct port_queue *queue, __u32 bytes, __u64 now_ns)
{
	if (queue->last_ns)
		queue->byte_ns += (now_ns - queue->last_ns) * queue->last_bytes;
	queue->last_ns = now_ns;
	queue->last_bytes = bytes;
	if (bytes > queue->bytes_max)
		queue->bytes_max = bytes;
}

static __always_inline int note_length(struct Qdisc *qdisc)
{
	__u32 pkts = qdisc->q.qlen, bytes = qdisc->qstats.backlog, zero = 0, ifindex;
	struct probe_settings *set = bpf_map_lookup_elem(&probe_config, &zero);
	struct net_device *dev = qdisc->dev_queue->dev;
	struct port_queue *queue;
	struct queue_bucket *bucket;
	__u64 now_ns;

	if (!set || !set->start_ns)
		return 0;
	ifindex = dev->ifindex;
	if ((ifindex != set->ifindex && !set->others) || dev->nd_net.net->ns.inum != set->netns_inum)
		return 0;
	now_ns = bpf_ktime_get_ns();
	queue = set->others ? bpf_map_lookup_elem(&port_queues, &ifindex) : NULL;
	if (queue)
		add_length(queue, bytes, now_ns);
	bucket = ifindex == set->ifindex ? bucket_at(set, now_ns) : NULL;
	if (!bucket)
		return 0;
	if (pkts > bucket->pkts_max)
		bucket->pkts_max = pkts;
	if (bytes > bucket->bytes_max)
		bucket->bytes_max = bytes;
	if (!bucket->pkts_min || pkts + 1 < bucket->pkts_min)
		bucket->pkts_min = pkts + 1;
	bucket->pkts_last = pkts;
	bucket->bytes_last = bytes;
	bucket->drops_total = qdisc->qstats.drops;
	bpf_core_read(&bucket->sent_total, sizeof(bucket->sent_total), &qdisc->bstats.bytes);
	return 0;
}

SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(on_enqueue, struct Qdisc *qdisc)
{
	return note_length(qdisc);
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(on_dequeue, struct Qdisc *qdisc)
{
	return note_length(qdisc);
}

char _license[] SEC("license") = "GPL";
