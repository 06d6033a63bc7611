/* SPDX-License-Identifier: MIT */
/* cluster CIDRs: destinations that a network's pods may reach on the fast path. A longest-prefix-match trie. */
#pragma once

#include "types.h"

struct cluster_cidr_key {
	__u32 prefixlen; /* bits, counted from network on: 32 + the prefix's length (IPv4: + 96 for the mapped form) */
	__be32 network;  /* in network byte order, as tries compare bits from the first byte */
	struct ip_addr addr;
};

ABI_STATIC_ASSERT(sizeof(struct cluster_cidr_key) == 24, "no padding in a key");
