/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Prefixes that an endpoint's limit does not hold for. */
#pragma once

#include "bpf/packet.h"

/* Whether the limit lets traffic with this address pass: the longest prefix that holds it is exempt. */
static __always_inline bool is_exempt(__u32 flags, __u32 ifindex, enum limit_direction direction,
				      const struct ip_addr *other)
{
	struct exempt_key key = {
		.prefixlen = 192, .ifindex = bpf_htonl(ifindex), .direction = bpf_htonl(direction), .addr = *other};
	__u32 *shaped;

	if (!(flags & INTERFACE_LIMIT_EXEMPT))
		return false;
	shaped = map_find(&exempt_v1, &key);
	return shaped && !(*shaped & PREFIX_SET) && !(*shaped & PREFIX_IPV6 && is_mapped_ipv4(other));
}
