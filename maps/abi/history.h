/* SPDX-License-Identifier: MIT */
/*
 * history: what the plugin did, newest over oldest, and how long it took. One entry, mapped into the memory of whoever
 * writes it: writing is a few atomic additions and a copy, without a system call.
 */
#pragma once

#include "endpoint.h"

enum operation_verb { OPERATION_ADD, OPERATION_DEL, OPERATION_CHECK, OPERATION_GC, OPERATION_STATUS, OPERATION_VERBS };

/* X(NAME, text, sentence): what a verb spends its time on; appended to only. */
#define PODLANE_STEPS(X)                                                                                               \
	X(OTHER, "other", "reading the request, opening maps, and what is not named below")                            \
	X(LOAD, "load", "loading the programs, at the first call after a boot")                                        \
	X(IPAM, "ipam", "the IPAM plugin")                                                                             \
	X(NETWORK, "network", "locks, the network's entries and its uplinks")                                          \
	X(LINK, "link", "making or removing the veth pair")                                                            \
	X(POD, "pod", "addresses, routes and neighbours in the container")                                             \
	X(HOST, "host", "routes and neighbours on the node")                                                           \
	X(PROGRAMS, "programs", "attaching and detaching")                                                             \
	X(ENTRIES, "entries", "map entries")                                                                           \
	X(MASQUERADE, "masquerade", "nft or iptables")                                                                 \
	X(WAIT, "wait", "until the kernel has made the IPv6 addresses usable")                                         \
	X(SIBLINGS, "siblings", "the container's other interfaces and the way out of the node")                        \
	X(UNDO, "undo", "rollback of a failed call")

enum operation_step {
#define X(name, text, sentence) STEP_##name,
	PODLANE_STEPS(X)
#undef X
		STEP_COUNT
};

#define OPERATION_STEPS 16 /* room for steps to come */
#define OPERATION_MESSAGE_SIZE 160

struct operation {
	__u64 number;      /* from 1 on; 0: never written */
	__u64 started_ns;  /* CLOCK_REALTIME */
	__u64 duration_ns; /* of the whole process's work */
	__u32 step_us[OPERATION_STEPS];
	__u32 error_code; /* of the CNI error; 0: it went well */
	__u8 verb;        /* enum operation_verb */
	__u8 reserved[3];
	__u32 checksum; /* of everything else: two writers may meet in one slot when one of them sleeps for long */
	__u32 unused;
	char container_id[ENDPOINT_CONTAINER_ID_SIZE];
	char ifname[ENDPOINT_IFNAME_SIZE];
	char network_name[ENDPOINT_NETWORK_SIZE];
	char pod_name[ENDPOINT_POD_NAME_SIZE];
	char pod_namespace[ENDPOINT_POD_NAMESPACE_SIZE];
	char message[OPERATION_MESSAGE_SIZE]; /* the beginning of the error's */
};

/* Upper bounds of the buckets in microseconds; the last bucket has none. */
#define OPERATION_BOUNDS_US                                                                                            \
	{                                                                                                              \
		1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 5000000                        \
	}
#define OPERATION_BUCKETS 12

struct operation_totals {
	__u64 duration_ns;
	__u64 buckets[OPERATION_BUCKETS]; /* each operation in one of them */
};

#define HISTORY_OPERATIONS 256

struct history {
	__u64 count;                                        /* operations ever recorded */
	struct operation_totals totals[OPERATION_VERBS][2]; /* [verb][0: went well, 1: failed] */
	struct operation last[HISTORY_OPERATIONS];          /* number n is at (n - 1) % HISTORY_OPERATIONS */
};

ABI_STATIC_ASSERT(STEP_COUNT <= OPERATION_STEPS, "a step beyond OPERATION_STEPS has no place");
ABI_STATIC_ASSERT(sizeof(struct operation) % 8 == 0, "no padding at the end");
