/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* ARP and ND responder for the pod's gateway. */
#pragma once

#include "bpf/reply.h"
#include "bpf/tables.h"

/*
 * A pod whose MAC changed has lost its permanent neighbours, the next hops of the lease and of other plugins among
 * them: all of them are the host-side veth. Claims and announcements of its own address get no answer.
 */
static __always_inline bool is_any_next_hop(struct packet *p, const struct ip_addr *source,
					    const struct ip_addr *target)
{
	return p->interface->flags & INTERFACE_MAC_LEARNED && !is_unspecified(source) && !owns(p, target);
}

static __always_inline bool is_gateway_ipv6(const struct ip_addr *addr)
{
	return addr->word[0] == bpf_htonl(PODLANE_GATEWAY_IPV6_0) && !addr->word[1] &&
	       addr->word[2] == bpf_htonl(PODLANE_GATEWAY_IPV6_2) && addr->word[3] == bpf_htonl(PODLANE_GATEWAY_IPV6_3);
}

static __always_inline bool is_gateway(struct packet *p, __be32 sender, __be32 requested)
{
	struct ip_addr source = mapped_ipv4(sender), target = mapped_ipv4(requested);

	return requested == bpf_htonl(PODLANE_GATEWAY_IPV4) || (sender && is_any_next_hop(p, &source, &target));
}

/* A global function, as respond_to_nd(): the verifier checks it once. */
__attribute__((noinline)) int respond_to_arp(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb};
	__u8 mac[6] = PODLANE_HOST_MAC;
	struct arp_frame frame;

	if (!take_up(&p) || bpf_skb_load_bytes(skb, 0, &frame, sizeof(frame)))
		return REASON_DROP_MALFORMED;
	if (frame.arp.operation != bpf_htons(1) || !is_gateway(&p, frame.arp.sender, frame.arp.target))
		return REASON_HOST_ARP;
	return reply_arp(&p, &frame, mac, REASON_GATEWAY_ARP);
}

__attribute__((noinline)) int respond_to_nd(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb};
	__u8 mac[6] = PODLANE_HOST_MAC;
	struct ip_addr target;

	if (!take_up(&p) || bpf_skb_load_bytes(skb, p.in->l4_offset + __builtin_offsetof(struct nd_message, target),
					       &target, sizeof(target)))
		return REASON_DROP_MALFORMED;
	if (is_unspecified(&p.ip->source) ||
	    (!is_gateway_ipv6(&target) && !is_any_next_hop(&p, &p.ip->source, &target)))
		return REASON_HOST_ND;
	return advertise(&p, &target, mac, ND_ROUTER | ND_OVERRIDE, REASON_GATEWAY_ND);
}

/*
 * Host-side veths of foreign plugins keep their own gateway: the host stack responds. A query that is not answered here
 * continues to the limit of the endpoint, and to the host stack behind it.
 */
static __always_inline int respond(struct packet *p)
{
	bool own = p->interface->flags & INTERFACE_GATEWAY;
	int reason;

	if (p->in->protocol == ETH_P_ARP)
		reason = own ? respond_to_arp(p->skb) : REASON_HOST_ARP;
	else if (is_neighbour_discovery(p))
		reason = own && p->in->icmp_type == ND_NEIGHBOUR_SOLICITATION ? respond_to_nd(p->skb) : REASON_HOST_ND;
	else
		return 0;
	if (reason == REASON_HOST_ARP || reason == REASON_HOST_ND) {
		p->in->detour = reason;
		return 0;
	}
	if (reason == REASON_GATEWAY_ARP || reason == REASON_GATEWAY_ND)
		p->verdict = TC_ACT_REDIRECT;
	return reason;
}
