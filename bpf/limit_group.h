/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A pod that shares a limit with others reports to its group, and gets its limit in effect from it. */
#pragma once

#include "bpf/rate.h"
#include "bpf/trace.h"
#include "maps/abi/limit_group.h"

/* A function of its own, which is called while the stack is shallow. One lock is held at a time. */
__attribute__((noinline)) int report_to_group(__u32 ifindex, __u32 direction)
{
	struct limit_key key = {.ifindex = ifindex, .direction = direction};
	struct limit_state *state = bpf_map_lookup_elem(&limit_state_v5, &key), *group;
	struct group_report report = {.now = bpf_ktime_get_ns()};
	struct bandwidth *given;
	__u64 rate, horizon;
	bool is_mine;

	if (!state || !is_report_due(state, report.now))
		return 0;
	key.ifindex = state->group;
	given = bpf_map_lookup_elem(&bandwidths_v1, &key.ifindex);
	group = bpf_map_lookup_elem(&limit_state_v5, &key);
	if (!given || !group)
		return 0;
	rate = rate_in(given, direction);
	/* Apart from what follows: the verifier walks its loop once. */
	bpf_spin_lock(&group->lock);
	expire_flows(group, report.now);
	bpf_spin_unlock(&group->lock);
	bpf_spin_lock(&state->lock);
	is_mine = begin_report(state, &report);
	bpf_spin_unlock(&state->lock);
	if (!is_mine)
		return 0;
	report.rate = report.guarantee;
	if (rate) {
		load_limit(group, rate, burst_in(given, direction));
		bpf_spin_lock(&group->lock);
		answer_report(group, &group->limit, &report);
		bpf_spin_unlock(&group->lock);
	}
	horizon = burst_horizon(report.guarantee | 1, state->given_burst_bits);
	bpf_spin_lock(&state->lock);
	end_report(state, &report, horizon);
	bpf_spin_unlock(&state->lock);
	return 0;
}

/* Before a packet of a pod of a group is charged. */
static __always_inline void report_if_in_group(__u32 flags, __u32 ifindex, enum limit_direction direction)
{
	if (flags & INTERFACE_LIMIT_GROUP && !tracing)
		report_to_group(ifindex, direction);
}
