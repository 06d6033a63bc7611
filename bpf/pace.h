/* Which limits hold a TCP connection, what they leave to it, and how its socket is announced. */
#pragma once

#include "bpf/packet.h"
#include "maps/abi/fair_share.h"

#include <bpf/bpf_core_read.h>

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SOL_TCP 6
#define SO_MAX_PACING_RATE 47
#define TCP_BPF_SNDCWND_CLAMP 1002

/* Sockets of the node itself are known by it. Set by the loader. */
const volatile __u32 node_netns = 0;

#define UNPACED (~0U)
#define UNCLAMPED 0x7fffffff
/* A window holds what is sent in the round trip, and in this time besides. */
#define WINDOW_SLACK_US 4000
/* The kernel makes its packets larger than 1 ms of the rate where round trips are shorter. */
#define SHORT_ROUND_TRIP_US 4000
#define SMALLEST_WINDOW 4
/* Backlogs that a connection waits for when it begins; a longer one is of a clock that jumped. */
#define SHORTEST_WAIT_NS (20 * NS_PER_MS)
#define LONGEST_WAIT_NS (4 * NS_PER_S)

/* What was announced to a socket last. */
struct announced {
	__u32 rate;      /* bytes per second */
	__u32 clamp;     /* segments */
	__u32 epochs[2]; /* by direction: the last one it was counted in */
	__u32 joined;    /* bits by direction: it counts as a flow of the limit; and EXPECTS */
};

/* A limit was announced to it that is not enforced yet. */
#define EXPECTS (1 << 2)

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct announced);
} paced_sockets SEC(".maps");

/* Of a connection: just established, has nothing sent yet, sends what is not paced, or more. */
enum progress { STARTS, WAITS, BEGINS, SENDS };

/* The endpoints at both ends of a connection, as far as they are of this node. */
struct ends {
	__u32 sender_ifindex, sender_flags; /* 0: none of this node */
	__u32 receiver_ifindex, receiver_flags;
	struct ip_addr local, remote;
};

static __always_inline void find_node_receiver(struct ends *ends)
{
	struct sender_key key = {.netns = node_netns, .addr = ends->remote};
	__u32 *ifindex = map_find(&senders_v1, &key);
	struct interface *receiver;

	if (!ifindex)
		return;
	receiver = map_find(&interfaces_v1, ifindex);
	if (!receiver)
		return;
	ends->receiver_ifindex = *ifindex;
	ends->receiver_flags = receiver->flags;
}

/* False for a connection that no endpoint of ours has a part in. The addresses are known. */
static __always_inline bool find_ends(struct ends *ends, __u32 netns)
{
	struct sender_key key = {.netns = netns, .addr = ends->local};
	struct interface *sender;
	__u32 *ifindex;

	if (netns == node_netns) {
		find_node_receiver(ends);
		return ends->receiver_ifindex;
	}
	ifindex = map_find(&senders_v1, &key);
	if (!ifindex)
		return false;
	ends->sender_ifindex = *ifindex;
	sender = map_find(&interfaces_v1, ifindex);
	if (sender) {
		struct address_key there = {.network = sender->network, .addr = ends->remote};
		struct address *receiver = map_find(&addresses_v1, &there);

		ends->sender_flags = sender->flags;
		if (receiver) {
			ends->receiver_ifindex = receiver->ifindex;
			ends->receiver_flags = receiver->flags;
		} else {
			find_node_receiver(ends);
		}
	}
	return sender;
}

static __always_inline bool is_limited(const struct ends *ends)
{
	return ends->sender_flags & INTERFACE_LIMIT_EGRESS || ends->receiver_flags & INTERFACE_LIMIT_INGRESS;
}

static __always_inline bool is_shaped(__u32 flags, __u32 ifindex, enum limit_direction direction,
				      const struct ip_addr *other)
{
	struct exempt_key key = {
		.prefixlen = 192, .ifindex = bpf_htonl(ifindex), .direction = bpf_htonl(direction), .addr = *other};
	__u32 *shaped;

	if (!(flags & INTERFACE_LIMIT_EXEMPT))
		return true;
	shaped = map_find(&exempt_v1, &key);
	return !shaped || *shaped & PREFIX_SET || (*shaped & PREFIX_IPV6 && is_mapped_ipv4(other));
}

/* Bytes per second of the limit; 0 where there is none. */
static __always_inline __u64 whole_of(__u32 ifindex, enum limit_direction direction)
{
	struct bandwidth *given = map_find(&bandwidths_v1, &ifindex);

	if (!given)
		return 0;
	return (direction == LIMIT_INGRESS ? given->ingress_rate_bits_per_s : given->egress_rate_bits_per_s) / 8;
}

/* A connection after some silence begins with the whole, which the first to send keeps. */
static __always_inline void restart_if_idle(struct limit_state *state, __u64 whole)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_spin_lock(&state->lock);
	if (whole && (!state->fair_bytes_per_s || is_idle(state, whole, now)))
		restart_share(state, whole, now);
	bpf_spin_unlock(&state->lock);
}

/*
 * A flow that sends for the first time joins at once, so that many that begin together do not all take the whole.
 */
static __always_inline void join(struct limit_state *state, __u64 whole)
{
	bpf_spin_lock(&state->lock);
	if (whole)
		join_share(state, whole);
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
static __always_inline __u64 rate_of(__u32 ifindex, enum limit_direction direction, struct announced *announced,
				     enum progress progress)
{
	struct limit_key key = {.ifindex = ifindex, .direction = direction};
	struct limit_state *state = map_find(&limit_state_v1, &key);

	if (!state)
		return 0;
	if (progress == STARTS)
		restart_if_idle(state, whole_of(ifindex, direction));
	if (progress >= BEGINS && !(announced->joined & 1 << direction)) {
		announced->joined |= 1 << direction;
		join(state, whole_of(ifindex, direction));
	}
	__sync_fetch_and_add(&state->paced, 1);
	if (announced->epochs[direction] != state->epoch) {
		announced->epochs[direction] = state->epoch;
		__sync_fetch_and_add(&state->flows_seen, 1);
	}
	return progress == BEGINS ? behind_backlog(state, state->paced_bytes_per_s) : state->paced_bytes_per_s;
}

/* The smaller of the two limits of a connection; 0 where neither is there. */
static __always_inline __u64 find_rate(const struct ends *ends, struct announced *announced, enum progress progress)
{
	const __u32 egress = INTERFACE_LIMIT_EGRESS, ingress = INTERFACE_LIMIT_INGRESS;
	__u64 rate = 0, other;

	if ((ends->sender_flags & (egress | INTERFACE_LIMIT_UNPACED_EGRESS)) == egress &&
	    is_shaped(ends->sender_flags, ends->sender_ifindex, LIMIT_EGRESS, &ends->remote))
		rate = rate_of(ends->sender_ifindex, LIMIT_EGRESS, announced, progress);
	if ((ends->receiver_flags & (ingress | INTERFACE_LIMIT_UNPACED_INGRESS)) == ingress &&
	    is_shaped(ends->receiver_flags, ends->receiver_ifindex, LIMIT_INGRESS, &ends->local)) {
		other = rate_of(ends->receiver_ifindex, LIMIT_INGRESS, announced, progress);
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
static __always_inline __u32 clamp_for(__u32 srtt_us, __u32 mss, __u64 rate)
{
	__u32 round_trip_us = srtt_us >> 3;
	__u64 window;

	if (!rate || round_trip_us > SHORT_ROUND_TRIP_US)
		return UNCLAMPED;
	window = rate * (2 * round_trip_us + WINDOW_SLACK_US) / 1000000 / (mss ?: 1);
	if (window < SMALLEST_WINDOW)
		return SMALLEST_WINDOW;
	return window < UNCLAMPED ? window : UNCLAMPED;
}

/* `socket`: what bpf_setsockopt() takes in a program of this kind. */
static __always_inline void announce(void *socket, struct announced *announced, __u64 found, int clamp)
{
	__u32 rate = found && found < UNPACED ? found : UNPACED;

	if (rate != announced->rate) {
		announced->rate = rate;
		bpf_setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
	}
	if (differs(clamp, announced->clamp)) {
		announced->clamp = clamp;
		bpf_setsockopt(socket, SOL_TCP, TCP_BPF_SNDCWND_CLAMP, &clamp, sizeof(clamp));
	}
}
