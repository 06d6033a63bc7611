// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * An iterator of the TCP sockets of a namespace: announces a limit to existing connections before it is enforced, and
 * enables the callbacks of pl_pace on them. The first run lets each join the limit, the second announces the shares.
 */
#include "bpf/pace.h"

#define TCP_CONGESTION 13
#define TCP_BPF_SOCK_OPS_CB_FLAGS 1008 /* since 6.12 */

/* The endpoint that is about to be given limits, and its flags then. Set by the loader. */
__u32 coming_ifindex = 0, coming_flags = 0;

/* Its rates if they are to change, in bits per second, by direction; was: 0 if not, and once the share has changed. */
struct {
	__u64 was, rate;
} changes[2] = {};

static __always_inline bool may_send(const struct sock_common *socket)
{
	return 1 << socket->skc_state & (1 << BPF_TCP_ESTABLISHED | 1 << BPF_TCP_CLOSE_WAIT | 1 << BPF_TCP_FIN_WAIT1 |
					 1 << BPF_TCP_CLOSING | 1 << BPF_TCP_LAST_ACK);
}

static __always_inline void read_addresses(const struct sock_common *socket, struct ends *ends)
{
	if (socket->skc_family == AF_INET) {
		ends->local = mapped_ipv4(socket->skc_rcv_saddr);
		ends->remote = mapped_ipv4(socket->skc_daddr);
		return;
	}
	for (int i = 0; i < 4; i++) {
		ends->local.word[i] = socket->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
		ends->remote.word[i] = socket->skc_v6_daddr.in6_u.u6_addr32[i];
	}
}

static __always_inline void expect(struct ends *ends)
{
	if (ends->sender_ifindex == coming_ifindex)
		ends->sender_flags |= coming_flags;
	if (ends->receiver_ifindex == coming_ifindex)
		ends->receiver_flags |= coming_flags;
}

/* A lower rate is announced before it is enforced. */
static __always_inline void change_share(enum limit_direction direction)
{
	struct limit_key key = {.ifindex = coming_ifindex, .direction = direction};
	__u64 was = changes[direction].was, rate = changes[direction].rate;
	struct limit_state *state;
	struct limit limit;

	if (!was)
		return;
	changes[direction].was = 0;
	state = map_find(&limit_state_v5, &key);
	/* A group's share of it is less than what was announced only for as long as it takes to report. */
	if (!state || state->group || !find_rates(coming_ifindex, direction, state, &limit))
		return;
	bpf_spin_lock(&state->lock);
	state->coming_bits_per_s = rate < was ? rate : 0;
	set_share(state, &limit);
	bpf_spin_unlock(&state->lock);
}

/* Those that set their window themselves, such as bbr, are left alone. */
static __always_inline void cut_window(struct tcp_sock *tcp, const struct announced *announced)
{
	char name[16] = {}, cut[16] = "pl_cut_window";

	if (tcp->snd_cwnd <= announced->clamp || tcp->inet_conn.icsk_ca_ops->cong_control)
		return;
	if (bpf_getsockopt(tcp, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return;
	if (!bpf_setsockopt(tcp, SOL_TCP, TCP_CONGESTION, cut, sizeof(cut)))
		bpf_setsockopt(tcp, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
}

SEC("iter/tcp")
int pl_notify(struct bpf_iter__tcp *ctx)
{
	struct sock_common *socket = ctx->sk_common;
	struct tcp_sock *tcp = socket ? bpf_skc_to_tcp_sock(socket) : 0;
	struct announced *announced, nothing = {.rate = UNPACED, .clamp = UNCLAMPED, .own_rate = UNPACED};
	struct sender sender = {};
	struct ends ends = {};
	bool is_there, was_paced;
	enum progress progress;
	__u32 rate = 0;
	int calls;

	change_share(LIMIT_INGRESS);
	change_share(LIMIT_EGRESS);
	if (!tcp || !may_send(socket))
		return 0;
	read_addresses(socket, &ends);
	if (!find_ends(&ends, socket->skc_net.net->ns.inum))
		return 0;
	is_there = is_limited(&ends);
	expect(&ends);
	if (!is_limited(&ends))
		return 0;
	was_paced = tcp->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_RTT_CB_FLAG;
	calls = tcp->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG;
	if (bpf_setsockopt(tcp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &calls, sizeof(calls)))
		return 0;
	announced = bpf_sk_storage_get(&paced_sockets, tcp, &nothing, BPF_SK_STORAGE_GET_F_CREATE);
	if (!announced)
		return 0;
	if (announced->is_known || !was_paced)
		note_own_rate(announced, (void *)tcp);
	announced->is_known = true;
	announced->is_expecting = !is_there;
	look_at((void *)tcp, announced, &sender);
	if (!was_paced || !ends.sender_ifindex) /* nobody has noted whether its packets pass */
		announced->passed_ns = sender.now;
	/* Its demand before this limit is unknown: with something to send it takes a whole share. */
	sender.is_backlogged = tcp->write_seq != tcp->snd_una;
	sender.demand_per_s = NS_PER_S;
	progress = sender.is_backlogged ? SENDS : WAITS;
	forget_rates(announced, &ends);
	if (is_paced_by_sender(&ends))
		rate = rate_of(ends.sender_ifindex, LIMIT_EGRESS, announced, &sender, progress);
	if (is_paced_by_receiver(&ends))
		rate = smaller_rate(rate, rate_of(ends.receiver_ifindex, LIMIT_INGRESS, announced, &sender, progress));
	announce(tcp, announced, (void *)tcp, rate, clamp_for(tcp->srtt_us, tcp->mss_cache, rate));
	cut_window(tcp, announced);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
