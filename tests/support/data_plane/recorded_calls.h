/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included before a congestion control, records each call of it: the connection before the call and after it. It can
 * leave calls out. recorded_calls.py compiles controls with it, and reads struct call here.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "../../../transports/weir_flow.h" // another header of this name is in openflow_ext/bpf

#define RECORDS (1 << 16)
#define RECEIVER 0x0a4d0002 // 10.77.0.2
#define NAME_BYTES 24

enum moment { BEFORE, AFTER, LEFT_OUT };

struct call {
	__u64 now_ns, sent_bytes, acked_bytes;
	__u32 moment, argument, state, cwnd;
	__u32 cwnd_cnt, ssthresh, prior_cwnd, high_seq;
	__u32 una, snd_nxt, delivered, is_cwnd_limited;
	__u32 max_packets_out, in_flight, data_segs_out, srtt_us;
	__u32 least_rtt_us, mss, idle_jiffies, rto;
	__u32 slow_ns, padding;
	char name[NAME_BYTES];
};

struct calls {
	__u32 count;
	__u32 skip_period; // of the calls whose result is void, one in skip_period is left out; 0: none
	__u32 seen, padding;
	struct call calls[RECORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct calls);
} recorded_calls SEC(".maps");

static __always_inline void record_call(unsigned long long *arguments, const char *name, __u32 argument, __u32 moment)
{
	struct sock *sk = (void *)arguments[0];
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	__u32 zero = 0, at;
	struct calls *all = bpf_map_lookup_elem(&recorded_calls, &zero);
	struct call *call;

	if (!all || sk->__sk_common.skc_daddr != bpf_htonl(RECEIVER))
		return;
	at = __sync_fetch_and_add(&all->count, 1);
	if (at >= RECORDS)
		return;
	call = &all->calls[at];
	call->now_ns = bpf_ktime_get_ns();
	call->sent_bytes = tp->bytes_sent - tp->bytes_retrans;
	call->acked_bytes = tp->bytes_acked;
	call->moment = moment;
	call->argument = argument;
	call->state = icsk->icsk_ca_state;
	call->cwnd = tp->snd_cwnd;
	call->cwnd_cnt = tp->snd_cwnd_cnt;
	call->ssthresh = tp->snd_ssthresh;
	call->prior_cwnd = tp->prior_cwnd;
	call->high_seq = tp->high_seq;
	call->una = tp->snd_una;
	call->snd_nxt = tp->snd_nxt;
	call->delivered = tp->delivered;
	call->is_cwnd_limited = BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
	call->max_packets_out = tp->max_packets_out;
	call->in_flight = tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
	call->data_segs_out = tp->data_segs_out;
	call->srtt_us = tp->srtt_us >> 3;
	call->least_rtt_us = tp->rtt_min.s[0].v;
	call->mss = tp->mss_cache;
	call->idle_jiffies = (__u32)bpf_jiffies64() - tp->lsndtime;
	call->rto = icsk->icsk_rto;
	call->slow_ns = ((struct weir_flow *)icsk->icsk_ca_priv)->slow.time_ns;
	__builtin_memcpy(call->name, name, NAME_BYTES);
}

static __always_inline bool is_left_out(unsigned long long *arguments)
{
	struct sock *sk = (void *)arguments[0];
	__u32 zero = 0;
	struct calls *all = bpf_map_lookup_elem(&recorded_calls, &zero);

	if (!all || !all->skip_period || sk->__sk_common.skc_daddr != bpf_htonl(RECEIVER))
		return false;
	return __sync_fetch_and_add(&all->seen, 1) % all->skip_period == all->skip_period - 1;
}

struct recorded_scope {
	unsigned long long *arguments;
	const char *name;
	__u32 argument;
};

static __always_inline void record_end(struct recorded_scope *scope)
{
	record_call(scope->arguments, scope->name, scope->argument, AFTER);
}

// A program may only read the arguments that its callback has.
#define SECOND_ARGUMENT_1(arguments) 0
#define SECOND_ARGUMENT_2(arguments) arguments[1]

// BPF_PROG of libbpf, with a record before and after the body. Only callbacks of two arguments or of weir_cong_control
// are left out: the result of the others is used.
#undef BPF_PROG
#define BPF_PROG(function, args...)                                                                                    \
	function(unsigned long long *ctx);                                                                             \
	static __always_inline typeof(function(0)) ____##function(unsigned long long *ctx, ##args);                    \
	typeof(function(0)) function(unsigned long long *ctx)                                                          \
	{                                                                                                              \
		const char text[NAME_BYTES] = #function;                                                               \
		bool may_miss = ___bpf_narg(args) == 2 || sizeof(#function) == sizeof("weir_cong_control");            \
		struct recorded_scope scope __attribute__((cleanup(record_end))) = {                                   \
			ctx, text, ___bpf_apply(SECOND_ARGUMENT_, ___bpf_narg(args))(ctx)};                            \
		bool is_missed = may_miss && is_left_out(ctx);                                                         \
		record_call(ctx, text, scope.argument, is_missed ? LEFT_OUT : BEFORE);                                 \
		return is_missed ? (typeof(function(0)))0 : ____##function(___bpf_ctx_cast(args));                     \
	}                                                                                                              \
	static __always_inline typeof(function(0)) ____##function(unsigned long long *ctx, ##args)
