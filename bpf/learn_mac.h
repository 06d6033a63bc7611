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

	if (p->in->protocol != ETH_P_ARP) {
		*own = p->ip->source;
		return is_neighbour_discovery(p) && !p->in->is_fragment &&
		       (p->in->icmp_type == ND_NEIGHBOUR_SOLICITATION ||
			p->in->icmp_type == ND_NEIGHBOUR_ADVERTISEMENT);
	}
	if (bpf_skb_load_bytes(p->skb, sizeof(struct ethhdr), &arp, sizeof(arp)))
		return false;
	*own = mapped_ipv4(arp.sender);
	return arp.hardware == bpf_htons(1) && arp.protocol == bpf_htons(ETH_P_IP) && same_mac(arp.sender_mac, mac);
}

/* A global function: the verifier checks it once. The packet is in the scratch area. */
__attribute__((noinline)) int learn_announced_mac(struct __sk_buff *skb)
{
	__u8 mac[6] __attribute__((aligned(2)));
	struct packet p = {.skb = skb};
	struct address *owner;
	struct ip_addr own;

	if (tracing || !take_up(&p))
		return 0;
	if (load(skb, 6, mac, sizeof(mac)) || mac[0] & 1 || !announces(&p, &own, mac) || !owns(&p, &own))
		return 0;
	if (!same_mac(mac, p.interface->pod_mac)) {
		write_mac(p.interface->pod_mac, mac);
		p.interface->flags |= INTERFACE_MAC_LEARNED;
	}
	/* It may have been another of its addresses that taught the interface this MAC. */
	owner = find_address(&p, &own);
	if (owner && owner->ifindex == skb->ifindex)
		write_mac(owner->pod_mac, mac);
	return 0;
}

static __always_inline int learn_mac(struct packet *p)
{
	if (!p->is_handed_over && p->interface->flags & INTERFACE_ROUTED &&
	    (p->in->protocol == ETH_P_ARP || is_neighbour_discovery(p)))
		learn_announced_mac(p->skb);
	return 0;
}
