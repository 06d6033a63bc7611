/* SPDX-License-Identifier: MIT */
/*
 * Flows that nobody paces, if they meet a backlog: each busy one has an equal part of the rate. Flows are
 * distinguished by buckets of their hash. A bucket has a clock of its own, which runs as if it had that part alone.
 */
#pragma once

#include "fair_share.h"

struct unpaced_flow {
	__u32 bucket;
	__u32 turn;
	__u32 busy;       /* flows that share the rate, this one and the paced ones among them, in 1/ONE */
	__u64 ahead_ns;   /* of its part of the rate */
	__u64 is_shared;  /* 1 if paced flows want a part of the rate */
	__u64 is_surplus; /* 1 if they get what it takes */
};

/* Every 4.3 s, if no clock is ahead for longer: a flow whose bucket is a flood's too has one of its own soon. */
ABI_INLINE __u32 unpaced_turn(const struct limit *limit, __u64 now)
{
	return (__u32)choose(((limit->horizon_ns >> 31) - 1) >> 63, now >> 32, 0);
}

ABI_INLINE __u32 unpaced_bucket(__u32 hash, __u32 turn)
{
	__u32 odd = turn * (turn + 1) * 0x9e3779b1 + 0x9e3779b1;

	return (hash * odd >> 28) % LIMIT_PARTS;
}

ABI_INLINE __u64 is_ahead(__u64 part, __u64 now)
{
	return (now - part) >> 63;
}

/* 1 if it is of this turn, as its last bit says. */
ABI_INLINE __u64 is_ahead_in(__u64 part, __u32 turn, __u64 now)
{
	return is_ahead(part, now) & ~(part ^ turn) & 1;
}

/*
 * `backlog` is the limit's. Times are less than 2^63 ns apart. A flow goes on from its clock of the turn before, and
 * the others' count until they have run out: two for a flow, rather than none for one that has not sent again.
 */
ABI_INLINE struct unpaced_flow measure_unpaced(const struct limit_state *state, const struct limit *limit, __u32 hash,
					       __u64 now, __u64 backlog)
{
	struct unpaced_flow flow = {};
	__u64 part, before, is_new, is_old;

	flow.turn = unpaced_turn(limit, now);
	flow.bucket = unpaced_bucket(hash, flow.turn);
	part = state->parts[flow.bucket];
	before = state->parts[unpaced_bucket(hash, flow.turn - 1)];
	is_new = is_ahead_in(part, flow.turn, now);
	is_old = is_ahead_in(before, flow.turn - 1, now);
	flow.busy = 1;
#ifdef __VMLINUX_H__
#pragma clang loop unroll(disable) /* unrolled, it takes more of the stack than there is */
#endif
	for (__u32 i = 0; i < LIMIT_PARTS; ++i)
		flow.busy += (__u32)is_ahead(state->parts[i], now);
	flow.busy = (flow.busy - (__u32)(is_new + is_old)) * ONE + (__u32)smaller(state->weight, ONE * ONE);
	part = smaller(choose(is_new, part - now, choose(is_old, before - now, 0)), longest_backlog(limit));
	/* A flow alone has the whole rate, and the limit's own clock. */
	flow.ahead_ns = choose(((__u64)flow.busy - ONE - 1) >> 63, backlog, part);
	flow.is_shared = (0 - (__u64)state->weight) >> 63;
	flow.is_surplus = flow.is_shared & ((limit->horizon_ns + limit->target_ns * 3 / 2 - flow.ahead_ns) >> 63);
	return flow;
}

/*
 * The backlog beyond which it is dropped: a flood leaves room to flows that take no more than their part. Paced ones
 * are steered to the target, and get more of a smaller backlog: the further it is ahead of its part, the less is left
 * to it.
 */
ABI_INLINE __u64 unpaced_tolerance(const struct unpaced_flow *flow, const struct limit *limit)
{
	__u64 most = limit->horizon_ns + 2 * limit->target_ns;
	__u64 beside_paced = larger(most - smaller(flow->ahead_ns, most), limit->target_ns / 2);
	__u64 is_within = (flow->ahead_ns - limit->horizon_ns - 1) >> 63;

	return choose(flow->is_shared, beside_paced, choose(is_within, most, limit->horizon_ns));
}

/* Charges a packet that is let through to its bucket. Under the lock. */
ABI_INLINE void charge_unpaced(struct limit_state *state, const struct limit *limit, const struct unpaced_flow *flow,
			       __u64 bytes, __u64 now)
{
	__u64 cost = time_of(bytes * 8, limit->rate_bits_per_s) * flow->busy / ONE;
	__u64 until = now + smaller(flow->ahead_ns + cost, larger(2 * limit->horizon_ns, cost));

	state->parts[flow->bucket % LIMIT_PARTS] = (until & ~1ULL) | (flow->turn & 1);
}
