// SPDX-License-Identifier: GPL-2.0
// The socket option by which an application sets the size and deadline of its next message, without privileges:
// setsockopt(fd, WEIR_SOL, WEIR_DEADLINE, &option, sizeof(option)) with struct weir_deadline_option. Attached to a
// cgroup, it serves the sockets of that cgroup and those below. transports/deadline.py has the same numbers.
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "weir_deadlines.bpf.h"

#define WEIR_SOL 0x57656972 // "Weir"
#define WEIR_DEADLINE 1
#define EINVAL 22
#define ENOMEM 12
#define REFUSE 0
#define ALLOW 1
#define ORIGINAL 0   // as optlen: the kernel uses the caller's data; needed for options longer than a page
#define HANDLED (-1) // as optlen: the kernel does not look at the option

static __always_inline int refuse(int error)
{
	bpf_set_retval(-error);
	return REFUSE;
}

// The bytes that the application has written and the peer has not acknowledged. Before a connection begins there are
// none, and write_seq has no meaning. struct bpf_tcp_sock does not have it, and the verifier does not let a program
// read it from ctx->sk, so it is read by way of the kernel's context. Meanwhile the kernel holds the lock of the
// socket.
static __always_inline u32 unacknowledged_bytes(struct bpf_sockopt *ctx, const struct bpf_tcp_sock *tp)
{
	struct tcp_sock *kernel_tp = (struct tcp_sock *)BPF_CORE_READ((struct bpf_sockopt_kern *)ctx, sk);

	if (BPF_CORE_READ(kernel_tp, inet_conn.icsk_inet.sk.__sk_common.skc_state) == TCP_CLOSE)
		return 0;
	return BPF_CORE_READ(kernel_tp, write_seq) - tp->snd_una;
}

// The message begins with the byte that the application writes next.
SEC("cgroup/setsockopt")
int set_deadline(struct bpf_sockopt *ctx)
{
	struct weir_deadline_option *option = ctx->optval;
	struct weir_deadline *deadline;
	struct bpf_tcp_sock *tp;

	if (ctx->level != WEIR_SOL) {
		ctx->optlen = ORIGINAL;
		return ALLOW;
	}
	tp = ctx->sk ? bpf_tcp_sock(ctx->sk) : NULL;
	if (!tp || ctx->optname != WEIR_DEADLINE || ctx->optlen != sizeof(*option) ||
	    (void *)(option + 1) > ctx->optval_end)
		return refuse(EINVAL);
	switch (weir_deadline_check(option)) {
	case WEIR_DEADLINE_REFUSED:
		return refuse(EINVAL);
	case WEIR_DEADLINE_CLEARED:
		bpf_sk_storage_delete(&weir_deadlines, ctx->sk);
		break;
	case WEIR_DEADLINE_SET:
		deadline = bpf_sk_storage_get(&weir_deadlines, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
		if (!deadline)
			return refuse(ENOMEM);
		deadline->at_ns = bpf_ktime_get_ns() + option->time_left_us * 1000;
		deadline->end_byte = tp->bytes_acked + unacknowledged_bytes(ctx, tp) + option->size_bytes;
		break;
	}
	ctx->optlen = HANDLED;
	return ALLOW;
}

char _license[] SEC("license") = "GPL";
