/* sock_ops on the cgroup v2 root: tells the TCP senders of limited flows the rate to send at. */
#include "bpf/packet.h"
#include "bpf/rate.h"

#include <bpf/bpf_core_read.h>

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SOL_TCP 6
#define SO_MAX_PACING_RATE 47
#define TCP_BPF_IW 1001
#define TCP_BPF_SNDCWND_CLAMP 1002

/* Sockets of the node itself are known by it. Set by the loader. */
const volatile __u32 node_netns = 0;

#define UNPACED (~0U)
#define UNCLAMPED 0x7fffffff
#define FIRST_WINDOW 10
/* A window holds what is sent in the round trip, and in this time besides. */
#define WINDOW_SLACK_US 4000
/* The kernel makes its packets larger than 1 ms of the rate where round trips are shorter. */
#define SHORT_ROUND_TRIP_US 4000
#define SMALLEST_WINDOW 4
#define IDLE_NS (10 * NS_PER_MS)
/* A share of so much more than the whole has nobody taken yet. */
#define UNTAKEN 1
/* The kernel paces what comes after the first 10 segments. */
#define FIRST_PACED 10
/* Backlogs that a connection waits for when it begins; a longer one is of a clock that jumped. */
#define SHORTEST_WAIT_NS (20 * NS_PER_MS)
#define LONGEST_WAIT_NS (4 * NS_PER_S)

/* What a socket was told last. */
struct told {
	__u32 rate;      /* bytes per second */
	__u32 clamp;     /* segments */
	__u32 epochs[2]; /* by direction: the last one it was counted in */
	__u32 rooms;     /* bits by direction: it has taken its share */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct told);
} told_rates SEC(".maps");

/* Of a connection: just established, has nothing sent yet, sends what is not paced, or more. */
enum progress { STARTS, WAITS, BEGINS, SENDS };

/* The endpoints at both ends of a connection, as far as they are of this node. */
struct ends {
	struct interface *sender;
	__u32 sender_ifindex;
	__u32 receiver_flags;
	__u32 receiver_ifindex; /* 0: none of this node */
	struct ip_addr local, remote;
};

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

static __always_inline void find_node_receiver(struct ends *ends)
{
	struct sender_key key = {.netns = node_netns, .addr = ends->remote};
	__u32 *ifindex = bpf_map_lookup_elem(&senders_v1, &key);
	struct interface *receiver;

	if (!ifindex)
		return;
	receiver = bpf_map_lookup_elem(&interfaces_v1, ifindex);
	if (!receiver)
		return;
	ends->receiver_ifindex = *ifindex;
	ends->receiver_flags = receiver->flags;
}

/* False for a connection that no endpoint of ours has a part in. */
static __always_inline bool find_ends(struct bpf_sock_ops *ops, struct ends *ends)
{
	struct sender_key key = {.netns = netns_of(ops)};
	__u32 *ifindex;

	read_addresses(ops, ends);
	if (key.netns == node_netns) {
		find_node_receiver(ends);
		return ends->receiver_ifindex;
	}
	key.addr = ends->local;
	ifindex = bpf_map_lookup_elem(&senders_v1, &key);
	if (!ifindex)
		return false;
	ends->sender_ifindex = *ifindex;
	ends->sender = bpf_map_lookup_elem(&interfaces_v1, ifindex);
	if (ends->sender) {
		struct address_key there = {.network = ends->sender->network, .addr = ends->remote};
		struct address *receiver = bpf_map_lookup_elem(&addresses_v1, &there);

		if (receiver) {
			ends->receiver_ifindex = receiver->ifindex;
			ends->receiver_flags = receiver->flags;
		} else {
			find_node_receiver(ends);
		}
	}
	return ends->sender;
}

static __always_inline bool is_shaped(__u32 flags, __u32 ifindex, enum limit_direction direction,
				      const struct ip_addr *other)
{
	struct exempt_key key = {
		.prefixlen = 192, .ifindex = bpf_htonl(ifindex), .direction = bpf_htonl(direction), .addr = *other};
	__u32 *shaped;

	if (!(flags & INTERFACE_LIMIT_EXEMPT))
		return true;
	shaped = bpf_map_lookup_elem(&exempt_v1, &key);
	return !shaped || *shaped;
}

/* Nobody has sent for the time of some frames: what is known of shares is of flows that are gone. */
static __always_inline bool is_idle(const struct limit_state *state, __u64 whole, __u64 now)
{
	__u64 idle = IDLE_NS + 4 * time_of(FRAME_BITS / 8, whole);

	return state->free_at_ns <= now + idle && now - state->large_at_ns > idle;
}

/* Bytes per second of the limit; 0 where there is none. */
static __always_inline __u64 whole_of(__u32 ifindex, enum limit_direction direction)
{
	struct bandwidth *given = bpf_map_lookup_elem(&bandwidths_v1, &ifindex);

	if (!given)
		return 0;
	return (direction == LIMIT_INGRESS ? given->ingress_rate_bits_per_s : given->egress_rate_bits_per_s) / 8;
}

/* A connection after some silence begins with the whole, which the first to send keeps. */
static __always_inline void begin_anew(struct limit_state *state, __u64 whole)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_spin_lock(&state->lock);
	if (whole && (!state->fair_bytes_per_s || is_idle(state, whole, now))) {
		state->fair_bytes_per_s = whole + UNTAKEN;
		state->paced_bytes_per_s = whole;
		state->flows = 0;
		state->large_at_ns = now;
		state->window_since_ns = now;
		state->window_charged_ns = 0;
	}
	bpf_spin_unlock(&state->lock);
}

/* A flow that sends for the first time is given a share at once, so that many that begin together do not all take the
 * whole. */
static __always_inline void make_room(struct limit_state *state, __u64 whole)
{
	__u64 fair;

	bpf_spin_lock(&state->lock);
	fair = state->fair_bytes_per_s;
	if (whole) {
		fair = fair == whole + UNTAKEN ? whole : fair * ONE / (ONE + fair * ONE / whole);
		if (fair < whole / 4096 + 1)
			fair = whole / 4096 + 1;
		state->fair_bytes_per_s = fair;
		state->paced_bytes_per_s = fair;
	}
	bpf_spin_unlock(&state->lock);
}

/* The other way round, for a flow that ends: what it has used is for the others at once. */
static __always_inline void give_back(__u32 ifindex, enum limit_direction direction, const struct told *told)
{
	struct limit_key key = {.ifindex = ifindex, .direction = direction};
	struct limit_state *state = bpf_map_lookup_elem(&limit_state_v1, &key);
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

/* The first segments of many connections are ahead of what is paced: the next two leave when those have left. */
static __always_inline __u64 behind_backlog(const struct limit_state *state, __u64 rate)
{
	__u64 now = bpf_ktime_get_ns(), backlog = state->free_at_ns > now ? state->free_at_ns - now : 0, slow;

	if (backlog < SHORTEST_WAIT_NS || backlog > LONGEST_WAIT_NS)
		return rate;
	slow = 2 * (FRAME_BITS / 8) * NS_PER_S / backlog;
	return slow < rate ? slow : rate;
}

/* Bytes per second the limit leaves to one flow; 0 where there is none. */
static __always_inline __u64 rate_of(__u32 ifindex, enum limit_direction direction, struct told *told,
				     enum progress progress)
{
	struct limit_key key = {.ifindex = ifindex, .direction = direction};
	struct limit_state *state = bpf_map_lookup_elem(&limit_state_v1, &key);

	if (!state)
		return 0;
	if (progress == STARTS)
		begin_anew(state, whole_of(ifindex, direction));
	if (progress >= BEGINS && !(told->rooms & 1 << direction)) {
		told->rooms |= 1 << direction;
		make_room(state, whole_of(ifindex, direction));
	}
	__sync_fetch_and_add(&state->paced, 1);
	if (told->epochs[direction] != state->epoch) {
		told->epochs[direction] = state->epoch;
		__sync_fetch_and_add(&state->flows_seen, 1);
	}
	return progress == BEGINS ? behind_backlog(state, state->paced_bytes_per_s) : state->paced_bytes_per_s;
}

/* The smaller of the two limits of a connection; 0 where neither is there. */
static __always_inline __u64 find_rate(struct ends *ends, struct told *told, enum progress progress)
{
	const __u32 egress = INTERFACE_LIMIT_EGRESS, ingress = INTERFACE_LIMIT_INGRESS;
	struct interface *sender = ends->sender;
	__u64 rate = 0, other;

	/* Or the compiler asks for something else in its place, by which 6.1 does not know that it is there. */
	barrier_var(sender);
	if (sender && (sender->flags & (egress | INTERFACE_LIMIT_UNPACED_EGRESS)) == egress &&
	    is_shaped(sender->flags, ends->sender_ifindex, LIMIT_EGRESS, &ends->remote))
		rate = rate_of(ends->sender_ifindex, LIMIT_EGRESS, told, progress);
	if ((ends->receiver_flags & (ingress | INTERFACE_LIMIT_UNPACED_INGRESS)) == ingress &&
	    is_shaped(ends->receiver_flags, ends->receiver_ifindex, LIMIT_INGRESS, &ends->local)) {
		other = rate_of(ends->receiver_ifindex, LIMIT_INGRESS, told, progress);
		if (other && (!rate || other < rate))
			rate = other;
	}
	return rate;
}

/* Less than an eighth is no news. */
static __always_inline bool differs(__u32 a, __u32 b)
{
	return a > b ? a - b > b >> 3 : b - a > a >> 3;
}

/*
 * Where round trips are short no window is small enough to slow a sender, but a large one makes large bursts: a packet
 * holds up to half a window. Elsewhere the window is the congestion control's alone.
 */
static __always_inline __u32 clamp_for(struct bpf_sock_ops *ops, __u64 rate)
{
	__u32 round_trip_us = ops->srtt_us >> 3, mss = ops->mss_cache ?: 1;
	__u64 window;

	if (!rate || round_trip_us > SHORT_ROUND_TRIP_US)
		return UNCLAMPED;
	window = rate * (2 * round_trip_us + WINDOW_SLACK_US) / 1000000 / mss;
	if (window < SMALLEST_WINDOW)
		return SMALLEST_WINDOW;
	return window < UNCLAMPED ? window : UNCLAMPED;
}

static __always_inline void tell(struct bpf_sock_ops *ops, struct told *told, __u64 found)
{
	__u32 rate = found && found < UNPACED ? found : UNPACED;
	int clamp = clamp_for(ops, found);

	if (rate != told->rate) {
		told->rate = rate;
		bpf_setsockopt(ops, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
	}
	if (differs(clamp, told->clamp)) {
		told->clamp = clamp;
		bpf_setsockopt(ops, SOL_TCP, TCP_BPF_SNDCWND_CLAMP, &clamp, sizeof(clamp));
	}
}

static __always_inline void ask_for(struct bpf_sock_ops *ops, int calls)
{
	int flags = ops->bpf_sock_ops_cb_flags;

	if ((flags & calls) != calls)
		bpf_sock_ops_cb_flags_set(ops, flags | calls);
}

/*
 * A connection without a limit costs nothing between its beginning and its end. Where it meets one that came later, it
 * is told when the first of its segments was dropped.
 */
static __always_inline void pace(struct bpf_sock_ops *ops, enum progress progress)
{
	struct bpf_sock *socket = ops->sk;
	struct told *told, nothing = {.rate = UNPACED, .clamp = UNCLAMPED};
	struct ends ends = {};
	__u64 rate;
	int window;

	if (!socket || !find_ends(ops, &ends))
		return;
	if (!((ends.sender ? ends.sender->flags : 0) & INTERFACE_LIMIT_EGRESS) &&
	    !(ends.receiver_flags & INTERFACE_LIMIT_INGRESS)) {
		told = bpf_sk_storage_get(&told_rates, socket, 0, 0);
		if (told)
			tell(ops, told, 0);
		ask_for(ops, BPF_SOCK_OPS_RETRANS_CB_FLAG);
		return;
	}
	ask_for(ops, BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG);
	told = bpf_sk_storage_get(&told_rates, socket, &nothing, BPF_SK_STORAGE_GET_F_CREATE);
	if (!told)
		return;
	rate = find_rate(&ends, told, progress);
	tell(ops, told, rate);
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

	if (!told || !find_ends(ops, &ends))
		return;
	if (ends.sender && ends.sender->flags & INTERFACE_LIMIT_EGRESS)
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
