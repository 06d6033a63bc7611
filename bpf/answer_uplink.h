/* Answers on an uplink for the pods whose networks leave the node there by a way of their own. */
#pragma once

#include "bpf/answer.h"
#include "bpf/uplink.h"

/* The way of a pod that neighbours on this uplink's link may ask for. */
static __always_inline struct source_route *find_asked(struct packet *p, const struct ip_addr *target)
{
	struct address *owner = find_endpoint(p, target);
	struct source_route *way;

	if (!owner || !(owner->flags & INTERFACE_WAY))
		return 0;
	way = find_source_route(owner->ifindex, target);
	return way && way->uplink == p->skb->ifindex ? way : 0;
}

static __always_inline int answer_neighbour_arp(struct packet *p)
{
	struct source_route *way;
	struct arp_frame frame;
	struct ip_addr target;

	if (bpf_skb_load_bytes(p->skb, 0, &frame, sizeof(frame)) || frame.arp.operation != bpf_htons(1) ||
	    frame.arp.protocol != bpf_htons(ETH_P_IP))
		return 0;
	target = mapped_ipv4(frame.arp.target);
	way = find_asked(p, &target);
	return way ? reply_arp(p, &frame, way->uplink_mac, REASON_UPLINK_ARP) : 0;
}

static __always_inline int answer_neighbour_nd(struct packet *p)
{
	struct source_route *way;
	struct nd_message asked;

	/* RFC 4861, 7.1.1: what has passed a router is no question of a neighbour's. */
	if (p->hop_limit != 255 || bpf_skb_load_bytes(p->skb, p->l4_offset, &asked, sizeof(asked)))
		return 0;
	way = find_asked(p, &asked.target);
	return way ? advertise(p, &asked.target, way->uplink_mac, ND_OVERRIDE, REASON_UPLINK_ND) : 0;
}

static __always_inline int answer_neighbour(struct packet *p)
{
	if (p->protocol == ETH_P_ARP)
		return answer_neighbour_arp(p);
	return is_icmpv6(p) && p->icmp_type == ND_NEIGHBOUR_SOLICITATION ? answer_neighbour_nd(p) : 0;
}
