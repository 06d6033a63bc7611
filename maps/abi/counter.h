/* SPDX-License-Identifier: MIT */
/* counters: packets and bytes per endpoint and reason. Key: ifindex of the host-side veth. */
#pragma once

#include "reason.h"

/* Room for reasons to come: a new reason is no new map version. */
#define COUNTER_REASONS 60

struct count {
	__u64 packets;
	__u64 bytes; /* frame length as the hook sees it; a GSO packet counts once, with all its payload */
};

/* One share: the counts of some of the CPUs. */
struct counters {
	struct count by_reason[COUNTER_REASONS];
};

/*
 * A CPU counts in the share of its number modulo COUNTER_SHARES. Not a map with a value for each CPU: those of a pod
 * grow with the CPUs, and so do the ones that the kernel's allocator holds in reserve on each of them (up to 24 before
 * Linux 6.8, so 1.5 GiB on 256 CPUs).
 */
#define COUNTER_SHARES 16

struct counter_shares {
	struct counters shares[COUNTER_SHARES];
};

ABI_STATIC_ASSERT(REASON_COUNT <= COUNTER_REASONS, "a reason beyond COUNTER_REASONS has no counter");
ABI_STATIC_ASSERT(sizeof(struct counter_shares) <= 16384 - 64, "four pages with what the kernel adds to an entry");
