/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Finds the endpoint that owns the host-side veth a packet is on. */
#pragma once

#include "bpf/packet.h"

/* Packets of an unknown endpoint are not let through in either direction: an endpoint is deleted before its
 * interface. */
static __always_inline int find_interface(struct packet *p)
{
	__u32 ifindex = p->skb->ifindex;

	p->interface = map_find(&interfaces_v1, &ifindex);
	if (!p->interface)
		return REASON_DROP_UNKNOWN_ENDPOINT;
	p->network = p->interface->network;
	return 0;
}
