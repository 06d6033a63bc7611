/* Hands a packet to a pod of this node, as the kernel's forwarding would have delivered it. */
#pragma once

#include "bpf/limit.h"

/* RFC 1141: the checksum follows the TTL without being computed anew. */
static __always_inline void decrement_ttl(struct iphdr *ip)
{
	__u32 check = (__u32)ip->check + bpf_htons(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}

/* The frame's start, where that many bytes of it are linear and may be written. */
static __always_inline struct ethhdr *writable(struct packet *p, __u32 bytes)
{
	void *start = (void *)(long)p->skb->data;

	return start + bytes <= (void *)(long)p->skb->data_end ? start : 0;
}

/* A router's part of the packet; every failure comes before the first change. */
static __always_inline struct ethhdr *decrement_hop_limit(struct packet *p)
{
	const __u32 bytes = sizeof(struct ethhdr) + sizeof(struct iphdr);
	__u8 hop_limit = p->hop_limit - 1;
	struct ethhdr *ethernet;

	if (!writable(p, bytes) && bpf_skb_pull_data(p->skb, bytes))
		return 0;
	/* The checksum of the whole packet, where a device computed it, has the hop limit in it. */
	if (p->protocol == ETH_P_IPV6 &&
	    bpf_skb_store_bytes(p->skb, sizeof(struct ethhdr) + __builtin_offsetof(struct ipv6hdr, hop_limit),
				&hop_limit, sizeof(hop_limit), BPF_F_RECOMPUTE_CSUM))
		return 0;
	ethernet = writable(p, bytes);
	if (ethernet && p->protocol == ETH_P_IP)
		decrement_ttl((struct iphdr *)(ethernet + 1));
	return ethernet;
}

static __always_inline int deliver(struct packet *p, enum reason reason)
{
	int refused = limit_receiver(p);
	struct ethhdr *ethernet;

	if (refused)
		return refused;
	ethernet = decrement_hop_limit(p);
	if (!ethernet)
		return REASON_HOST_UNKNOWN_PATH;
	__builtin_memcpy(ethernet->h_dest, p->receiver->pod_mac, 6);
	__builtin_memcpy(ethernet->h_source, p->receiver->host_mac, 6);
	if (p->is_timed) {
		p->skb->mark |= fast_mark;
		p->verdict = bpf_redirect(p->receiver->ifindex, 0);
	} else {
		p->verdict = bpf_redirect_peer(p->receiver->ifindex, 0);
	}
	return reason;
}
