/* SPDX-License-Identifier: MIT */
/*
 * The fair share of a limit: the rate at which each paced sender may send. A rate that some flows do not want is left
 * to others (max-min fairness): the share is the rate, less what is not paced, divided by the sum of the flows'
 * weights. A flow that takes its whole share weighs 1 (ONE), one that wants a part of it weighs that part, one without
 * a demand weighs nothing, however many of them are open. A flow renews its weight with each round trip; a silent one
 * leaves.
 *
 * Only the functions of this header write the share, under the lock of the state. Invariant, once it was used:
 * 1 <= fair_bytes_per_s <= 5/4 of the rate + 1, and `weight` is the sum of `leaving`.
 */
#pragma once

#include "limit_math.h"

/* Ratios have 10 binary places. */
#define ONE 1024
/* No large frame was sent for this time and some frames: the limit is idle. */
#define IDLE_NS (10 * NS_PER_MS)
/* A silent flow leaves after this time, or after a round trip, whichever is longer. */
#define LEAST_TERM_NS (33 * NS_PER_MS)
/* A flow's demand is what it could send in this time, at least. */
#define DEMAND_US 10000
/* The part of its share that a flow takes is measured for this time and this many bytes at least. */
#define MEASURE_NS (10 * NS_PER_MS)
#define MEASURE_BYTES 12000
/* A flow that takes 3/4 of its share and has more to send takes the whole: pacing is not that exact. */
#define TAKES_ALL (ONE * 3 / 4)
/* Nobody's far peer makes a share slower than this. */
#define LONGEST_ROUND_TRIP_NS (250 * NS_PER_MS)
/* Senders that are not paced leave 1/8 to those that are. */
#define LEAST_PACED 8
/* The longest backlog that a connection waits for when it begins. */
#define LONGEST_WAIT_NS (4 * NS_PER_S)

/* The state of a sender, from its socket. */
struct sender {
	__u64 now;
	__u64 acked;        /* bytes, since it began */
	__u64 demand_per_s; /* bytes per second it could send if it were not paced */
	__u64 burst;        /* bytes it sends at a time, at most; 0: two frames */
	__u32 round_trip_us;
	bool is_backlogged; /* only pacing holds it back */
};

/* In a program without a branch: the verifier walks what follows once for each side of one. */
ABI_INLINE __u64 choose(__u64 is_first, __u64 first, __u64 second)
{
#ifdef __VMLINUX_H__
	asm volatile("" : "+r"(is_first));
#endif
	return second ^ ((first ^ second) & -is_first);
}

ABI_INLINE __u64 smaller(__u64 a, __u64 b)
{
	return choose(((~a & b) | (~(a ^ b) & (a - b))) >> 63, a, b);
}

ABI_INLINE __u64 larger(__u64 a, __u64 b)
{
	return a ^ b ^ smaller(a, b);
}

ABI_INLINE __u64 scaled(__u64 value, __u64 ratio)
{
	return value / ONE * ratio + value % ONE * ratio / ONE;
}

/* How long all flows take to send two frames, after which each may learn of a new rate. */
ABI_INLINE __u64 hearing_delay(const struct limit_state *state, const struct limit *limit)
{
	return smaller(state->flows, 1024) * 2 * limit->frame_ns;
}

/*
 * How long a new rate takes to arrive: a flow learns of it from an acknowledgement. Without the round trip a share of
 * far flows is corrected again and again before the first correction shows, and swings.
 */
ABI_INLINE __u64 arrival_delay(const struct limit_state *state, const struct limit *limit)
{
	return hearing_delay(state, limit) + smaller(state->round_trip_ns, LONGEST_ROUND_TRIP_NS);
}

/*
 * The round trips of the flows that are announced a rate, which a near one is more often. Without the lock: any flow's
 * will do.
 */
ABI_INLINE void note_round_trip(struct limit_state *state, const struct sender *sender)
{
	state->round_trip_ns += sender->round_trip_us * 250ULL - state->round_trip_ns / 4;
}

/*
 * A flow acts upon a rate when it has sent twice, up to four segments each time: sooner, a share that is too small
 * would be made smaller yet while all are silent, and then too large.
 */
ABI_INLINE __u64 acting_delay(const struct limit_state *state)
{
	return smaller(8 * (FRAME_BITS / 8) * NS_PER_S / (state->paced_bytes_per_s | 1), NS_PER_S / 2);
}

/*
 * The part of the share to announce, in 1/ONE: ONE at the target, more below, less above it, the gentler the longer the
 * flows take to act; at least 1/4, or 1/2 if flows at a lower rate would be silent for long.
 */
ABI_INLINE __u64 aim(const struct limit *limit, __u64 backlog, __u64 delay, __u64 acting)
{
	__u64 least = delay > AUTO_HORIZON_NS ? ONE / 2 : ONE / 4, range, above;

	range = larger(smaller(2 * acting, 3 * limit->target_ns), larger(delay / 2, limit->target_ns)) | 1;
	if (backlog < limit->target_ns)
		return ONE + (limit->target_ns - backlog) * (ONE / 4) / range;
	above = backlog - limit->target_ns;
	above = above < 3 * range ? ONE - above * (ONE / 4) / range : 0;
	return larger(above, least);
}

/*
 * The first segments of many connections are ahead of what is paced: the next two of a flow that begins leave when
 * those have left. A backlog that is usual is not waited for, and a longer one than LONGEST_WAIT_NS is of a clock that
 * jumped.
 */
ABI_INLINE __u64 behind_backlog(const struct limit_state *state, const struct limit *limit, __u64 now, __u64 rate)
{
	__u64 backlog = state->free_at_ns > now ? state->free_at_ns - now : 0, slow;

	if (backlog < 2 * limit->target_ns || backlog > LONGEST_WAIT_NS)
		return rate;
	slow = 2 * (FRAME_BITS / 8) * NS_PER_S / backlog;
	return slow < rate ? slow : rate;
}

/* The share follows from the weights, the gain and the rate of what is not paced. Under the lock. */
ABI_INLINE void set_share(struct limit_state *state, const struct limit *limit)
{
	__u64 weight = larger(state->weight, ONE), whole, rest, fair;

	if (limit->rate_bits_per_s <= state->coming_bits_per_s)
		state->coming_bits_per_s = 0;
	whole = (state->coming_bits_per_s ? state->coming_bits_per_s : limit->rate_bits_per_s) / 8;
	rest = whole - smaller(state->other_bytes_per_s, whole - whole / LEAST_PACED);
	if (state->gain < ONE / 4)
		state->gain = state->gain ? ONE / 4 : ONE;
	state->gain = smaller(state->gain, weight + weight / 4);
	fair = rest / weight * state->gain + rest % weight * state->gain / weight;
	state->fair_bytes_per_s = larger(fair, whole / 4096 + 1);
	state->flows = (state->weight + ONE / 2) / ONE;
}

/*
 * Of a packet that takes `cost`, what two frames do not: no rate makes the packets smaller of a sender whose window was
 * made for a higher one, so they are no backlog to steer by.
 */
ABI_INLINE __u64 beyond_frames(const struct limit *limit, __u64 cost)
{
	return larger(cost, 2 * limit->frame_ns) - 2 * limit->frame_ns;
}

/*
 * Corrects the gain by a quarter of the difference between what was wanted and what came. A measurement lasts 10 ms, 16
 * frames and until all flows know the last one's result, at least. Under the lock.
 */
ABI_INLINE void measure(struct limit_state *state, const struct limit *limit, __u64 now, __u64 cost)
{
	__u64 elapsed = now - state->window_since_ns, delay, acting, shortest, wanted, load, ratio, charged, backlog;

	if (elapsed + LATEST_NS < 10 * NS_PER_MS + LATEST_NS)
		return;
	delay = arrival_delay(state, limit);
	acting = acting_delay(state);
	shortest = 2 * delay + 16 * limit->frame_ns;
	if (state->window_since_ns <= now && (elapsed < shortest || elapsed < acting))
		return;
	elapsed = smaller(elapsed, 1ULL << 50) | 1;
	charged = smaller(state->window_charged_ns, 1ULL << 50);
	backlog = backlog_of(state->free_at_ns, limit, now);
	wanted = aim(limit, backlog - smaller(backlog, beyond_frames(limit, cost)), delay, acting);
	load = smaller(charged * ONE / elapsed, wanted + ONE);
	ratio = ONE + wanted / 4 - load / 4;
	/* Senders that wait for the backlog to go do not leave their share to others. */
	if (wanted < ONE && ratio > ONE)
		ratio = ONE;
	/* If the share holds nobody back, a smaller one slows nobody down, and is too small when it does. */
	if (state->weight < ONE)
		ratio = larger(ratio, ONE);
	state->gain = smaller(state->gain, 1ULL << 40) * ratio / ONE;
	state->other_bytes_per_s = scaled(limit->rate_bits_per_s / 8,
					  smaller(smaller(state->window_other_ns, 1ULL << 50) * ONE / elapsed, ONE));
	state->window_since_ns = now;
	state->window_charged_ns = 0;
	state->window_other_ns = 0;
	set_share(state, limit);
}

/*
 * Charges a packet that is let through. Under the lock; what a clock that jumped or a rate that changed left is cut.
 * Packets that are not paced yet (the first segments of a connection) or never (is_other) do not move the share. TCP is
 * never other: the host stack takes the socket from a forwarded packet, so a paced one cannot be recognised.
 */
ABI_INLINE void charge(struct limit_state *state, const struct limit *limit, __u64 bytes, __u64 now, bool is_first,
		       bool is_other)
{
	/* A remainder of a higher rate is less than a nanosecond, too. One division: they are what a packet costs here.
	 */
	__u64 work = bytes * 8 * NS_PER_S + (state->remainder < limit->rate_bits_per_s ? state->remainder : 0);
	__u64 cost = work / limit->rate_bits_per_s;

	state->remainder = work - cost * limit->rate_bits_per_s;
	state->free_at_ns = free_after(state->free_at_ns, limit, now, cost);
	state->window_charged_ns += is_first ? 0 : cost;
	state->window_other_ns += is_other ? cost : 0;
	state->bytes += bytes;
	if (bytes > SMALL_FRAME)
		state->large_at_ns = now;
	state->packets++;
	if (!state->fair_bytes_per_s)
		set_share(state, limit);
	measure(state, limit, now, cost);
}

/* No large frame was sent for the time of some. */
ABI_INLINE bool is_idle(const struct limit_state *state, const struct limit *limit, __u64 now)
{
	__u64 idle = IDLE_NS + 4 * limit->frame_ns;

	return state->free_at_ns <= now + idle && now - state->large_at_ns + LATEST_NS > idle + LATEST_NS;
}

/* The measurements are of flows that are gone. Weights leave by themselves, counters stay. Under the lock. */
ABI_INLINE void restart_share(struct limit_state *state, const struct limit *limit, __u64 now)
{
	state->gain = ONE;
	state->other_bytes_per_s = 0;
	state->large_at_ns = now;
	state->window_since_ns = now;
	state->window_charged_ns = 0;
	state->window_other_ns = 0;
	set_share(state, limit);
	state->paced_bytes_per_s = state->fair_bytes_per_s;
}

ABI_INLINE __u32 slot_of(__u64 ns)
{
	return ns >> LIMIT_SLOT_SHIFT;
}

/* Flows whose term has passed leave. Under the lock. */
ABI_INLINE void expire_flows(struct limit_state *state, __u64 now)
{
	__u32 slot = slot_of(now), passed = slot - state->slot, gone = 0;

	if (state->slot - slot < LIMIT_SLOTS) /* it is, or another CPU's clock was later */
		return;
	/* Without branches but for its end: the verifier follows each of them. */
	for (__u32 i = 0; i < LIMIT_SLOTS && i < passed; i++) {
		__u32 *leaving = &state->leaving[(slot - i) % LIMIT_SLOTS];

		gone += *leaving;
		*leaving = 0;
	}
	state->weight -= smaller(gone, state->weight);
	state->slot = slot;
}

/* The flow weighs something until its slot, unless the clock jumped or the state is a new one. */
ABI_INLINE bool weighs(const struct limit_state *state, const struct flow_share *flow)
{
	return flow->weight && flow->slot - state->slot - 1 < LIMIT_SLOTS - 1;
}

/* Under the lock, after expire_flows(). */
ABI_INLINE void remove_flow(struct limit_state *state, struct flow_share *flow)
{
	__u32 *leaving = &state->leaving[flow->slot % LIMIT_SLOTS], weight;

	if (weighs(state, flow)) {
		weight = smaller(flow->weight, *leaving);
		*leaving -= weight;
		state->weight -= smaller(weight, state->weight);
	}
	flow->weight = 0;
}

/* The flow weighs `weight` for `term_ns` from now on. Under the lock, after expire_flows(). */
ABI_INLINE void put_weight(struct limit_state *state, struct flow_share *flow, __u32 weight, __u64 now, __u64 term_ns)
{
	__u32 slots;

	remove_flow(state, flow);
	weight = smaller(weight, ~0U - state->weight);
	if (weight) {
		slots = slot_of(now + smaller(term_ns, (__u64)(LIMIT_SLOTS - 2) << LIMIT_SLOT_SHIFT)) + 1 - state->slot;
		if (slots - 1 >= LIMIT_SLOTS - 1) /* over already, if the clock was read long ago */
			slots = 1;
		flow->slot = state->slot + slots;
		flow->weight = weight;
		state->leaving[flow->slot % LIMIT_SLOTS] += weight;
		state->weight += weight;
	}
}

/* The same, and the share that follows. Under the lock. */
ABI_INLINE void set_weight(struct limit_state *state, const struct limit *limit, struct flow_share *flow, __u32 weight,
			   __u64 now, __u64 term_ns)
{
	expire_flows(state, now);
	put_weight(state, flow, weight, now, term_ns);
	set_share(state, limit);
}

/* How long a flow may be silent that is not held back. */
ABI_INLINE __u64 least_term_of(const struct sender *sender)
{
	__u64 round_trip = sender->round_trip_us * 1250ULL;

	return round_trip > LEAST_TERM_NS ? round_trip : LEAST_TERM_NS;
}

/* How long a flow at this rate may be silent. */
ABI_INLINE __u64 term_of(__u64 bytes_per_s, const struct sender *sender)
{
	__u64 term = least_term_of(sender), burst = larger(sender->burst, 2 * FRAME_BITS / 8);
	__u64 bursts = 3 * burst * NS_PER_S / (bytes_per_s | 1);

	return term < bursts ? bursts : term;
}

/* How long the weight of a flow lasts: one that has sent all is not silent because of its rate. */
ABI_INLINE __u64 weight_term_of(__u64 bytes_per_s, const struct sender *sender)
{
	return sender->is_backlogged ? term_of(bytes_per_s, sender) : least_term_of(sender);
}

/* How long a flow may be silent that is announced this rate: what it has just sent is paced at the last one. */
ABI_INLINE __u64 pause_of(const struct flow_share *flow, __u64 bytes_per_s, const struct sender *sender)
{
	__u64 slower = smaller((__u64)flow->rate - 1, bytes_per_s - 1) + 1; /* 0: there was no last one */

	return weight_term_of(slower, sender);
}

/* The backlog that decides the rate of a flow, which has just sent. */
ABI_INLINE __u64 backlog_beside(const struct limit_state *state, const struct limit *limit, const struct sender *sender)
{
	__u64 backlog = backlog_of(state->free_at_ns, limit, sender->now);

	return backlog - smaller(backlog, beyond_frames(limit, time_of(sender->burst * 8, limit->rate_bits_per_s)));
}

/* The part of its share that a flow takes. The part before a silence does not count. */
ABI_INLINE void measure_flow(struct flow_share *flow, const struct sender *sender)
{
	__u64 measured = sender->now - flow->since_ns, elapsed = sender->now - flow->at_ns;

	flow->at_ns = sender->now;
	if (elapsed > term_of(flow->rate, sender)) {
		flow->taken = 0;
	} else {
		flow->allowed += (__u64)flow->rate * elapsed / NS_PER_S;
		if (measured < MEASURE_NS || measured < sender->round_trip_us * 1000ULL ||
		    flow->allowed < MEASURE_BYTES)
			return;
		flow->taken = smaller((sender->acked - flow->acked) * ONE / flow->allowed, ONE);
	}
	flow->since_ns = sender->now;
	flow->acked = sender->acked;
	flow->allowed = 0;
}

/* The weight of a flow: the part of its share that it took, or that its socket can take now. */
ABI_INLINE __u32 weigh(struct flow_share *flow, const struct sender *sender)
{
	__u64 weight;

	measure_flow(flow, sender);
	if (!sender->is_backlogged)
		return flow->taken < ONE / 64 ? 0 : flow->taken;
	if (flow->taken >= TAKES_ALL)
		return ONE;
	weight = smaller(sender->demand_per_s, 1ULL << 50) * ONE / (flow->rate | 1) | 1;
	return smaller(weight > flow->taken ? weight : flow->taken, ONE);
}

/* Whether a weight that is to be renewed is worth the lock. */
ABI_INLINE bool is_news(const struct limit_state *state, const struct flow_share *flow, __u32 weight, __u64 now,
			__u64 term_ns)
{
	__u32 was = flow->weight;

	if (state->slot != slot_of(now) || !was != !weight)
		return true;
	if (was && flow->slot - slot_of(now + term_ns) > 1) /* at the old slot or the next one */
		return true;
	return was > weight ? was - weight > was >> 3 : weight - was > weight >> 3;
}
