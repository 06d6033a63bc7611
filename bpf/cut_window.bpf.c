// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A congestion control that does nothing but cut the window to its clamp, when it is chosen. The window of a connection
 * that had no limit may be of megabytes, and its packets of 64 KiB, too large for flows to share by. A clamp does not
 * make it smaller unless it is used up. notify_sockets chooses this one, and then the connection's own again at once.
 */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

SEC("struct_ops/pl_cut_init")
void pl_cut_init(__u64 *ctx)
{
	struct tcp_sock *tcp = (struct tcp_sock *)ctx[0];

	if (tcp->snd_cwnd > tcp->snd_cwnd_clamp)
		tcp->snd_cwnd = tcp->snd_cwnd_clamp;
}

SEC("struct_ops/pl_cut_ssthresh")
__u32 pl_cut_ssthresh(__u64 *ctx)
{
	return ((struct tcp_sock *)ctx[0])->snd_ssthresh;
}

SEC("struct_ops/pl_cut_undo")
__u32 pl_cut_undo(__u64 *ctx)
{
	return ((struct tcp_sock *)ctx[0])->snd_cwnd;
}

SEC("struct_ops/pl_cut_avoid")
void pl_cut_avoid(__u64 *ctx)
{
	(void)ctx;
}

SEC(".struct_ops")
struct tcp_congestion_ops pl_cut = {
	.init = (void *)pl_cut_init,
	.ssthresh = (void *)pl_cut_ssthresh,
	.undo_cwnd = (void *)pl_cut_undo,
	.cong_avoid = (void *)pl_cut_avoid,
	.name = "pl_cut_window",
};

char _license[] SEC("license") = "Dual MIT/GPL";
