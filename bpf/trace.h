/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The map and route helpers of the stages. `podlanectl explain` loads a copy of a program (traced.bpf.c), in which they
 * report their lookups and writes to events_v1, and write nothing. bpf_map_lookup_elem() itself is not reported.
 */
#pragma once

#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

#include "bpf/maps.h"
#include "maps/abi/event.h"

#ifdef TRACED_COPY
/* Volatile: the compiler would pass no arguments that only the attached programs use, which the verifier refuses. */
const volatile bool tracing = true;
#else
/* No variable: the verifier would have a hundred branches to take out at each load. */
static const bool tracing = false;
#endif

#define IS_MAP(map, of) __builtin_types_compatible_p(typeof(*(map)), typeof(of))
#define STEP_MAP(map)                                                                                                  \
	(IS_MAP(map, interfaces_v1)     ? STEP_MAP_INTERFACES                                                          \
	 : IS_MAP(map, addresses_v1)    ? STEP_MAP_ADDRESSES                                                           \
	 : IS_MAP(map, paths_v1)        ? STEP_MAP_PATHS                                                               \
	 : IS_MAP(map, allowed_srcs_v1) ? STEP_MAP_SOURCES                                                             \
	 : IS_MAP(map, uplinks_v2)      ? STEP_MAP_UPLINKS                                                             \
	 : IS_MAP(map, cluster_cidr_v1) ? STEP_MAP_CIDRS                                                               \
	 : IS_MAP(map, source_route_v1) ? STEP_MAP_SOURCE_ROUTES                                                       \
	 : IS_MAP(map, flows_v2)        ? STEP_MAP_FLOWS                                                               \
	 : IS_MAP(map, bandwidths_v1)   ? STEP_MAP_BANDWIDTHS                                                          \
	 : IS_MAP(map, isolation_v1)    ? STEP_MAP_ISOLATION                                                           \
	 : IS_MAP(map, group_cidrs_v1)  ? STEP_MAP_GROUP_CIDRS                                                         \
	 : IS_MAP(map, exempt_v1)       ? STEP_MAP_EXEMPT                                                              \
					: STEP_MAP_OTHER)

/* A step's kind, map and the sizes of the key and the value behind it, in one number. */
#define STEP(kind, map, key_size, value_size)                                                                          \
	((__u64)(kind) << 48 | (__u64)(map) << 32 | (__u64)(key_size) << 16 | (value_size))

static __attribute__((noinline)) void trace(__u64 what, __s32 answer, void *key, void *value)
{
	struct step step = {what >> 48, what >> 32 & 0xffff, answer, what >> 16 & 0xffff, what & 0xffff, 0};

	bpf_ringbuf_output(&events_v1, &step, sizeof(step), 0);
	/* Masked again: verifiers before 6.18 lose the bounds of a number that was spilled to the stack. */
	if (key)
		bpf_ringbuf_output(&events_v1, key, what >> 16 & 0xffff, 0);
	if (value)
		bpf_ringbuf_output(&events_v1, value, what & 0xffff, 0);
}

#define map_find(map, key)                                                                                             \
	({                                                                                                             \
		void *found_entry = bpf_map_lookup_elem(map, key);                                                     \
		if (tracing)                                                                                           \
			trace(STEP(TRACE_LOOKUP, STEP_MAP(map), sizeof(*(key)), sizeof(*(map)->value)),                \
			      found_entry != 0, (void *)(key), found_entry);                                           \
		found_entry;                                                                                           \
	})

#define map_insert(map, key, new_value, flags)                                                                         \
	({                                                                                                             \
		long insert_error = 0;                                                                                 \
		if (tracing)                                                                                           \
			trace(STEP(TRACE_WRITE, STEP_MAP(map), sizeof(*(key)), sizeof(*(map)->value)), 0,              \
			      (void *)(key), new_value);                                                               \
		else                                                                                                   \
			insert_error = bpf_map_update_elem(map, key, new_value, flags);                                \
		insert_error;                                                                                          \
	})

#define map_remove(map, key)                                                                                           \
	({                                                                                                             \
		if (!tracing)                                                                                          \
			bpf_map_delete_elem(map, key);                                                                 \
	})

#define route_lookup(skb, question, size, how)                                                                         \
	({                                                                                                             \
		long fib_result = bpf_fib_lookup(skb, question, size, how);                                            \
		if (tracing)                                                                                           \
			trace(STEP(TRACE_ROUTE, 0, sizeof(*(question)), 0), fib_result, question, 0);                  \
		fib_result;                                                                                            \
	})

static __always_inline void trace_count(__u32 ifindex, __u32 reason)
{
	trace(STEP(TRACE_COUNT, 0, sizeof(ifindex), 0), reason, &ifindex, 0);
}
