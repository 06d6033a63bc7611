/* SPDX-License-Identifier: MIT */
/*
 * The arithmetic of a limit, for the BPF programs and for user space. A limit is a virtual-clock token bucket: each
 * packet takes as long as it takes at the rate, and the time by which the bucket is ahead of the clock is the backlog.
 */
#pragma once

#include "limit.h"

#if !defined(__cplusplus) && !defined(__VMLINUX_H__)
#include <stdbool.h>
#endif

#define ABI_INLINE static inline __attribute__((always_inline))

#define NS_PER_S 1000000000ULL
#define NS_PER_MS 1000000ULL

/* "auto": the kubelet always passes this burst (2^31 - 1 bits), whatever the rate. */
#define AUTO_BURST_BITS 0x7fffffffULL
/* A burst of more than this time at the rate is "auto", too. */
#define LONGEST_HORIZON_NS NS_PER_S
#define AUTO_HORIZON_NS (100 * NS_PER_MS)
/* Each CPU reads the clock before it takes the lock: it may come by as much later than one that read a later time. */
#define LATEST_NS NS_PER_S
/* A frame of the usual MTU, in bits. */
#define FRAME_BITS (1514 * 8ULL)
/* A burst holds at least so many of them. */
#define LEAST_FRAMES 5
/* A packet of more, in all its segments, is dropped: one of 64 kB is of fewer, unless they have next to no data. */
#define MOST_FRAMES 512

/* Requests, responses and acknowledgements, in bytes. */
#define SMALL_FRAME 256
/* Small frames are favoured as long as they take no more than 1/16 of the rate. */
#define SMALL_SHARE 16

/* The products below fit up to here; 125 TB/s limits nothing. */
#define HIGHEST_RATE 1000000000000000ULL

/* Of a limit in one direction. */
ABI_INLINE __u64 rate_in(const struct bandwidth *given, __u32 direction)
{
	return direction == LIMIT_INGRESS ? given->ingress_rate_bits_per_s : given->egress_rate_bits_per_s;
}

ABI_INLINE __u64 burst_in(const struct bandwidth *given, __u32 direction)
{
	return direction == LIMIT_INGRESS ? given->ingress_burst_bits : given->egress_burst_bits;
}

ABI_INLINE __u64 time_of(__u64 bits, __u64 rate_bits_per_s)
{
	return bits * NS_PER_S / rate_bits_per_s;
}

/* `rate` is not 0. */
ABI_INLINE bool is_auto_burst_bits(__u64 rate, __u64 burst)
{
	return burst >= AUTO_BURST_BITS || burst / rate >= LONGEST_HORIZON_NS / NS_PER_S;
}

/* The burst in effect, in bits. */
ABI_INLINE __u64 effective_burst_bits(__u64 rate, __u64 burst)
{
	if (is_auto_burst_bits(rate, burst))
		burst = rate / (NS_PER_S / AUTO_HORIZON_NS);
	return burst > LEAST_FRAMES * FRAME_BITS ? burst : LEAST_FRAMES * FRAME_BITS;
}

/* Of a burst that lasts `horizon` ns at its rate. */
ABI_INLINE void make_limit_of(struct limit *limit, __u64 rate, __u64 horizon)
{
	limit->rate_bits_per_s = rate;
	limit->frame_ns = time_of(FRAME_BITS, rate);
	if (horizon < LEAST_FRAMES * limit->frame_ns)
		horizon = LEAST_FRAMES * limit->frame_ns;
	limit->horizon_ns = horizon;
	/* TCP sends two frames at a time, and learns its rate when they have just been charged. */
	limit->target_ns = horizon / 5 > 2 * limit->frame_ns ? horizon / 5 : 2 * limit->frame_ns;
}

/* How long a burst lasts. Neither number is beyond what limits. */
ABI_INLINE __u64 burst_horizon(__u64 rate, __u64 burst)
{
	return is_auto_burst_bits(rate, burst) ? AUTO_HORIZON_NS : time_of(burst, rate);
}

ABI_INLINE void make_limit(struct limit *limit, __u64 rate, __u64 burst)
{
	if (rate > HIGHEST_RATE)
		rate = HIGHEST_RATE;
	make_limit_of(limit, rate, burst_horizon(rate, burst));
}

/* The most that is left by what passes; a later time is of a clock that jumped. */
ABI_INLINE __u64 longest_backlog(const struct limit *limit)
{
	return LONGEST_HORIZON_NS + MOST_FRAMES * limit->frame_ns;
}

ABI_INLINE __u64 backlog_of(__u64 free_at_ns, const struct limit *limit, __u64 now)
{
	__u64 backlog = free_at_ns > now ? free_at_ns - now : 0;

	return backlog <= longest_backlog(limit) + LATEST_NS ? backlog : limit->target_ns;
}

/* When the bucket is free after a packet that costs so much more. */
ABI_INLINE __u64 free_after(__u64 free_at_ns, const struct limit *limit, __u64 now, __u64 cost)
{
	__u64 backlog = backlog_of(free_at_ns, limit, now) + cost, most = longest_backlog(limit);

	return now + (backlog < most ? backlog : most);
}

/* Charges a small frame to its own bucket. Under the lock. */
ABI_INLINE void charge_small(struct limit_state *state, const struct limit *limit, __u64 bytes, __u64 now)
{
	__u64 cost = time_of(bytes * 8 * SMALL_SHARE, limit->rate_bits_per_s);

	state->small_free_at_ns = free_after(state->small_free_at_ns, limit, now, cost);
}
