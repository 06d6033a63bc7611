/*
 * An iterator of the TCP sockets of a namespace: tells those that a new limit will hold their rate before it begins,
 * and lets pl_pace go on. Run twice before, it gives each an equal share: all take theirs, then all know what is left.
 */
#include "bpf/pace.h"

#define TCP_CONGESTION 13
#define TCP_BPF_SOCK_OPS_CB_FLAGS 1008 /* since 6.12 */

/* The endpoint that is about to be given limits, and its flags then. Set by who runs it. */
__u32 coming_ifindex = 0, coming_flags = 0;

/* Its rates where they are to change, in bits per second, by direction; was: 0 where not, and once the share has. */
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

/*
 * One flow's share changes as the rate does, under the lock: what is charged meanwhile counts. Rates are in units of
 * 4096 bit/s, so that the products fit, and never 0.
 */
static __always_inline void change_share(enum limit_direction direction)
{
	struct limit_key key = {.ifindex = coming_ifindex, .direction = direction};
	__u64 was = changes[direction].was >> 12 | 1, rate = changes[direction].rate >> 12 | 1;
	struct limit_state *state;

	if (!changes[direction].was)
		return;
	changes[direction].was = 0;
	state = map_find(&limit_state_v1, &key);
	if (!state)
		return;
	bpf_spin_lock(&state->lock);
	state->fair_bytes_per_s = state->fair_bytes_per_s * rate / was;
	state->paced_bytes_per_s = state->paced_bytes_per_s * rate / was;
	bpf_spin_unlock(&state->lock);
}

/*
 * The congestion window of a connection that had no limit may be of megabytes, and its packets of 64 KiB, too large for
 * flows to share by. A clamp does not make it smaller as long as it is not used up; a congestion control may. This one
 * does nothing else, when it is chosen: the connection has its own again at once.
 */
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
	.name = "pl_cut",
};

/* Those that set their window themselves, such as bbr, are left alone. */
static __always_inline void cut_window(struct tcp_sock *tcp, const struct told *told)
{
	char name[16] = {}, cut[16] = "pl_cut";

	if (tcp->snd_cwnd <= told->clamp || tcp->inet_conn.icsk_ca_ops->cong_control)
		return;
	if (bpf_getsockopt(tcp, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return;
	if (!bpf_setsockopt(tcp, SOL_TCP, TCP_CONGESTION, cut, sizeof(cut)))
		bpf_setsockopt(tcp, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
}

SEC("iter/tcp")
int pl_tell(struct bpf_iter__tcp *ctx)
{
	struct sock_common *socket = ctx->sk_common;
	struct tcp_sock *tcp = socket ? bpf_skc_to_tcp_sock(socket) : 0;
	struct told *told, nothing = {.rate = UNPACED, .clamp = UNCLAMPED};
	struct ends ends = {};
	bool is_there;
	__u64 rate;
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
	calls = tcp->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG;
	if (bpf_setsockopt(tcp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &calls, sizeof(calls)))
		return 0;
	told = bpf_sk_storage_get(&told_rates, tcp, &nothing, BPF_SK_STORAGE_GET_F_CREATE);
	if (!told)
		return 0;
	told->rooms = is_there ? told->rooms & ~EXPECTS : told->rooms | EXPECTS;
	/* What has nothing to send takes no share before it does. */
	rate = find_rate(&ends, told, tcp->write_seq != tcp->snd_una ? SENDS : WAITS);
	tell(tcp, told, rate, clamp_for(tcp->srtt_us, tcp->mss_cache, rate));
	cut_window(tcp, told);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
