/* SPDX-License-Identifier: MIT */
/* Integer types and addresses shared by the BPF programs and user space. Compiles as BPF C and as C++20. */
#pragma once

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/*
 * An IPv4 or IPv6 address in network byte order; IPv4 is written as its IPv4-mapped form ::ffff:a.b.c.d
 * (RFC 4291, 2.5.5.2), so that one map serves both families. All zero means "none".
 */
struct ip_addr {
	__be32 word[4];
};

/*
 * Bits of the values in the tries of prefixes. An IPv6 prefix such as ::/0 covers the mapped form of IPv4 addresses as
 * bits, but never an IPv4 address.
 */
enum prefix_value {
	PREFIX_SET = 1 << 0,
	PREFIX_IPV6 = 1 << 1,
	PREFIX_REFUSED = 1 << 2, /* of a trie that knows both */
};

#ifdef __cplusplus
#define ABI_STATIC_ASSERT(expression, text) static_assert(expression, text)
#else
#define ABI_STATIC_ASSERT(expression, text) _Static_assert(expression, text)
#endif

ABI_STATIC_ASSERT(sizeof(struct ip_addr) == 16, "an address is 16 bytes");
