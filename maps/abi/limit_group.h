/* SPDX-License-Identifier: MIT */
/*
 * A limit that pods share. Each pod has a guaranteed rate, the limit of its own; what the pods do not use of the
 * group's rate is lent to those that want more, in proportion to their guarantees. So the limit in effect of each pod
 * is
 *
 *                        group's rate
 *     guarantee × ------------------------- × gain, at least the guarantee
 *                 demand, as sum of weights
 *
 * A pod weighs as much as its guarantee if it takes its whole limit, less if it uses a part of it, and nothing if it is
 * silent. Guarantees that exceed the group's rate together are cut in proportion. A pod reports what it has let through
 * while it sends, every GROUP_NS or as many bytes as its guarantee lets through in it, so few packets wait for the
 * group's lock.
 *
 * The group's own backlog is by how much the pods are ahead of its rate together. While it is large nothing is lent, so
 * that it goes: what a pod sends at once, when it is lent much, is missing from what is lent next.
 */
#pragma once

#include "fair_share.h"

#define GROUP_NS (10 * NS_PER_MS)
/* The weight of the group's whole rate. */
#define GROUP_WHOLE (1U << 20)
/* The use that a pod makes of its limit is measured for at least so many frames. */
#define GROUP_FRAMES 8
/* A silent pod leaves after this time, or when it could have sent GROUP_FRAMES, or when its senders would have. */
#define GROUP_TERM_NS (5 * GROUP_NS)
/* The least demand that a sending pod is taken to have. */
#define LEAST_TAKEN (ONE / 64)
/* Weights are nearly right: the gain corrects little, and so has little to unlearn. */
#define LEAST_GAIN (ONE * 3 / 4)
#define HIGHEST_GAIN (ONE * 5 / 4)

/* A pod's report to its group, and the rate that follows. */
struct group_report {
	__u64 now;
	__u64 guarantee; /* bits per second */
	__u64 bytes;     /* let through since the last report */
	__u64 begins;    /* 1 if it was silent until now, and others of the group were not */
	__u64 frame_ns;
	__u64 backlog_ns;
	__u64 term_ns; /* it has left when it was silent for so long */
	__u64 rate;    /* the answer: bits per second from now on */
	struct flow_share share;
};

ABI_INLINE bool is_report_due(const struct limit_state *state, __u64 now)
{
	__u64 elapsed = now - state->share.at_ns, per_s = (state->bytes - state->reported) * 8 * (NS_PER_S / GROUP_NS);

	return state->group && elapsed + LATEST_NS >= LATEST_NS &&
	       (elapsed >= GROUP_NS || per_s > smaller(state->given_bits_per_s, state->limit.rate_bits_per_s));
}

/* The time that a measurement takes at least. */
ABI_INLINE __u64 measured_ns(__u64 frame_ns)
{
	return GROUP_NS + GROUP_FRAMES * frame_ns;
}

/* Who sends all at once takes its limit until that would have left. */
ABI_INLINE __u64 group_term(const struct limit_state *state, __u64 backlog)
{
	__u64 term = larger(measured_ns(state->limit.frame_ns), state->pause_us * 1000ULL);

	return larger(larger(term, backlog), GROUP_TERM_NS);
}

/*
 * The part of its limit that the pod uses, or wants to use: all of it if packets or their senders wait. One that begins
 * shows that with its next report: many send a packet now and then, and want next to nothing.
 */
ABI_INLINE void measure_member(struct limit_state *state, __u64 now, __u64 begins, __u64 backlog)
{
	struct flow_share *share = &state->share;
	const struct limit *limit = &state->limit;
	__u64 measured = now - share->since_ns, taken;
	bool is_waiting = backlog > limit->target_ns / 2;

	if (!is_waiting && !begins && measured < measured_ns(limit->frame_ns))
		return;
	taken = time_of(smaller(state->bytes - share->acked, 1ULL << 31) * 8, limit->rate_bits_per_s | 1);
	taken = smaller(taken, measured) * ONE / (measured | 1);
	taken += taken / 8; /* room to want more */
	if (taken >= TAKES_ALL || is_waiting)
		taken = ONE;
	share->taken = larger(taken, LEAST_TAKEN);
	share->since_ns = now;
	share->acked = state->bytes;
}

/* False if another CPU has just reported. Under the lock of the pod's limit. */
ABI_INLINE bool begin_report(struct limit_state *state, struct group_report *report)
{
	if (!is_report_due(state, report->now))
		return false;
	report->bytes = state->bytes - state->reported;
	report->backlog_ns = backlog_of(state->free_at_ns, &state->limit, report->now);
	report->term_ns = group_term(state, report->backlog_ns);
	/* Without a branch, as in smaller(). */
	report->begins = (report->term_ns - (report->now - state->share.at_ns)) >> 63;
	measure_member(state, report->now, report->begins, report->backlog_ns);
	state->share.at_ns = report->now;
	state->reported = state->bytes;
	report->guarantee = smaller(state->given_bits_per_s, HIGHEST_RATE);
	report->frame_ns = state->limit.frame_ns;
	report->share = state->share;
	return true;
}

/* The gain follows the load, unless nothing is lent. Under the lock of the group's limit. */
ABI_INLINE void measure_group(struct limit_state *group, const struct limit *limit, const struct group_report *report)
{
	__u64 now = report->now, elapsed = now - group->window_since_ns, load, wanted = ONE + ONE / 32, backlog;

	if (elapsed + LATEST_NS < LATEST_NS + 2 * GROUP_NS || elapsed < 2 * GROUP_FRAMES * report->frame_ns)
		return;
	backlog = backlog_of(group->free_at_ns, limit, now);
	if (backlog > limit->target_ns) /* from 1 to 3/4 */
		wanted = ONE -
			 smaller(backlog - limit->target_ns, limit->target_ns) * (ONE / 4) / (limit->target_ns | 1);
	load = smaller(group->window_charged_ns, elapsed * 2) * ONE / (elapsed | 1);
	group->gain = (group->gain ? group->gain : ONE) * (ONE + wanted / 4 - load / 4) / ONE;
	if (backlog > 2 * limit->target_ns || group->weight >= GROUP_WHOLE - GROUP_WHOLE / 64)
		group->gain = ONE;
	if (group->gain > HIGHEST_GAIN)
		group->gain = HIGHEST_GAIN;
	if (group->gain < LEAST_GAIN)
		group->gain = LEAST_GAIN;
	group->window_since_ns = now;
	group->window_charged_ns = 0;
	group->share.weight -= group->share.weight >> 8;
}

/* The guarantee, raised or lowered for a demand of all that weighs `weight`. */
ABI_INLINE __u64 raised(__u64 guarantee, __u64 weight)
{
	__u64 ratio = ((__u64)GROUP_WHOLE << 12) / (weight | 1);

	return (guarantee >> 12) * ratio + ((guarantee & 4095) * ratio >> 12);
}

ABI_INLINE __u64 lent_rate(__u64 guarantee, __u64 weight, __u64 gain)
{
	__u64 rate = raised(guarantee, weight);

	if (rate <= guarantee)
		return rate;
	rate = scaled(rate, gain);
	return rate > guarantee ? rate : guarantee;
}

/*
 * The part of what is lent that a backlog of the group takes away, in 1/ONE: from 3/2 to 5/2 of the target all of it.
 * It is that of half of the time since the pod's last report: after it, those that report more at a time would see
 * more.
 */
ABI_INLINE __u64 held_back(const struct limit *limit, __u64 backlog, __u64 cost)
{
	__u64 from = limit->target_ns * 3 / 2 + cost / 2;

	return smaller(larger(backlog, from) - from, limit->target_ns) * ONE / (limit->target_ns | 1);
}

/*
 * Charges what the pod has let through, renews its weight, and answers its rate. Under the lock of the group's limit,
 * after expire_flows(). `share.weight` of a group is what its pods could weigh together, the most in some seconds: to
 * so many the whole rate is left when nothing is lent.
 */
ABI_INLINE void answer_report(struct limit_state *group, const struct limit *limit, struct group_report *report)
{
	__u64 whole = (report->guarantee << 13) / (limit->rate_bits_per_s >> 7 | 1), weight, cost, most, backlog;
	__u64 is_alone;
	bool is_idle_group;

	whole = smaller(whole, ~0U >> 2) | 1;
	weight = whole * report->share.taken / ONE;
	cost = time_of(smaller(report->bytes, 1ULL << 31) * 8, limit->rate_bits_per_s);
	backlog = backlog_of(group->free_at_ns, limit, report->now);
	/* Guarantees leave nothing to make up for an excess over the rate: a part of what adds to it is forgiven. */
	backlog += cost - cost / 32 * ((2 * limit->target_ns - backlog) >> 63);
	backlog = smaller(backlog, smaller(limit->horizon_ns * 4, longest_backlog(limit)));
	group->free_at_ns = report->now + backlog;
	group->window_charged_ns += cost;
	group->bytes += report->bytes;
	is_idle_group = !group->weight;
	put_weight(group, &report->share, weight, report->now, report->term_ns);
	if (is_idle_group) {
		report->begins = 0;
		group->gain = ONE;
		group->window_since_ns = report->now;
		group->window_charged_ns = 0;
	}
	measure_group(group, limit, report);
	group->flows = (group->weight + (GROUP_WHOLE >> 11)) / (GROUP_WHOLE >> 10);
	/* The bucket of one alone is the group's: there is nothing to correct. */
	is_alone = ((__u64)group->weight - report->share.weight - 1) >> 63;
	/* Its own bucket holds it back already. */
	backlog -= smaller(backlog, report->backlog_ns);
	/* Each may want all from now on. Until one that begins shows what it wants, only a silent group lends to it. */
	weight = larger(group->weight - report->share.weight + whole, whole);
	group->share.weight = larger(group->share.weight, smaller(weight, ~0U));
	most = limit->rate_bits_per_s;
	most -= report->begins * (most - smaller(report->guarantee, most));
	report->rate = smaller(lent_rate(report->guarantee, weight, choose(is_alone, ONE, group->gain)), most);
	most = smaller(report->rate, raised(report->guarantee, larger(group->share.weight, GROUP_WHOLE)));
	report->rate -= scaled(report->rate - most, held_back(limit, backlog, cost));
	group->fair_bytes_per_s = report->rate / 8;
}

/* The limit in effect is the answer from now on. Under the lock of the pod's limit. */
ABI_INLINE void end_report(struct limit_state *state, const struct group_report *report, __u64 horizon)
{
	__u64 rate = report->rate ? report->rate : 1;

	state->share.slot = report->share.slot;
	state->share.weight = report->share.weight;
	make_limit_of(&state->limit, rate, horizon);
	set_share(state, &state->limit);
}
