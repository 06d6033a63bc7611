/* SPDX-License-Identifier: MIT */
/* uplinks: interfaces by which pods reach other nodes on the fast path. Key: ifindex. */
#pragma once

#include "types.h"

#define UPLINK_NETWORKS 8

enum uplink_flags {
	/* It has no IPv4 address: the node sends its ARP requests there without a sender address. */
	UPLINK_UNNUMBERED = 1 << 0,
};

struct uplink {
	__u32 networks[UPLINK_NETWORKS]; /* network_id() of those that leave the node here; 0 ends the list */
	__u32 flags;                     /* enum uplink_flags */
};
