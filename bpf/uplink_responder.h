/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* ARP and ND responder on an uplink, for pods whose network has its egress route there. */
#pragma once

#include "bpf/reply.h"
#include "bpf/tables.h"

/* The egress route of a pod whose address neighbours on this uplink may resolve. */
static __always_inline struct source_route *find_requested(struct packet *p, const struct ip_addr *target)
{
	struct address *owner = find_endpoint(p, target);
	struct source_route *route;

	if (!owner || !(owner->flags & INTERFACE_EGRESS_ROUTE))
		return 0;
	route = find_source_route(owner->ifindex, target);
	return route && route->uplink == p->skb->ifindex ? route : 0;
}

static __always_inline int respond_to_neighbour_arp(struct packet *p)
{
	struct source_route *route;
	struct arp_frame frame;
	struct ip_addr target;

	if (bpf_skb_load_bytes(p->skb, 0, &frame, sizeof(frame)) || frame.arp.operation != bpf_htons(1) ||
	    frame.arp.protocol != bpf_htons(ETH_P_IP))
		return 0;
	target = mapped_ipv4(frame.arp.target);
	route = find_requested(p, &target);
	return route ? reply_arp(p, &frame, route->uplink_mac, REASON_UPLINK_ARP) : 0;
}

static __always_inline int respond_to_neighbour_nd(struct packet *p)
{
	struct source_route *route;
	struct nd_message request;

	/* RFC 4861, 7.1.1: a solicitation that passed a router is invalid. No host sends one behind other headers. */
	if (p->in->hop_limit != 255 || p->in->l4_offset != sizeof(struct ethhdr) + sizeof(struct ipv6hdr) ||
	    bpf_skb_load_bytes(p->skb, p->in->l4_offset, &request, sizeof(request)) || is_mapped_ipv4(&request.target))
		return 0;
	route = find_requested(p, &request.target);
	return route ? advertise(p, &request.target, route->uplink_mac, ND_OVERRIDE, REASON_UPLINK_ND) : 0;
}

static __always_inline int respond_on_uplink(struct packet *p)
{
	if (p->skb->pkt_type == PACKET_OTHERHOST)
		return 0;
	if (p->in->protocol == ETH_P_ARP)
		return respond_to_neighbour_arp(p);
	return is_icmpv6(p) && p->in->icmp_type == ND_NEIGHBOUR_SOLICITATION ? respond_to_neighbour_nd(p) : 0;
}
