/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Follows the MAC of an endpoint that announces another one for its own address, as the kernel does after a later
 * plugin of the list (tuning) has changed it. On a link without a bridge nobody but the host-side veth knows the MAC:
 * an endpoint that announces a wrong one harms only itself.
 */
#pragma once

#include "bpf/headers.h"
#include "bpf/tables.h"

static __always_inline void write_mac(__u8 *to, const __u8 *from)
{
	__u16 *words = (__u16 *)to;

	for (int i = 0; i < 3; i++)
		words[i] = ((const __u16 *)from)[i];
}

static __always_inline bool announces(struct packet *p, struct ip_addr *own, const __u8 *mac)
{
	struct arp_packet arp;

	if (p->protocol != ETH_P_ARP) {
		*own = p->ip.source;
		return is_neighbour_discovery(p) &&
		       (p->icmp_type == ND_NEIGHBOUR_SOLICITATION || p->icmp_type == ND_NEIGHBOUR_ADVERTISEMENT);
	}
	if (bpf_skb_load_bytes(p->skb, sizeof(struct ethhdr), &arp, sizeof(arp)))
		return false;
	*own = mapped_ipv4(arp.sender);
	return arp.hardware == bpf_htons(1) && arp.protocol == bpf_htons(ETH_P_IP) && same_mac(arp.sender_mac, mac);
}

static __always_inline int learn_mac(struct packet *p)
{
	__u8 mac[6] __attribute__((aligned(2)));
	struct address *owner;
	struct ip_addr own;

	if (!(p->interface->flags & INTERFACE_ROUTED) || tracing)
		return 0;
	if (p->protocol != ETH_P_ARP && !is_neighbour_discovery(p))
		return 0;
	if (load(p->skb, 6, mac, sizeof(mac)) || same_mac(mac, p->interface->pod_mac) || mac[0] & 1)
		return 0;
	if (!announces(p, &own, mac) || !owns(p, &own))
		return 0;
	write_mac(p->interface->pod_mac, mac);
	p->interface->flags |= INTERFACE_MAC_LEARNED;
	owner = find_address(p, &own);
	if (owner && owner->ifindex == p->skb->ifindex)
		write_mac(owner->pod_mac, mac);
	return 0;
}

/* The host stack's neighbour has the MAC of the ADD until the next CNI call. */
static __always_inline int write_learned_mac(struct packet *p)
{
	const __u32 own_link = INTERFACE_MAC_LEARNED | INTERFACE_GATEWAY;
	__u8 to[6] __attribute__((aligned(2)));

	if ((p->interface->flags & own_link) != own_link || load(p->skb, 0, to, sizeof(to)) || to[0] & 1 ||
	    same_mac(to, p->interface->pod_mac))
		return 0;
	bpf_skb_store_bytes(p->skb, 0, p->interface->pod_mac, sizeof(to), 0);
	return 0;
}
