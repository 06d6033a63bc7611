/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The transport behind more IPv6 extension headers than are parsed. */
#pragma once

#include "bpf/headers.h"

#define IPV6_EXTENSIONS_WALKED 8
#define HIDDEN_TOO_FAR (-1)
#define HIDDEN_TYPE 255 /* which no message has */

/*
 * Its protocol, of ICMPv6 with the type in the second byte (HIDDEN_TYPE: the message is cut), and NEXTHDR_FRAGMENT in a
 * later fragment. HIDDEN_TOO_FAR: there are too many headers, or they are cut. A global function: the verifier checks
 * it once.
 */
__attribute__((noinline)) int find_hidden(struct __sk_buff *skb)
{
	__u32 offset = sizeof(struct ethhdr) + sizeof(struct ipv6hdr), end = ip_end(skb);
	struct extension header; /* or a message, which begins with its type */
	__u8 protocol;

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + __builtin_offsetof(struct ipv6hdr, nexthdr), &protocol,
			       sizeof(protocol)))
		return HIDDEN_TOO_FAR;
#pragma clang loop unroll(disable)
	for (int i = 0; i <= IPV6_EXTENSIONS_WALKED; i++) {
		bool is_cut = offset + sizeof(header) > end || bpf_skb_load_bytes(skb, offset, &header, sizeof(header));

		if (protocol == IPPROTO_ICMPV6)
			return (is_cut ? HIDDEN_TYPE : header.next) << 8 | protocol;
		if (!is_extension(protocol))
			return protocol;
		if (is_cut)
			return HIDDEN_TOO_FAR;
		if (is_later_fragment(protocol, &header))
			return NEXTHDR_FRAGMENT;
		offset += extension_bytes(protocol, &header);
		protocol = header.next;
	}
	return HIDDEN_TOO_FAR;
}

static __always_inline bool may_be_tcp(int hidden)
{
	return hidden == HIDDEN_TOO_FAR || hidden == IPPROTO_TCP;
}
