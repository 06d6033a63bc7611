/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* ARP and ND responder for the pod's gateway. */
#pragma once

#include "bpf/reply.h"

static __always_inline int respond_to_arp(struct packet *p)
{
	__u8 mac[6] = PODLANE_HOST_MAC;
	struct arp_frame frame;

	if (bpf_skb_load_bytes(p->skb, 0, &frame, sizeof(frame)))
		return REASON_DROP_MALFORMED;
	if (frame.arp.operation != bpf_htons(1) || frame.arp.target != bpf_htonl(PODLANE_GATEWAY_IPV4)) {
		p->detour = REASON_HOST_ARP;
		return 0;
	}
	return reply_arp(p, &frame, mac, REASON_GATEWAY_ARP);
}

static __always_inline int respond_to_nd(struct packet *p)
{
	const struct ip_addr gateway = {{bpf_htonl(PODLANE_GATEWAY_IPV6_0), 0, bpf_htonl(PODLANE_GATEWAY_IPV6_2),
					 bpf_htonl(PODLANE_GATEWAY_IPV6_3)}};
	__u8 mac[6] = PODLANE_HOST_MAC;
	struct nd_message asked;

	if (bpf_skb_load_bytes(p->skb, p->l4_offset, &asked, sizeof(asked)))
		return REASON_DROP_MALFORMED;
	if (!same_addr(&asked.target, &gateway) || is_unspecified(&p->ip.source)) {
		p->detour = REASON_HOST_ND;
		return 0;
	}
	return advertise(p, &gateway, mac, ND_ROUTER | ND_OVERRIDE, REASON_GATEWAY_ND);
}

/* Receivers ignore neighbour discovery that a router has forwarded (RFC 4861, 7.1.1): it is ordinary traffic. */
static __always_inline bool is_neighbour_discovery(struct packet *p)
{
	return is_icmpv6(p) && p->hop_limit == 255 && p->icmp_type >= ND_ROUTER_SOLICITATION &&
	       p->icmp_type <= ND_REDIRECT;
}

/*
 * Host-side veths of foreign plugins keep their own gateway: the host stack responds. What is not answered here
 * continues to the limit of the endpoint, and to the host stack behind it.
 */
static __always_inline int respond(struct packet *p)
{
	bool own = p->interface->flags & INTERFACE_GATEWAY;

	if (p->protocol == ETH_P_ARP) {
		if (own)
			return respond_to_arp(p);
		p->detour = REASON_HOST_ARP;
	}
	if (is_neighbour_discovery(p)) {
		if (own && p->icmp_type == ND_NEIGHBOUR_SOLICITATION)
			return respond_to_nd(p);
		p->detour = REASON_HOST_ND;
	}
	return 0;
}
