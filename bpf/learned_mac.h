/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sends to the MAC that an endpoint has announced: see learn_mac.h. */
#pragma once

#include "bpf/packet.h"

/* A global function: the verifier checks it once. */
__attribute__((noinline)) int write_announced_mac(struct __sk_buff *skb)
{
	__u8 to[6] __attribute__((aligned(2)));
	__u32 ifindex = skb->ifindex;
	struct interface *own = bpf_map_lookup_elem(&interfaces_v1, &ifindex);

	if (!own || load(skb, 0, to, sizeof(to)) || to[0] & 1 || same_mac(to, own->pod_mac))
		return 0;
	bpf_skb_store_bytes(skb, 0, own->pod_mac, sizeof(to), 0);
	return 0;
}

/* The host stack's neighbour has the MAC of the ADD until the next CNI call. */
static __always_inline int write_learned_mac(struct packet *p)
{
	const __u32 own_link = INTERFACE_MAC_LEARNED | INTERFACE_GATEWAY;

	if ((p->interface->flags & own_link) == own_link)
		write_announced_mac(p->skb);
	return 0;
}
