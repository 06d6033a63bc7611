/* SPDX-License-Identifier: MIT */
/* bandwidths: the limits an endpoint was given. Key: ifindex of its host-side veth. Rates 0 mean "no limit". */
#pragma once

#include "types.h"

/* Directions as the pod sees them (CNI conventions, `bandwidth`): ingress is towards the pod. */
struct bandwidth {
	__u64 ingress_rate_bits_per_s;
	__u64 ingress_burst_bits;
	__u64 egress_rate_bits_per_s;
	__u64 egress_burst_bits;
};
