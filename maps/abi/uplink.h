/* uplinks: interfaces by which pods reach other nodes past the host stack. Key: ifindex. */
#pragma once

#include "types.h"

#define UPLINK_NETWORKS 8

struct uplink {
	__u32 networks[UPLINK_NETWORKS]; /* network_id() of those that leave the node here; 0 ends the list */
};
