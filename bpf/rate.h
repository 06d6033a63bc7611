/*
 * The arithmetic of a limit. A bucket holds time: every packet takes as long as it takes at the rate, and what is ahead
 * of the clock is the backlog. It delays nobody by itself. Senders are told one fair rate, which is corrected so that
 * the backlog stays near a target: above it they send a little less than their share, below it a little more.
 */
#pragma once

#include "bpf/maps.h"

#define NS_PER_S 1000000000ULL
#define NS_PER_MS 1000000ULL

/* A burst of the kubelet's (2^31 - 1 bits) or of more than this time says nothing of what is wanted. */
#define AUTO_BURST_BITS 0x7fffffffULL
#define LONGEST_HORIZON_NS NS_PER_S
#define AUTO_HORIZON_NS (100 * NS_PER_MS)
/* A frame of the usual MTU, in bits. */
#define FRAME_BITS (1514 * 8ULL)
/* A burst holds so many at least. */
#define LEAST_FRAMES 5
/* Ratios have 10 binary places. */
#define ONE 1024

/* Questions, answers and acknowledgements, in bytes. */
#define SMALL_FRAME 256
/* Small frames are favoured as long as they take no more than this part of the rate. */
#define SMALL_SHARE 16

struct limit {
	__u64 rate_bits_per_s;
	__u64 horizon_ns; /* backlog beyond which packets are dropped */
	__u64 target_ns;  /* backlog that senders are steered to */
	__u64 frame_ns;   /* a full frame at the rate */
};

static __always_inline __u64 time_of(__u64 bits, __u64 rate_bits_per_s)
{
	return bits * NS_PER_S / rate_bits_per_s;
}

/* Beyond that the products below would not fit; 125 TB/s is no limit to anybody. */
#define HIGHEST_RATE 1000000000000000ULL

static __always_inline void make_limit(struct limit *limit, __u64 rate, __u64 burst)
{
	__u64 horizon = AUTO_HORIZON_NS;

	if (rate > HIGHEST_RATE)
		rate = HIGHEST_RATE;
	limit->rate_bits_per_s = rate;
	limit->frame_ns = time_of(FRAME_BITS, rate);
	if (burst < AUTO_BURST_BITS && burst / rate < LONGEST_HORIZON_NS / NS_PER_S)
		horizon = time_of(burst, rate);
	if (horizon < LEAST_FRAMES * limit->frame_ns)
		horizon = LEAST_FRAMES * limit->frame_ns;
	limit->horizon_ns = horizon;
	/* TCP sends two frames at a time, and hears of its rate when they have just been charged. */
	limit->target_ns = horizon / 5 > 2 * limit->frame_ns ? horizon / 5 : 2 * limit->frame_ns;
}

/* What one packet and the start of many flows can leave at most; a later time is of a clock that jumped. */
static __always_inline __u64 longest_backlog(const struct limit *limit)
{
	return LONGEST_HORIZON_NS + 512 * limit->frame_ns;
}

static __always_inline __u64 backlog_of(__u64 free_at_ns, const struct limit *limit, __u64 now)
{
	__u64 backlog = free_at_ns > now ? free_at_ns - now : 0;

	return backlog <= longest_backlog(limit) ? backlog : limit->target_ns;
}

/* How long a new rate takes to be heard of: a flow sends two frames at a time, and learns from their acknowledgement.
 */
static __always_inline __u64 hearing_delay(const struct limit_state *state, const struct limit *limit)
{
	__u64 flows = state->flows > state->flows_seen ? state->flows : state->flows_seen;

	return (flows < 1024 ? flows : 1024) * 2 * limit->frame_ns;
}

/*
 * What is told to a flow now it acts upon when it has sent twice, up to four segments each time: sooner, a share that
 * is too small would be made smaller yet while all are silent, and then too large.
 */
static __always_inline __u64 acting_delay(const struct limit_state *state)
{
	__u64 delay = 8 * (FRAME_BITS / 8) * NS_PER_S / (state->paced_bytes_per_s | 1);

	return delay < NS_PER_S / 2 ? delay : NS_PER_S / 2;
}

/*
 * The share of the rate to aim at, in 1/ONE: ONE at the target, more below, less above it, the gentler the longer it
 * takes to be heard and acted upon; 1/4 at the least, or 1/2 where flows that were told less would be silent for long.
 */
static __always_inline __u64 aim(const struct limit *limit, __u64 backlog, __u64 delay, __u64 acting)
{
	__u64 least = delay > AUTO_HORIZON_NS ? ONE / 2 : ONE / 4, range = 2 * acting, above;

	if (range > 3 * limit->target_ns)
		range = 3 * limit->target_ns;
	if (range < delay / 2)
		range = delay / 2;
	if (range < limit->target_ns)
		range = limit->target_ns;
	range |= 1;
	if (backlog < limit->target_ns)
		return ONE + (limit->target_ns - backlog) * (ONE / 4) / range;
	above = backlog - limit->target_ns;
	above = above < 3 * range ? ONE - above * (ONE / 4) / range : 0;
	return above > least ? above : least;
}

static __always_inline __u64 scaled(__u64 value, __u64 ratio)
{
	return value / ONE * ratio + value % ONE * ratio / ONE;
}

static __always_inline void set_fair(struct limit_state *state, const struct limit *limit, __u64 fair)
{
	__u64 whole = limit->rate_bits_per_s / 8;

	if (fair > whole + whole / 4)
		fair = whole + whole / 4;
	if (fair < whole / 4096 + 1)
		fair = whole / 4096 + 1;
	state->fair_bytes_per_s = fair;
}

/* A measurement lasts 10 ms, 16 frames and until all have heard of the last one's at least. Under the lock. */
static __always_inline void measure(struct limit_state *state, const struct limit *limit, __u64 now, __u64 wanted,
				    __u64 delay, __u64 acting)
{
	__u64 elapsed = now - state->window_since_ns, shortest = 2 * delay + 16 * limit->frame_ns;
	__u64 charged = state->window_charged_ns;
	__u64 load, ratio;

	if (shortest < 10 * NS_PER_MS)
		shortest = 10 * NS_PER_MS;
	if (state->window_since_ns <= now && (elapsed < shortest || elapsed < acting))
		return;
	state->window_since_ns = now;
	state->window_charged_ns = 0;
	if (elapsed > (1ULL << 50))
		elapsed = 1ULL << 50;
	if (charged > (1ULL << 50))
		charged = 1ULL << 50;
	load = charged * ONE / (elapsed | 1);
	if (load > wanted + ONE)
		load = wanted + ONE;
	ratio = ONE + wanted / 4 - load / 4;
	/* Senders that wait for the backlog to go do not leave their share to others. */
	if (wanted < ONE && ratio > ONE)
		ratio = ONE;
	set_fair(state, limit, scaled(state->fair_bytes_per_s, ratio));
}

static __always_inline void count_epoch(struct limit_state *state, __u64 now)
{
	if (state->epoch_since_ns <= now && now - state->epoch_since_ns < NS_PER_S)
		return;
	state->epoch_since_ns = now;
	state->epoch++;
	state->flows = state->flows_seen;
	state->flows_seen = 0;
}

/*
 * Charges a packet that is let through. Under the lock; what a clock that jumped or a rate that changed left is cut.
 * What was sent before anybody could be told a rate says nothing of the share.
 */
static __always_inline void charge(struct limit_state *state, const struct limit *limit, __u64 bytes, __u64 now,
				   bool is_untold)
{
	__u64 work = bytes * 8 * NS_PER_S + state->remainder % limit->rate_bits_per_s;
	__u64 cost = work / limit->rate_bits_per_s;
	__u64 backlog = backlog_of(state->free_at_ns, limit, now);
	__u64 delay = hearing_delay(state, limit), acting = acting_delay(state), wanted;

	state->remainder = work % limit->rate_bits_per_s;
	state->free_at_ns = now + backlog + cost;
	state->window_charged_ns += is_untold ? 0 : cost;
	state->bytes += bytes;
	if (bytes > SMALL_FRAME)
		state->large_at_ns = now;
	state->packets++;
	wanted = aim(limit, backlog + cost, delay, acting);
	if (!state->fair_bytes_per_s)
		set_fair(state, limit, limit->rate_bits_per_s / 8);
	measure(state, limit, now, wanted, delay, acting);
	count_epoch(state, now);
	state->paced_bytes_per_s = scaled(state->fair_bytes_per_s, wanted);
}

/* Under the lock. */
static __always_inline void charge_small(struct limit_state *state, const struct limit *limit, __u64 bytes, __u64 now)
{
	__u64 cost = time_of(bytes * 8 * SMALL_SHARE, limit->rate_bits_per_s);

	state->small_free_at_ns = now + backlog_of(state->small_free_at_ns, limit, now) + cost;
}
