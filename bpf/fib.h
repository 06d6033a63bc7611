/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Queries the kernel's routes. */
#pragma once

#include "bpf/packet.h"
#include "bpf/tables.h"
#include "maps/abi/own_address.h"

#define NOBODY bpf_htonl(0xf0000001) /* 240.0.0.1, or the end of an IPv6 address that nobody has */

/* An IPv6 packet of more than 64 KiB, whose segments will not have the header that says its length (8 bytes). */
static __always_inline bool is_jumbogram(struct packet *p)
{
	return p->in->protocol == ETH_P_IPV6 && p->skb->len > sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + 0xffff;
}

/* Length of the IP packet; of a GSO packet that of its segments, as the kernel's forwarding counts it. 0: unknown. */
static __always_inline __u32 ip_bytes(struct packet *p)
{
	__u32 segment = p->skb->gso_size;

	if (!segment)
		return p->skb->len - sizeof(struct ethhdr);
	return p->in->header_bytes ? segment + p->in->header_bytes - (is_jumbogram(p) ? 8 : 0) : 0;
}

static __always_inline bool fits(struct packet *p, __u32 mtu)
{
	__u32 bytes = ip_bytes(p);

	return bytes && bytes <= mtu;
}

static __always_inline void set_ends(struct packet *p, struct bpf_fib_lookup *fib)
{
	if (p->in->protocol == ETH_P_IP) {
		fib->family = AF_INET;
		fib->tos = p->in->traffic_class;
		fib->ipv4_src = p->ip->source.word[3];
		fib->ipv4_dst = p->ip->destination.word[3];
	} else {
		fib->family = AF_INET6;
		fib->flowinfo = p->in->traffic_class;
		__builtin_memcpy(fib->ipv6_src, &p->ip->source, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, &p->ip->destination, sizeof(fib->ipv6_dst));
	}
}

/*
 * The ports are part of the query: without them all flows would take one of several equal-cost routes. So is the size:
 * without it the kernel compares nothing with the route's MTU.
 */
static __always_inline long query_routes_by(struct packet *p, struct bpf_fib_lookup *fib, __u32 ifindex, __u16 bytes,
					    __u32 flags)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = ifindex;
	fib->l4_protocol = p->ip->protocol;
	fib->tot_len = bytes;
	fib->sport = p->in->is_icmp_error ? 0 : p->in->flow.local_port;
	fib->dport = p->in->is_icmp_error              ? 0
		     : (p->follow & FOLLOW_TRANSLATED) ? p->new_destination_port
						       : p->in->flow.peer_port;
	set_ends(p, fib);
	return route_lookup(p->skb, fib, sizeof(*fib), flags);
}

static __always_inline long query_routes(struct packet *p, struct bpf_fib_lookup *fib, __u32 uplink, __u16 bytes)
{
	return query_routes_by(p, fib, uplink ? uplink : p->skb->ifindex, bytes, uplink ? BPF_FIB_LOOKUP_OUTPUT : 0);
}

/* The query of loader/own_addresses.hpp. */
static __always_inline long query_own_address(struct packet *p, struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = OWN_ADDRESS_INTERFACE;
	fib->l4_protocol = OWN_ADDRESS_PROTOCOL;
	fib->sport = bpf_htons(OWN_ADDRESS_PORT);
	set_ends(p, fib);
	return route_lookup(p->skb, fib, sizeof(*fib), 0);
}

/* An address that only a default route leads to. */
static __always_inline void set_nobody(struct packet *p)
{
	p->ip->destination.word[3] = NOBODY;
	if (p->in->protocol == ETH_P_IPV6)
		p->ip->destination.word[0] = bpf_htonl(0x40000000);
}

/*
 * Of a destination that the kernel does not forward to, whether it is the node's own address or one without a route. A
 * default route distinguishes them, or else the rule. An address that nobody has shows whether there is either:
 * 240.0.0.1 (RFC 1112), 4000:: (RFC 3513). A route may discard that one, too: then only the rule excludes an address.
 */
static __always_inline bool is_own_address(struct packet *p, struct bpf_fib_lookup *fib)
{
	const struct ip_addr destination = p->ip->destination;
	long by_routes, by_rule = BPF_FIB_LKUP_RET_NOT_FWDED;

	set_nobody(p);
	by_routes = query_routes(p, fib, 0, 0);
	if (by_routes != BPF_FIB_LKUP_RET_SUCCESS && by_routes != BPF_FIB_LKUP_RET_NO_NEIGH)
		by_rule = query_own_address(p, fib);
	p->ip->destination = destination;
	if (by_routes == BPF_FIB_LKUP_RET_SUCCESS || by_routes == BPF_FIB_LKUP_RET_NO_NEIGH)
		return true;
	if (by_rule == BPF_FIB_LKUP_RET_NOT_FWDED || by_rule == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return by_routes != BPF_FIB_LKUP_RET_NOT_FWDED;
	return query_own_address(p, fib) == BPF_FIB_LKUP_RET_NOT_FWDED;
}

static __always_inline void swap_ends(struct ip_ends *ip)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__be32 word = ip->source.word[i];

		ip->source.word[i] = ip->destination.word[i];
		ip->destination.word[i] = word;
	}
}

/*
 * A strict reverse path filter, which only IPv4 has, drops what comes in by an interface that none of the source's
 * routes leaves by. Of several equal-cost routes the answer names one.
 */
static __always_inline bool is_routed_by(struct packet *p, struct bpf_fib_lookup *fib, __u32 uplink)
{
	long answer;

	if (p->in->protocol != ETH_P_IP || fib->ifindex == uplink)
		return true;
	answer = query_routes(p, fib, uplink, 0);
	return (answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH) && fib->ifindex == uplink;
}

/*
 * In a global function, which the verifier checks once, and which takes no pointers on kernel 5.10: the packet as it
 * leaves.
 */
static __always_inline bool resume(struct packet *p, __u32 follow)
{
	if (!find_parsed(p))
		return false;
	p->follow = follow;
	p->new_destination_port = p->work->flow.destination_port;
	return true;
}

/*
 * Whether what the node would forward to the source of a packet leaves by the uplink that the packet came in by. A
 * global function: see resume().
 */
__attribute__((noinline)) int is_reached_by_uplink(struct __sk_buff *skb, __u32 follow)
{
	struct packet p = {.skb = skb};
	struct bpf_fib_lookup fib;
	long answer;

	if (!resume(&p, follow))
		return 0;
	swap_ends(p.ip);
	answer = query_routes(&p, &fib, 0, 0);
	swap_ends(p.ip);
	return (answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH) &&
	       fib.ifindex == skb->ifindex;
}

/* As query_routes(); an interface that does not forward knows no routes, the receiver's does. */
static __always_inline long query_way_back(struct packet *p, struct bpf_fib_lookup *fib, __u32 receiver)
{
	long answer = query_routes(p, fib, 0, 0);

	return answer == BPF_FIB_LKUP_RET_FWD_DISABLED ? query_routes_by(p, fib, receiver, 0, 0) : answer;
}

/* See leads_to_receiver(). A global function: see resume(). */
__attribute__((noinline)) int leads_to(struct __sk_buff *skb, __u32 receiver, __u32 flags, __u32 follow)
{
	struct packet p = {.skb = skb};
	struct bpf_fib_lookup fib;
	long answer;

	if (!resume(&p, follow))
		return 0;
	answer = flags & INTERFACE_EGRESS_ROUTE ? query_way_back(&p, &fib, receiver) : query_routes(&p, &fib, 0, 0);
	return (answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH) &&
	       (fib.ifindex == receiver || !(flags & INTERFACE_ROUTED));
}

/*
 * Whether the host stack would send the packet to its receiver now: routes, rules, the state of the interface and
 * forwarding may have changed since it let the connection through. A bridge that another plugin has made is on the way
 * to its pods.
 */
static __always_inline bool leads_to_receiver(struct packet *p)
{
	return leads_to(p->skb, p->receiver->ifindex, p->receiver->flags, p->follow);
}

/* Routes of IPv4 may have a next hop of IPv6. */
static __always_inline bool is_next_hop(struct bpf_fib_lookup *fib, const struct ip_addr *addr)
{
	return fib->family == AF_INET ? fib->ipv4_dst == addr->word[3]
				      : same_addr((struct ip_addr *)fib->ipv6_dst, addr);
}

/* Where the way to a destination leads, as far as it shows by itself. */
enum inside {
	INSIDE_ALWAYS = 1 << 0,
	INSIDE_BY_OTHER_ROUTE = 1 << 1, /* unless it is the default route */
	INSIDE_BY_OTHER_LINK = 1 << 2,  /* unless it is the default route's interface */
};

/*
 * Whether the way to the destination, which `fib` holds, leads to what is behind the node, and not to what its uplinks
 * lead to: to its pods, whichever plugin made them, and to those of other nodes if the network's cluster CIDRs hold
 * them. Uplinks are the one the packet is on, those that serve a network, and the default route's. The subnet on the
 * receiver's own uplink may be on others, too.
 */
static __always_inline int leads_inside(struct packet *p, struct bpf_fib_lookup *fib, __u32 receiver)
{
	const __u32 ifindex = fib->ifindex;
	const struct source_route *route;

	if (map_find(&interfaces_v1, &ifindex))
		return INSIDE_ALWAYS;
	if (ifindex == p->skb->ifindex)
		return 0;
	if (find_owner_on_node(&p->ip->destination))
		return INSIDE_ALWAYS;
	route = find_source_route(receiver, &p->ip->source);
	if (route && route->prefix_bits && same_subnet(&p->ip->source, &p->ip->destination, route->prefix_bits))
		return 0;
	if (in_cluster(p, &p->ip->destination))
		return INSIDE_BY_OTHER_ROUTE;
	return is_next_hop(fib, &p->ip->destination) && !map_find(&uplinks_v2, &ifindex) ? INSIDE_BY_OTHER_LINK : 0;
}

/* Compares with the default route, which `fib` holds afterwards. */
static __always_inline bool is_inside(struct packet *p, struct bpf_fib_lookup *fib, __u32 receiver, int leads)
{
	const struct ip_addr destination = p->ip->destination;
	const bool is_on_link = is_next_hop(fib, &destination);
	const __u32 ifindex = fib->ifindex;
	struct ip_addr hop = {};
	bool same_hop;
	long answer;

	if (fib->family == AF_INET)
		hop.word[3] = fib->ipv4_dst;
	else
		__builtin_memcpy(&hop, fib->ipv6_dst, sizeof(hop));
	set_nobody(p);
	answer = query_way_back(p, fib, receiver);
	same_hop = is_next_hop(fib, is_on_link ? &p->ip->destination : &hop);
	p->ip->destination = destination;
	if ((answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH) || fib->ifindex != ifindex)
		return true;
	return leads & INSIDE_BY_OTHER_ROUTE && !same_hop;
}

/* Of a packet whose source the routes lead back to; `fib` holds the way. */
static __always_inline bool is_refused_way(struct packet *p, struct bpf_fib_lookup *fib, __u32 receiver,
					   bool need_route)
{
	const __u32 ifindex = fib->ifindex;
	int leads;

	if (need_route)
		return map_find(&interfaces_v1, &ifindex) || !is_routed_by(p, fib, p->skb->ifindex);
	leads = leads_inside(p, fib, receiver);
	return leads & INSIDE_ALWAYS || (leads && is_inside(p, fib, receiver, leads));
}

/* Where the kernel's answer is that a tunnel is behind the route, and no more. */
static __always_inline bool has_default_route_into_tunnel(struct packet *p, struct bpf_fib_lookup *fib, __u32 receiver)
{
	const struct ip_addr destination = p->ip->destination;
	long answer;

	set_nobody(p);
	answer = query_way_back(p, fib, receiver);
	p->ip->destination = destination;
	return answer == BPF_FIB_LKUP_RET_UNSUPP_LWT;
}

/* See is_refused_source(). A global function: see resume(). */
__attribute__((noinline)) int refuses_source(struct __sk_buff *skb, __u32 receiver, __u32 network, __u32 need_route)
{
	struct packet p = {.skb = skb, .network = network};
	struct bpf_fib_lookup fib;
	bool refused;

	if (!resume(&p, 0))
		return 1;
	swap_ends(p.ip);
	switch (query_way_back(&p, &fib, receiver)) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		refused = true;
		break;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		refused = need_route || is_own_address(&p, &fib);
		break;
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		refused = is_refused_way(&p, &fib, receiver, need_route);
		break;
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		refused = need_route || !has_default_route_into_tunnel(&p, &fib, receiver);
		break;
	default:
		refused = need_route;
	}
	swap_ends(p.ip);
	return refused;
}

/*
 * Whether the host stack would refuse the source of what came in by an uplink: the node's own address, one of what is
 * behind the node, or one whose route discards packets. A source without a route, or with none by this uplink, is
 * refused if packets `need_route`.
 */
static __always_inline bool is_refused_source(struct packet *p, bool need_route)
{
	return refuses_source(p->skb, p->receiver->ifindex, p->network, need_route);
}
