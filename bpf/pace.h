/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which limits hold a TCP connection, what they leave to it, and how its socket is announced. */
#pragma once

#include "bpf/exempt.h"
#include "bpf/rate.h"
#include "bpf/kernel.h"

#define SOL_SOCKET 1
#define SOL_TCP 6
#define SO_MAX_PACING_RATE 47
#define TCP_BPF_SNDCWND_CLAMP 1002

#define UNPACED (~0U)
#define UNCLAMPED 0x7fffffff
/* A window holds what is sent in the round trip, and in this time besides. */
#define WINDOW_SLACK_US 4000
/* The kernel makes its packets larger than 1 ms of the rate if round trips are shorter. */
#define SHORT_ROUND_TRIP_US 4000
#define SMALLEST_WINDOW 4

/* Of a connection: just established, has nothing sent yet, sends its first window, or more. */
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

/* False if neither end of the connection is an endpoint. The addresses are known. */
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
	key.addr = ends->remote;
	if (map_find(&senders_v1, &key)) /* it does not leave the container */
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

/* False if there is no limit. */
static __always_inline bool find_rates(__u32 ifindex, enum limit_direction direction, struct limit_state *state,
				       struct limit *limit)
{
	struct bandwidth *given = map_find(&bandwidths_v1, &ifindex);
	__u64 rate = 0, burst = 0;

	if (given) {
		rate = rate_in(given, direction);
		burst = burst_in(given, direction);
	}
	if (rate)
		load_limit(state, rate, burst);
	*limit = state->limit;
	return rate;
}

/*
 * The rate of a socket if nothing paced it: the bytes it holds in DEMAND_US or a round trip, no more than its windows
 * let through. A congestion window at its clamp is held back by pacing.
 */
static __always_inline void look_at(struct tcp_sock___podlane *tcp, const struct announced *announced,
				    struct sender *sender)
{
	__u32 unsent = tcp->write_seq - tcp->snd_nxt, held = tcp->write_seq - tcp->snd_una;
	__u32 round_trip = (tcp->srtt_us >> 3) + 1, window = tcp->snd_wnd;
	__u64 cwnd = 2ULL * tcp->snd_cwnd * tcp->mss_cache, demand;

	sender->now = bpf_ktime_get_ns();
	sender->acked = tcp->bytes_acked;
	sender->round_trip_us = round_trip;
	sender->is_backlogged = unsent;
	/* Two segments, which may be larger than the usual frames. A window that is too large stays as it is until it
	 * is used up, and a packet holds half of it.
	 */
	sender->burst = (__u64)(tcp->snd_cwnd > announced->clamp ? tcp->snd_cwnd / 2 : 2) * tcp->mss_cache;
	demand = (__u64)held * 1000000 / (round_trip < DEMAND_US ? DEMAND_US : round_trip);
	if (tcp->snd_cwnd < announced->clamp - announced->clamp / 8)
		demand = smaller(demand, cwnd * 1000000 / round_trip);
	demand = smaller(demand, (__u64)window * 1000000 / round_trip);
	sender->demand_per_s = smaller(demand, announced->own_rate);
}

/* Functions of their own: the verifier checks them once, and what they return is any number to it. */
__attribute__((noinline)) __u64 find_part(__u64 target_ns, __u64 backlog, __u64 delay, __u64 acting)
{
	struct limit limit = {.target_ns = target_ns};

	return aim(&limit, backlog, delay, acting);
}

__attribute__((noinline)) __u64 find_first_rate(__u64 target_ns, __u64 free_at_ns, __u64 now, __u64 rate, __u64 burst)
{
	struct limit_state state = {.free_at_ns = free_at_ns};
	struct limit limit = {.target_ns = target_ns};
	__u64 usual = 2 * FRAME_BITS / 8, of_usual = behind_backlog(&state, &limit, now, UNPACED);

	return smaller(rate, of_usual * larger(burst, usual) / usual);
}

/*
 * Flows whose term has passed leave the limit, once a slot: then the share is to be set. A function of its own: the
 * verifier walks its loop once. It has its own lock: no function is called under one.
 */
__attribute__((noinline)) int expire_in(__u32 ifindex, __u32 direction, __u64 now)
{
	struct limit_key key = {.ifindex = ifindex, .direction = direction};
	struct limit_state *state = bpf_map_lookup_elem(&limit_state_v5, &key);

	if (!state || state->slot == slot_of(now))
		return 0;
	bpf_spin_lock(&state->lock);
	expire_flows(state, now);
	bpf_spin_unlock(&state->lock);
	return 1;
}

/* As set_weight(), after expire_in(). Under the lock. */
static __always_inline void renew_weight(struct limit_state *state, const struct limit *limit, struct flow_share *flow,
					 __u32 weight, __u64 now, __u64 term_ns)
{
	put_weight(state, flow, weight, now, term_ns);
	set_share(state, limit);
}

/* Bytes per second the limit leaves to one flow, UNPACED at most; 0 if there is none. */
static __always_inline __u32 rate_of(__u32 ifindex, enum limit_direction direction, struct announced *announced,
				     const struct sender *sender, enum progress progress)
{
	struct flow_share *flow = &announced->flows[direction];
	struct limit_key key = {.ifindex = ifindex, .direction = direction};
	struct limit_state *state = map_find(&limit_state_v5, &key);
	__u64 now = sender->now, part, rate, term;
	__u32 weight = 0;
	struct limit limit;
	bool is_next_slot;

	if (!state || !find_rates(ifindex, direction, state, &limit))
		return 0;
	is_next_slot = expire_in(ifindex, direction, now);
	if (progress >= BEGINS)
		weight = weigh(flow, sender);
	part = find_part(limit.target_ns, backlog_beside(state, &limit, sender), arrival_delay(state, &limit),
			 acting_delay(state));
	/* The share is not known before the flow has joined, but it is hardly greater then. */
	rate = scaled(state->fair_bytes_per_s, part);
	if (progress == BEGINS)
		rate = find_first_rate(limit.target_ns, state->free_at_ns, now, rate, sender->burst);
	term = weight_term_of(rate, sender);
	/* A flow that does not leave its pod takes nothing of another's limit. */
	if (direction == LIMIT_INGRESS && announced->passed_ns + term < now)
		weight = 0;
	else /* without the lock: any flow's will do, here and below */
		state->pause_us = pause_of(flow, rate, sender) / 1000;
	if (progress == STARTS || is_next_slot || is_news(state, flow, weight, now, term)) {
		bpf_spin_lock(&state->lock);
		if (progress == STARTS && (!state->fair_bytes_per_s || is_idle(state, &limit, now)))
			restart_share(state, &limit, now);
		renew_weight(state, &limit, flow, weight, now, term);
		bpf_spin_unlock(&state->lock);
	}
	rate = scaled(state->fair_bytes_per_s, part);
	state->paced_bytes_per_s = rate;
	if (progress == BEGINS)
		rate = find_first_rate(limit.target_ns, state->free_at_ns, now, rate, sender->burst);
	flow->rate = smaller(rate, UNPACED);
	__sync_fetch_and_add(&state->paced, 1);
	if (flow->weight)
		note_round_trip(state, sender);
	return flow->rate;
}

static __always_inline bool is_paced_by_sender(const struct ends *ends)
{
	return (ends->sender_flags & (INTERFACE_LIMIT_EGRESS | INTERFACE_LIMIT_UNPACED_EGRESS)) ==
		       INTERFACE_LIMIT_EGRESS &&
	       !is_exempt(ends->sender_flags, ends->sender_ifindex, LIMIT_EGRESS, &ends->remote);
}

static __always_inline bool is_paced_by_receiver(const struct ends *ends)
{
	return (ends->receiver_flags & (INTERFACE_LIMIT_INGRESS | INTERFACE_LIMIT_UNPACED_INGRESS)) ==
		       INTERFACE_LIMIT_INGRESS &&
	       !is_exempt(ends->receiver_flags, ends->receiver_ifindex, LIMIT_INGRESS, &ends->local);
}

/* Of limits that do not pace the connection any more. */
static __always_inline void forget_rates(struct announced *announced, const struct ends *ends)
{
	if (!is_paced_by_sender(ends))
		announced->flows[LIMIT_EGRESS].rate = 0;
	if (!is_paced_by_receiver(ends))
		announced->flows[LIMIT_INGRESS].rate = 0;
}

/* The smaller of the two limits of a connection, 0 being none. */
static __always_inline __u32 smaller_rate(__u32 a, __u32 b)
{
	if (!a || !b)
		return a | b;
	return a < b ? a : b;
}

/* Less than an eighth is no news. */
static __always_inline bool differs(__u32 a, __u32 b)
{
	return a > b ? a - b > b >> 3 : b - a > a >> 3;
}

/*
 * If round trips are short no window is small enough to slow a sender, but a large one makes large bursts: a packet
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

/*
 * An application that set SO_MAX_PACING_RATE itself since is held to the smaller of both. At a rate of 0 the kernel
 * does not pace.
 */
static __always_inline void note_own_rate(struct announced *announced, struct tcp_sock___podlane *tcp)
{
	unsigned long now = tcp->inet_conn.icsk_inet.sk.sk_max_pacing_rate;
	__u32 rate = now && now < UNPACED ? now : UNPACED;

	if (rate != announced->rate) {
		announced->own_rate = rate;
		announced->rate = rate;
	}
}

/*
 * The clamp to set, or the last one. With it the kernel sets the slow start threshold: what the congestion control has
 * learned of a path that is slower than the limit would be lost. So it goes up only while it holds the window back, and
 * in small steps, and down if the window is larger, or the threshold says nothing yet.
 */
static __always_inline __u32 next_clamp(const struct announced *announced, struct tcp_sock___podlane *tcp, __u32 clamp)
{
	__u32 last = announced->clamp, window = tcp->snd_cwnd, step = window + window / 4 + 1;

	if (!differs(clamp, last))
		return last;
	if (window > clamp || (clamp < last && tcp->snd_ssthresh >= last))
		return clamp;
	if (window < last - last / 8)
		return last;
	return clamp < step ? clamp : step;
}

/* `socket`: what bpf_setsockopt() takes in a program of this kind. A rate of 0: no limit. */
static __always_inline void announce(void *socket, struct announced *announced, struct tcp_sock___podlane *tcp,
				     __u64 found, __u32 wanted)
{
	__u32 clamp = next_clamp(announced, tcp, wanted);
	__u32 rate = found && found < announced->own_rate ? found : announced->own_rate;

	if (rate != announced->rate) {
		announced->rate = rate;
		bpf_setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
	}
	if (clamp != announced->clamp) {
		announced->clamp = clamp;
		bpf_setsockopt(socket, SOL_TCP, TCP_BPF_SNDCWND_CLAMP, &clamp, sizeof(clamp));
	}
}
