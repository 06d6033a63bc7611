/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Lookups that several stages share. */
#pragma once

#include "bpf/packet.h"

/* In a global function, which takes no pointers: what is known of the packet at hand. */
static __always_inline bool take_up(struct packet *p)
{
	__u32 ifindex = p->skb->ifindex;

	p->interface = bpf_map_lookup_elem(&interfaces_v1, &ifindex);
	if (!p->interface)
		return false;
	p->network = p->interface->network;
	return find_parsed(p);
}

static __always_inline struct address *find_address(struct packet *p, const struct ip_addr *addr)
{
	struct address_key key = {.network = p->network, .addr = *addr};

	return map_find(&addresses_v1, &key);
}

/* Whether an address is in the network's cluster CIDRs. */
static __always_inline bool in_cluster(struct packet *p, const struct ip_addr *addr)
{
	struct cluster_cidr_key key = {.prefixlen = 160, .network = bpf_htonl(p->network), .addr = *addr};

	return prefix_value_for(map_find(&cluster_cidr_v1, &key), addr);
}

/* Whether the address is one of the endpoint behind the interface the packet is on. */
static __always_inline bool owns(struct packet *p, const struct ip_addr *addr)
{
	struct interface *own = p->interface;

	/* The address of a family that the endpoint lacks is zero. */
	if (is_unspecified(addr))
		return false;
	if (same_addr(addr, &own->ipv4) || same_addr(addr, &own->ipv6) || same_addr(addr, &own->link_local))
		return true;
	if (own->flags & INTERFACE_MORE_ADDRESSES) {
		struct address_key key = {.network = own->network, .addr = *addr};
		struct address *owner = map_find(&addresses_v1, &key);

		if (owner && owner->ifindex == p->skb->ifindex)
			return true;
	}
	return false;
}

/*
 * The host-side veth of the endpoint that has the address and that the node routes to, whatever its network; 0: none.
 * Behind a bridge that does not route for it, an endpoint is on the link of the bridge.
 */
static __always_inline __u32 find_owner_on_node(const struct ip_addr *addr)
{
	struct sender_key key = {.netns = node_netns, .addr = *addr};
	__u32 *ifindex = map_find(&senders_v1, &key);
	struct interface *owner = ifindex ? map_find(&interfaces_v1, ifindex) : 0;

	return owner && !(owner->flags & INTERFACE_BRIDGED) ? *ifindex : 0;
}

/* A bridge that another plugin has made brings all that its pods send. Other pods are known by their own interface. */
static __always_inline bool is_behind_bridge(__u32 owner)
{
	struct interface *entry = map_find(&interfaces_v1, &owner);

	return entry && !(entry->flags & INTERFACE_ROUTED);
}

static __always_inline struct source_route *find_source_route(__u32 ifindex, const struct ip_addr *source)
{
	struct source_route_key key = {.ifindex = ifindex, .source = *source};
	struct source_route *route = map_find(&source_route_v1, &key);

	/* An entry is valid only for the address it stores, whatever key it is found under. */
	return route && same_addr(&route->source, source) ? route : 0;
}

static __always_inline bool same_subnet(const struct ip_addr *a, const struct ip_addr *b, __u32 bits)
{
#pragma unroll
	for (__u32 i = 0; i < 4; i++) {
		__u32 differ = bpf_ntohl(a->word[i] ^ b->word[i]);

		if (bits <= i * 32)
			return true;
		if (bits < (i + 1) * 32)
			differ &= ~0U << ((i + 1) * 32 - bits);
		if (differ)
			return false;
	}
	return true;
}

static __always_inline bool serves(const struct uplink *uplink, __u32 network)
{
#pragma unroll
	for (int i = 0; i < UPLINK_NETWORKS; i++)
		if (uplink->networks[i] == network)
			return true;
	return false;
}

/* Who owns the address in any of the uplink's networks. */
static __always_inline struct address *find_in(const struct uplink *uplink, const struct ip_addr *addr)
{
	struct address *owner = 0;

	for (int i = 0; i < UPLINK_NETWORKS && !owner && uplink->networks[i]; i++) {
		struct address_key key = {.network = uplink->networks[i], .addr = *addr};

		owner = map_find(&addresses_v1, &key);
	}
	return owner;
}

/* The endpoint in one of the uplink's networks that owns the address. */
static __always_inline struct address *find_endpoint(struct packet *p, const struct ip_addr *addr)
{
	__u32 ifindex = p->skb->ifindex;
	struct uplink *uplink = map_find(&uplinks_v2, &ifindex);

	if (!uplink)
		return 0;
#pragma unroll
	for (int i = 0; i < UPLINK_NETWORKS; i++) {
		struct address *owner;

		p->network = uplink->networks[i];
		if (!p->network)
			return 0;
		owner = find_address(p, addr);
		if (owner)
			return owner;
	}
	return 0;
}
