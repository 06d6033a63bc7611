/* SPDX-License-Identifier: MIT */
/* allowed sources: prefixes an endpoint may send from besides its own addresses. A longest-prefix-match trie. */
#pragma once

#include "types.h"

struct allowed_source_key {
	__u32 prefixlen; /* bits, counted from ifindex on: 32 + the prefix's length (IPv4: + 96 for the mapped form) */
	__be32 ifindex;  /* the endpoint's host-side veth, in network byte order as tries compare bits from the first
			    byte */
	struct ip_addr addr;
};

ABI_STATIC_ASSERT(sizeof(struct allowed_source_key) == 24, "no padding in a key");
