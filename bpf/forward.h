/* Hands a packet to a pod of this node, as the kernel's forwarding would have delivered it. */
#pragma once

#include "bpf/packet.h"

static __always_inline bool decrement_hop_limit(struct packet *p)
{
	const __u32 ip = sizeof(struct ethhdr);
	__u8 ttl = p->hop_limit - 1;

	if (p->protocol == ETH_P_IPV6)
		return !bpf_skb_store_bytes(p->skb, ip + __builtin_offsetof(struct ipv6hdr, hop_limit), &ttl,
					    sizeof(ttl), BPF_F_RECOMPUTE_CSUM);
	return !bpf_l3_csum_replace(p->skb, ip + __builtin_offsetof(struct iphdr, check), bpf_htons(p->hop_limit << 8),
				    bpf_htons(ttl << 8), 2) &&
	       !bpf_skb_store_bytes(p->skb, ip + __builtin_offsetof(struct iphdr, ttl), &ttl, sizeof(ttl), 0);
}

static __always_inline int forward(struct packet *p)
{
	struct {
		__u8 destination[6];
		__u8 source[6];
	} macs;

	__builtin_memcpy(macs.destination, p->receiver->pod_mac, 6);
	__builtin_memcpy(macs.source, p->receiver->host_mac, 6);
	/* The packet changes from here on; both helpers fail only before they have changed it. */
	if (!decrement_hop_limit(p) || bpf_skb_store_bytes(p->skb, 0, &macs, sizeof(macs), 0))
		return REASON_HOST_UNKNOWN_PATH;
	p->verdict = bpf_redirect_peer(p->receiver->ifindex, 0);
	return REASON_SENT_DIRECT;
}
