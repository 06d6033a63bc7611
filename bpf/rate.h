/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The limit in effect, computed when it is set. */
#pragma once

#include "bpf/trace.h"
#include "maps/abi/fair_share.h"

/*
 * Divisions are what a packet costs here: only a limit that was changed needs them. Without the lock: what another CPU
 * reads meanwhile are numbers of the one limit or the other.
 */
static __always_inline void load_limit(struct limit_state *state, __u64 rate, __u64 burst)
{
	if (state->given_bits_per_s != rate || state->given_burst_bits != burst) {
		make_limit(&state->limit, rate, burst);
		state->given_burst_bits = burst;
		state->given_bits_per_s = rate;
	}
}
