/* SPDX-License-Identifier: MIT */
/* counters: packets and bytes per endpoint, reason and CPU. Key: ifindex of the host-side veth. */
#pragma once

#include "reason.h"

/* Room for reasons to come: a new reason is no new map version. */
#define COUNTER_REASONS 64

struct count {
	__u64 packets;
	__u64 bytes; /* frame length as the hook sees it; a GSO packet counts once, with all its payload */
};

/* One CPU's share. */
struct counters {
	struct count by_reason[COUNTER_REASONS];
};

ABI_STATIC_ASSERT(REASON_COUNT <= COUNTER_REASONS, "a reason beyond COUNTER_REASONS has no counter");
