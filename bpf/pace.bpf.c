/* sock_ops on the cgroup v2 root: tells the TCP senders of limited flows the rate to send at. */
#include "bpf/pace.h"

#define TCP_BPF_IW 1001

#define FIRST_WINDOW 10
/* The kernel paces what comes after the first 10 segments. */
#define FIRST_PACED 10

static __always_inline __u32 netns_of(struct bpf_sock_ops *ops)
{
	struct bpf_sock *socket = ops->sk;
	struct tcp_sock *tcp = socket ? bpf_skc_to_tcp_sock(socket) : 0;

	return tcp ? tcp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net->ns.inum : 0;
}

/* The compiler would make one load at a computed place of several: the verifier refuses that of a context. */
#define LOAD_FIELD(ops, field)                                                                                         \
	({                                                                                                             \
		__u32 loaded;                                                                                          \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                                                                  \
			     : "=r"(loaded)                                                                            \
			     : "r"(ops), "i"(__builtin_offsetof(struct bpf_sock_ops, field)));                         \
		loaded;                                                                                                \
	})

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

/* The other way round, for a flow that ends: what it has used is for the others at once. */
static __always_inline void give_back(__u32 ifindex, enum limit_direction direction, const struct told *told)
{
	struct limit_key key = {.ifindex = ifindex, .direction = direction};
	struct limit_state *state = map_find(&limit_state_v1, &key);
	__u64 whole = whole_of(ifindex, direction), part;

	if (!whole || !state || !(told->rooms & 1 << direction) || state->epoch - told->epochs[direction] > 1)
		return;
	bpf_spin_lock(&state->lock);
	part = state->fair_bytes_per_s * ONE / whole;
	if (part < ONE / 2)
		state->fair_bytes_per_s = state->fair_bytes_per_s * ONE / (ONE - part);
	else if (part < ONE)
		state->fair_bytes_per_s = whole;
	if (state->flows)
		state->flows--;
	if (state->flows_seen)
		state->flows_seen--;
	bpf_spin_unlock(&state->lock);
}

static __always_inline void ask_for(struct bpf_sock_ops *ops, int calls)
{
	int flags = ops->bpf_sock_ops_cb_flags;

	if ((flags & calls) != calls)
		bpf_sock_ops_cb_flags_set(ops, flags | calls);
}

/*
 * A connection without a limit costs nothing between its beginning and its end. Where it meets one that came later, it
 * is told by pl_tell, or else when the first of its segments was dropped.
 */
static __always_inline void pace(struct bpf_sock_ops *ops, enum progress progress)
{
	struct bpf_sock *socket = ops->sk;
	struct told *told, nothing = {.rate = UNPACED, .clamp = UNCLAMPED};
	struct ends ends = {};
	__u64 rate;
	int window;

	if (!socket || !look_up(ops, &ends))
		return;
	if (!is_limited(&ends)) {
		told = bpf_sk_storage_get(&told_rates, socket, 0, 0);
		if (told && !(told->rooms & EXPECTS)) {
			told->rooms = 0;
			tell(ops, told, 0, UNCLAMPED);
		}
		ask_for(ops, BPF_SOCK_OPS_RETRANS_CB_FLAG);
		return;
	}
	ask_for(ops, BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG);
	told = bpf_sk_storage_get(&told_rates, socket, &nothing, BPF_SK_STORAGE_GET_F_CREATE);
	if (!told)
		return;
	told->rooms &= ~EXPECTS;
	rate = find_rate(&ends, told, progress);
	tell(ops, told, rate, clamp_for(ops->srtt_us, ops->mss_cache, rate));
	if (progress == STARTS && told->clamp < FIRST_WINDOW) {
		window = told->clamp;
		bpf_setsockopt(ops, SOL_TCP, TCP_BPF_IW, &window, sizeof(window));
	}
}

static __always_inline void end(struct bpf_sock_ops *ops)
{
	struct bpf_sock *socket = ops->sk;
	struct ends ends = {};
	struct told *told = socket ? bpf_sk_storage_get(&told_rates, socket, 0, 0) : 0;

	if (!told || !look_up(ops, &ends))
		return;
	if (ends.sender_flags & INTERFACE_LIMIT_EGRESS)
		give_back(ends.sender_ifindex, LIMIT_EGRESS, told);
	if (ends.receiver_flags & INTERFACE_LIMIT_INGRESS)
		give_back(ends.receiver_ifindex, LIMIT_INGRESS, told);
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

char _license[] SEC("license") = "Dual MIT/GPL";
