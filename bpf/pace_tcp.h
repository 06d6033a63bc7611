/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* sock_ops on the cgroup v2 root: sets the pacing rate of the TCP senders of limited flows. */
#pragma once

#include "bpf/pace.h"

#define TCP_BPF_IW 1001

#define FIRST_WINDOW 10
/* The kernel paces what comes after the first 10 segments. */
#define FIRST_PACED 10

static __always_inline __u32 netns_of(struct bpf_sock_ops *ops)
{
	struct bpf_sock *socket = ops->sk;
	struct tcp_sock___podlane *tcp = socket ? (void *)bpf_skc_to_tcp_sock(socket) : 0;
	__u32 inum;

	if (!tcp)
		return 0;
	read_kernel(&inum, sizeof(inum), &read_net(&tcp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net)->ns.inum);
	return inum;
}

static __always_inline void read_addresses(struct bpf_sock_ops *ops, struct ends *ends)
{
	if (ops->family == AF_INET) {
		ends->local = mapped_ipv4(LOAD_FIELD(ops, local_ip4));
		ends->remote = mapped_ipv4(LOAD_FIELD(ops, remote_ip4));
		return;
	}
	ends->local.word[0] = LOAD_FIELD(ops, local_ip6[0]);
	ends->local.word[1] = LOAD_FIELD(ops, local_ip6[1]);
	ends->local.word[2] = LOAD_FIELD(ops, local_ip6[2]);
	ends->local.word[3] = LOAD_FIELD(ops, local_ip6[3]);
	ends->remote.word[0] = LOAD_FIELD(ops, remote_ip6[0]);
	ends->remote.word[1] = LOAD_FIELD(ops, remote_ip6[1]);
	ends->remote.word[2] = LOAD_FIELD(ops, remote_ip6[2]);
	ends->remote.word[3] = LOAD_FIELD(ops, remote_ip6[3]);
}

static __always_inline bool look_up(struct bpf_sock_ops *ops, struct ends *ends)
{
	read_addresses(ops, ends);
	return find_ends(ends, netns_of(ops));
}

/* A flow ends: its share is for the others at once. A function of its own, which the verifier checks once. */
__attribute__((noinline)) int leave(struct bpf_sock_ops *ops, __u32 ifindex, __u32 direction)
{
	struct bpf_sock *socket = ops->sk;
	struct announced *announced = socket ? bpf_sk_storage_get(&paced_sockets, socket, 0, 0) : 0;
	struct limit_key key = {.ifindex = ifindex, .direction = direction};
	struct limit_state *state = map_find(&limit_state_v5, &key);
	__u64 now = bpf_ktime_get_ns();
	struct flow_share *flow;
	struct limit limit;

	/* A bound that the verifier sees. */
	asm volatile("%0 &= 1" : "+r"(direction));
	flow = announced ? &announced->flows[direction] : 0;
	if (!flow || !flow->weight || !state || !find_rates(ifindex, direction, state, &limit))
		return 0;
	expire_in(ifindex, direction, now);
	bpf_spin_lock(&state->lock);
	renew_weight(state, &limit, flow, 0, now, 0);
	bpf_spin_unlock(&state->lock);
	return 0;
}

/* Bytes per second that a limit leaves to a connection. A function of its own, which the verifier checks once. */
__attribute__((noinline)) int share_of(struct bpf_sock_ops *ops, __u32 ifindex, __u32 direction, __u32 progress)
{
	struct bpf_sock *socket = ops->sk;
	struct tcp_sock___podlane *tcp = socket ? (void *)bpf_skc_to_tcp_sock(socket) : 0;
	struct announced *announced = socket ? bpf_sk_storage_get(&paced_sockets, socket, 0, 0) : 0;
	struct sender sender = {};

	if (!tcp || !announced)
		return 0;
	/* A bound that the verifier sees. */
	asm volatile("%0 &= 1" : "+r"(direction));
	look_at(tcp, announced, &sender);
	return rate_of(ifindex, direction, announced, &sender, progress);
}

static __always_inline void enable_callbacks(struct bpf_sock_ops *ops, int calls)
{
	int flags = ops->bpf_sock_ops_cb_flags;

	if ((flags & calls) != calls)
		bpf_sock_ops_cb_flags_set(ops, flags | calls);
}

/*
 * A connection without a limit costs nothing between its beginning and its end. A limit that came later is
 * announced to it by pl_notify, or else when the first of its segments was dropped.
 */
static __always_inline void pace(struct bpf_sock_ops *ops, enum progress progress)
{
	struct bpf_sock *socket = ops->sk;
	struct announced *announced, nothing = {.rate = UNPACED, .clamp = UNCLAMPED, .own_rate = UNPACED};
	struct tcp_sock___podlane *tcp = socket ? (void *)bpf_skc_to_tcp_sock(socket) : 0;
	struct ends ends = {};
	__u32 rate = 0;
	int window;

	if (!tcp || !look_up(ops, &ends))
		return;
	if (!is_limited(&ends)) {
		announced = bpf_sk_storage_get(&paced_sockets, socket, 0, 0);
		if (announced && !announced->is_expecting) {
			note_own_rate(announced, tcp);
			announce(ops, announced, tcp, 0, UNCLAMPED);
		}
		enable_callbacks(ops, BPF_SOCK_OPS_RETRANS_CB_FLAG);
		return;
	}
	enable_callbacks(ops, BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG);
	announced = bpf_sk_storage_get(&paced_sockets, socket, &nothing, BPF_SK_STORAGE_GET_F_CREATE);
	if (!announced)
		return;
	if (announced->is_known || progress == STARTS)
		note_own_rate(announced, tcp);
	announced->is_known = true;
	announced->is_expecting = false;
	if (!ends.sender_ifindex) /* the node's own: none of its packets passes pl_from_pod */
		announced->passed_ns = bpf_ktime_get_ns();
	forget_rates(announced, &ends);
	if (is_paced_by_sender(&ends))
		rate = share_of(ops, ends.sender_ifindex, LIMIT_EGRESS, progress);
	if (is_paced_by_receiver(&ends))
		rate = smaller_rate(rate, share_of(ops, ends.receiver_ifindex, LIMIT_INGRESS, progress));
	announce(ops, announced, tcp, rate, clamp_for(ops->srtt_us, ops->mss_cache, rate));
	if (progress == STARTS && announced->clamp < FIRST_WINDOW) {
		window = announced->clamp;
		bpf_setsockopt(ops, SOL_TCP, TCP_BPF_IW, &window, sizeof(window));
	}
}

static __always_inline void end(struct bpf_sock_ops *ops)
{
	struct bpf_sock *socket = ops->sk;
	struct ends ends = {};
	struct announced *announced = socket ? bpf_sk_storage_get(&paced_sockets, socket, 0, 0) : 0;

	if (!announced || !look_up(ops, &ends))
		return;
	if (ends.sender_flags & INTERFACE_LIMIT_EGRESS)
		leave(ops, ends.sender_ifindex, LIMIT_EGRESS);
	if (ends.receiver_flags & INTERFACE_LIMIT_INGRESS)
		leave(ops, ends.receiver_ifindex, LIMIT_INGRESS);
}

static __always_inline enum progress progress_of(struct bpf_sock_ops *ops)
{
	__u32 sent = LOAD_FIELD(ops, data_segs_out);

	return sent > FIRST_PACED ? SENDS : sent ? BEGINS : WAITS;
}

SEC("sockops")
int pl_pace(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		pace(ops, STARTS);
		break;
	case BPF_SOCK_OPS_RETRANS_CB:
	case BPF_SOCK_OPS_RTT_CB:
		pace(ops, progress_of(ops));
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == BPF_TCP_CLOSE)
			end(ops);
		break;
	}
	return 1;
}
