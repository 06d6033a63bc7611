/*
 * Tells what a program does instead of doing it, in the copy of it that `podlanectl explain` loads: the same object, so
 * the same tag, with `tracing` set. In the copies on hooks the verifier takes these branches out.
 */
#pragma once

#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

#include "bpf/maps.h"
#include "maps/abi/event.h"

/* Set by the loader. */
const volatile bool tracing = false;

#define IS_MAP(map, of) __builtin_types_compatible_p(typeof(*(map)), typeof(of))
#define STEP_MAP(map)                                                                                                  \
	(IS_MAP(map, interfaces_v1)     ? STEP_MAP_INTERFACES                                                          \
	 : IS_MAP(map, addresses_v1)    ? STEP_MAP_ADDRESSES                                                           \
	 : IS_MAP(map, paths_v1)        ? STEP_MAP_PATHS                                                               \
	 : IS_MAP(map, allowed_srcs_v1) ? STEP_MAP_SOURCES                                                             \
	 : IS_MAP(map, uplinks_v1)      ? STEP_MAP_UPLINKS                                                             \
	 : IS_MAP(map, cluster_cidr_v1) ? STEP_MAP_CIDRS                                                               \
	 : IS_MAP(map, source_route_v1) ? STEP_MAP_SOURCE_ROUTES                                                       \
	 : IS_MAP(map, bandwidths_v1)   ? STEP_MAP_BANDWIDTHS                                                          \
					: STEP_MAP_OTHER)

/* A step's kind, map and the sizes of the key and the value behind it, in one number. */
#define STEP(kind, map, key_size, value_size)                                                                          \
	((__u64)(kind) << 48 | (__u64)(map) << 32 | (__u64)(key_size) << 16 | (value_size))

/* Not inlined: the programs it is left out of are to be small. */
static __attribute__((noinline)) void trace(__u64 what, __s32 answer, void *key, void *value)
{
	struct step step = {what >> 48, what >> 32 & 0xffff, answer, what >> 16 & 0xffff, what & 0xffff, 0};

	bpf_ringbuf_output(&events_v1, &step, sizeof(step), 0);
	if (key)
		bpf_ringbuf_output(&events_v1, key, what >> 16 & 0xffff, 0);
	if (value)
		bpf_ringbuf_output(&events_v1, value, what & 0xffff, 0);
}

/* In place of the helpers of these names, everywhere. */
#define bpf_map_lookup_elem(map, key)                                                                                  \
	({                                                                                                             \
		void *found_entry = (bpf_map_lookup_elem)(map, key);                                                   \
		if (tracing)                                                                                           \
			trace(STEP(TRACE_LOOKUP, STEP_MAP(map), sizeof(*(key)), sizeof(*(map)->value)),                \
			      found_entry != 0, (void *)(key), found_entry);                                           \
		found_entry;                                                                                           \
	})

#define bpf_map_update_elem(map, key, value_to_put, flags)                                                             \
	({                                                                                                             \
		long put_error = 0;                                                                                    \
		if (tracing)                                                                                           \
			trace(STEP(TRACE_WRITE, STEP_MAP(map), sizeof(*(key)), sizeof(*(map)->value)), 0,              \
			      (void *)(key), value_to_put);                                                            \
		else                                                                                                   \
			put_error = (bpf_map_update_elem)(map, key, value_to_put, flags);                              \
		put_error;                                                                                             \
	})

#define bpf_fib_lookup(skb, question, size, how)                                                                       \
	({                                                                                                             \
		long fib_answer = (bpf_fib_lookup)(skb, question, size, how);                                          \
		if (tracing)                                                                                           \
			trace(STEP(TRACE_ROUTE, 0, sizeof(*(question)), 0), fib_answer, question, 0);                  \
		fib_answer;                                                                                            \
	})

static __always_inline void tell_count(__u32 ifindex, __u32 reason)
{
	trace(STEP(TRACE_COUNT, 0, sizeof(ifindex), 0), reason, &ifindex, 0);
}
