/*
 * The fair share of a limit: the rate each sender is told. It rises while the backlog is below its target and falls
 * while it is above. Only the functions of this header write it, under the lock of the state.
 *
 * Invariant: 1 <= fair_bytes_per_s <= 5/4 of the rate + 1, once the state was used; 0 in a new state means "not yet".
 */
#pragma once

#include "limit_math.h"

/* Ratios have 10 binary places. */
#define ONE 1024
/* A share of so much more than the whole: no flow has joined yet. */
#define UNTAKEN 1
/* Nobody has sent for this time and some frames: the share is of flows that are gone. */
#define IDLE_NS (10 * NS_PER_MS)

/* How long a new rate takes to be heard of: a flow sends two frames at a time, and learns from their acknowledgement.
 */
ABI_INLINE __u64 hearing_delay(const struct limit_state *state, const struct limit *limit)
{
	__u64 flows = state->flows > state->flows_seen ? state->flows : state->flows_seen;

	return (flows < 1024 ? flows : 1024) * 2 * limit->frame_ns;
}

/*
 * What is told to a flow now it acts upon when it has sent twice, up to four segments each time: sooner, a share that
 * is too small would be made smaller yet while all are silent, and then too large.
 */
ABI_INLINE __u64 acting_delay(const struct limit_state *state)
{
	__u64 delay = 8 * (FRAME_BITS / 8) * NS_PER_S / (state->paced_bytes_per_s | 1);

	return delay < NS_PER_S / 2 ? delay : NS_PER_S / 2;
}

/*
 * The share of the rate to aim at, in 1/ONE: ONE at the target, more below, less above it, the gentler the longer it
 * takes to be heard and acted upon; 1/4 at the least, or 1/2 where flows that were told less would be silent for long.
 */
ABI_INLINE __u64 aim(const struct limit *limit, __u64 backlog, __u64 delay, __u64 acting)
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

ABI_INLINE __u64 scaled(__u64 value, __u64 ratio)
{
	return value / ONE * ratio + value % ONE * ratio / ONE;
}

ABI_INLINE void set_fair(struct limit_state *state, const struct limit *limit, __u64 fair)
{
	__u64 whole = limit->rate_bits_per_s / 8;

	if (fair > whole + whole / 4)
		fair = whole + whole / 4;
	if (fair < whole / 4096 + 1)
		fair = whole / 4096 + 1;
	state->fair_bytes_per_s = fair;
}

/* A measurement lasts 10 ms, 16 frames and until all have heard of the last one's at least. Under the lock. */
ABI_INLINE void measure(struct limit_state *state, const struct limit *limit, __u64 now, __u64 wanted, __u64 delay,
			__u64 acting)
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

ABI_INLINE void count_epoch(struct limit_state *state, __u64 now)
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
ABI_INLINE void charge(struct limit_state *state, const struct limit *limit, __u64 bytes, __u64 now, bool is_untold)
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

/* Nobody has sent for the time of some frames. */
ABI_INLINE bool is_idle(const struct limit_state *state, __u64 whole, __u64 now)
{
	__u64 idle = IDLE_NS + 4 * time_of(FRAME_BITS / 8, whole);

	return state->free_at_ns <= now + idle && now - state->large_at_ns > idle;
}

/* The whole is free: the first flow to join takes it. Counters stay. */
ABI_INLINE void restart_share(struct limit_state *state, __u64 whole, __u64 now)
{
	state->fair_bytes_per_s = whole + UNTAKEN;
	state->paced_bytes_per_s = whole;
	state->flows = 0;
	state->large_at_ns = now;
	state->window_since_ns = now;
	state->window_charged_ns = 0;
}

/* A flow joins: the share of n becomes that of n + 1. */
ABI_INLINE void join_share(struct limit_state *state, __u64 whole)
{
	__u64 fair = state->fair_bytes_per_s;

	fair = fair == whole + UNTAKEN ? whole : fair * ONE / (ONE + fair * ONE / whole);
	if (fair < whole / 4096 + 1)
		fair = whole / 4096 + 1;
	state->fair_bytes_per_s = fair;
	state->paced_bytes_per_s = fair;
}

/* A flow leaves: the reverse of join_share(). */
ABI_INLINE void leave_share(struct limit_state *state, __u64 whole)
{
	__u64 part = state->fair_bytes_per_s * ONE / whole;

	if (part < ONE / 2)
		state->fair_bytes_per_s = state->fair_bytes_per_s * ONE / (ONE - part);
	else if (part < ONE)
		state->fair_bytes_per_s = whole;
	if (state->flows)
		state->flows--;
	if (state->flows_seen)
		state->flows_seen--;
}

/* The rate changes, and one flow's share as it does. Rates in bits per second. */
ABI_INLINE void scale_share(struct limit_state *state, __u64 was, __u64 rate)
{
	/* In units of 4096 bit/s, so that the products fit, and never 0. */
	was = was >> 12 | 1;
	rate = rate >> 12 | 1;
	state->fair_bytes_per_s = state->fair_bytes_per_s * rate / was;
	state->paced_bytes_per_s = state->paced_bytes_per_s * rate / was;
}
