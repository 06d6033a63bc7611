/* ARP and ND responder for the pod's gateway. */
#pragma once

#include "bpf/reply.h"

static __always_inline int respond_to_arp(struct packet *p)
{
	__u8 mac[6] = PODLANE_HOST_MAC;
	struct arp_frame frame;

	if (bpf_skb_load_bytes(p->skb, 0, &frame, sizeof(frame)))
		return REASON_DROP_MALFORMED;
	if (frame.arp.operation != bpf_htons(1) || frame.arp.target != bpf_htonl(PODLANE_GATEWAY_IPV4))
		return REASON_HOST_ARP;
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
	if (!same_addr(&asked.target, &gateway) || is_unspecified(&p->ip.source))
		return REASON_HOST_ND;
	return advertise(p, &gateway, mac, ND_ROUTER | ND_OVERRIDE, REASON_GATEWAY_ND);
}

/* Host-side veths of foreign plugins keep their own gateway: the host stack responds. */
static __always_inline int respond(struct packet *p)
{
	bool own = p->interface->flags & INTERFACE_GATEWAY;

	if (p->protocol == ETH_P_ARP)
		return own ? respond_to_arp(p) : REASON_HOST_ARP;
	if (!is_icmpv6(p) || p->icmp_type < ND_ROUTER_SOLICITATION || p->icmp_type > ND_REDIRECT)
		return 0;
	return own && p->icmp_type == ND_NEIGHBOUR_SOLICITATION ? respond_to_nd(p) : REASON_HOST_ND;
}
