/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Prefixes that an endpoint's limit does not hold for. */
#pragma once

#include "bpf/packet.h"

/* A global function: the verifier checks it once. The address is in two halves, because 5.10 takes no pointers. */
__attribute__((noinline)) int has_exempt_prefix(__u32 ifindex, __u32 direction, __u64 first, __u64 second)
{
	struct exempt_key key = {.prefixlen = 192, .ifindex = bpf_htonl(ifindex), .direction = bpf_htonl(direction)};
	__u32 *shaped;

	__builtin_memcpy(&key.addr.word[0], &first, sizeof(first));
	__builtin_memcpy(&key.addr.word[2], &second, sizeof(second));
	shaped = map_find(&exempt_v1, &key);
	return shaped && !(*shaped & PREFIX_SET) && !(*shaped & PREFIX_IPV6 && is_mapped_ipv4(&key.addr));
}

/* Whether the limit lets traffic with this address pass: the longest prefix that holds it is exempt. */
static __always_inline bool is_exempt(__u32 flags, __u32 ifindex, enum limit_direction direction,
				      const struct ip_addr *other)
{
	__u64 half[2];

	if (!(flags & INTERFACE_LIMIT_EXEMPT))
		return false;
	__builtin_memcpy(half, other, sizeof(half));
	return has_exempt_prefix(ifindex, direction, half[0], half[1]);
}
