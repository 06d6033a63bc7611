/* SPDX-License-Identifier: MIT */
/*
 * Flows that nobody paces, if they meet a backlog: each busy one has an equal part of the rate. Flows are
 * distinguished by buckets of their hash. A bucket has a clock of its own, which runs as if it had that part alone.
 */
#pragma once

#include "fair_share.h"

struct unpaced_flow {
	__u32 bucket;
	__u32 busy;     /* flows that share the rate, this one and the paced ones among them */
	__u64 ahead_ns; /* of its part of the rate */
};

/* `backlog` is the limit's. Times are less than 2^63 ns apart. */
ABI_INLINE struct unpaced_flow measure_unpaced(const struct limit_state *state, const struct limit *limit, __u32 hash,
					       __u64 now, __u64 backlog)
{
	struct unpaced_flow flow = {};
	__u64 ahead;

	flow.bucket = hash % LIMIT_PARTS;
	flow.busy = 1 + (__u32)smaller(state->flows, ONE);
#ifdef __VMLINUX_H__
#pragma clang loop unroll(disable) /* unrolled, it takes more of the stack than there is */
#endif
	for (__u32 i = 0; i < LIMIT_PARTS; ++i)
		flow.busy += (__u32)((now - state->parts[i]) >> 63);
	ahead = state->parts[flow.bucket] - now;
	flow.busy -= (__u32)(-ahead >> 63);
	ahead = smaller(choose(ahead >> 63, 0, ahead), longest_backlog(limit));
	/* A flow alone has the whole rate, and the limit's own clock. */
	flow.ahead_ns = choose(((__u64)flow.busy - 2) >> 63, backlog, ahead);
	return flow;
}

/* The backlog beyond which it is dropped: a flood leaves room to flows that take no more than their part. */
ABI_INLINE __u64 unpaced_tolerance(const struct unpaced_flow *flow, const struct limit *limit)
{
	return limit->horizon_ns + choose((flow->ahead_ns - limit->horizon_ns - 1) >> 63, 2 * limit->target_ns, 0);
}

/* Charges a packet that is let through to its bucket. Under the lock. */
ABI_INLINE void charge_unpaced(struct limit_state *state, const struct limit *limit, const struct unpaced_flow *flow,
			       __u64 bytes, __u64 now)
{
	__u64 cost = time_of(bytes * 8, limit->rate_bits_per_s) * flow->busy;

	state->parts[flow->bucket % LIMIT_PARTS] = now + smaller(flow->ahead_ns + cost, longest_backlog(limit));
}
