/* SPDX-License-Identifier: MIT */
/* events, watch: what the programs report while podlanectl monitor or explain runs. */
#pragma once

#include "types.h"

#define EVENT_FRAME_BYTES 128

/* One packet's end, in the ring buffer of events. */
struct event {
	__u64 time_ns;    /* CLOCK_MONOTONIC */
	__u32 ifindex;    /* host-side veth or uplink */
	__u32 reason;     /* enum reason */
	__u32 frame_size; /* bytes; of a GSO packet with all its payload */
	__u32 captured;   /* bytes in frame */
	__u8 is_egress;   /* on the way out of the interface: to the pod, or by the uplink */
	__u8 reserved[7];
	__u8 frame[EVENT_FRAME_BYTES]; /* its beginning, as the program left it */
};

enum watch_mode { WATCH_NOTHING, WATCH_DROPS, WATCH_ALL };

/*
 * Who watches. Written by podlanectl, and by the programs: `lost`, and `mode` if nobody keeps the watch any more.
 * And what else the programs read for each packet: whoever changes what isolation_v1, group_cidrs_v1 or cluster_cidr_v1
 * hold counts that afterwards, by an atomic addition, so that decisions that flows_v2 holds end.
 */
struct watch {
	__u32 mode;     /* enum watch_mode */
	__u32 one_in;   /* WATCH_ALL: of so many packets that are not dropped one is reported */
	__u64 until_ns; /* CLOCK_MONOTONIC: whoever watches moves it on */
	__u64 lost;     /* events there was no room for, ever */
	__u32 pid;      /* of who watches */
	__u32 isolation_changes;
};

/*
 * A step of a traced program (explain): each lookup, write, query of the kernel's routes and count is reported, in
 * order, and nothing is written or counted. A step is followed by its key and its value, each a record of its own.
 */
enum trace_kind { TRACE_LOOKUP = 1, TRACE_WRITE, TRACE_ROUTE, TRACE_COUNT };
enum step_map {
	STEP_MAP_OTHER,
	STEP_MAP_INTERFACES,
	STEP_MAP_ADDRESSES,
	STEP_MAP_PATHS,
	STEP_MAP_SOURCES,
	STEP_MAP_UPLINKS,
	STEP_MAP_CIDRS,
	STEP_MAP_SOURCE_ROUTES,
	STEP_MAP_BANDWIDTHS,
	STEP_MAP_FLOWS,
	STEP_MAP_ISOLATION,
	STEP_MAP_GROUP_CIDRS,
	STEP_MAP_EXEMPT,
};

struct step {
	__u32 kind;       /* enum trace_kind */
	__u32 map;        /* enum step_map */
	__s32 answer;     /* lookup: whether there is an entry; route: the kernel's answer; count: the reason */
	__u32 key_size;   /* of the record that follows, 0: none; route: struct bpf_fib_lookup; count: the ifindex */
	__u32 value_size; /* of the record behind that, if there is an entry */
	__u32 reserved;
};

ABI_STATIC_ASSERT(sizeof(struct event) == 32 + EVENT_FRAME_BYTES, "no padding in an event");
ABI_STATIC_ASSERT(sizeof(struct watch) == 32, "no padding in a value");
ABI_STATIC_ASSERT(sizeof(struct step) == 24, "no padding in a step");
