/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Changes to a packet's headers, checksums included. */
#pragma once

#include "bpf/packet.h"

/* Of linux/pkt_sched.h. */
#define TC_PRIO_BULK 2
#define TC_PRIO_INTERACTIVE_BULK 4
#define TC_PRIO_INTERACTIVE 6

/* Incremental checksum update, RFC 1141. */
static __always_inline void decrement_ttl(struct iphdr *ip)
{
	__u32 check = (__u32)ip->check + bpf_htons(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}

/* The start of the frame if its first `bytes` are linear and writable. */
static __always_inline struct ethhdr *writable(struct packet *p, __u32 bytes)
{
	void *start = (void *)(long)p->skb->data;

	return start + bytes <= (void *)(long)p->skb->data_end ? start : 0;
}

/* The changes of a router. Every failure happens before the first change. */
static __always_inline struct ethhdr *decrement_hop_limit(struct packet *p)
{
	const __u32 bytes = sizeof(struct ethhdr) + sizeof(struct iphdr);
	__u8 hop_limit = p->in->hop_limit - 1;
	struct ethhdr *ethernet;

	if (!writable(p, bytes) && bpf_skb_pull_data(p->skb, bytes))
		return 0;
	/* A checksum of the whole packet that a device computed covers the hop limit. */
	if (p->in->protocol == ETH_P_IPV6 &&
	    bpf_skb_store_bytes(p->skb, sizeof(struct ethhdr) + __builtin_offsetof(struct ipv6hdr, hop_limit),
				&hop_limit, sizeof(hop_limit), BPF_F_RECOMPUTE_CSUM))
		return 0;
	ethernet = writable(p, bytes);
	if (ethernet && p->in->protocol == ETH_P_IP)
		decrement_ttl((struct iphdr *)(ethernet + 1));
	return ethernet;
}

/* As the kernel's forwarding does with IPv4: qdiscs of the uplink choose by it. RFC 1349: throughput, delay, both. */
static __always_inline void set_priority(struct packet *p)
{
	const __u32 priorities = TC_PRIO_BULK << 4 | TC_PRIO_INTERACTIVE << 8 | TC_PRIO_INTERACTIVE_BULK << 12;

	if (p->in->protocol == ETH_P_IP)
		p->skb->priority = priorities >> (p->in->traffic_class >> 3 & 3) * 4 & 15;
}

/* Leaves by an uplink, to a next hop whose MAC the kernel knows. */
static __always_inline int redirect_by_uplink(struct packet *p, __u32 ifindex, struct bpf_redir_neigh *next_hop,
					      enum reason sent)
{
	if (!decrement_hop_limit(p))
		return REASON_HOST_UNKNOWN_PATH;
	set_priority(p);
	p->skb->mark |= fast_mark;
	p->verdict = bpf_redirect_neigh(ifindex, next_hop, sizeof(*next_hop), 0);
	return sent;
}

/* The transport checksum covers the source as well. */
static __always_inline bool write_source(struct packet *p, const struct ip_addr *source)
{
	const __u32 udp_checksum = p->in->l4_offset + __builtin_offsetof(struct udphdr, check);
	const __u64 flags = BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0;
	struct ip_addr old = p->ip->source;
	__s64 differ;

	if (p->in->protocol == ETH_P_IP) {
		const __u32 at = sizeof(struct ethhdr) + __builtin_offsetof(struct iphdr, saddr);
		const __u32 checksum = sizeof(struct ethhdr) + __builtin_offsetof(struct iphdr, check);

		return !bpf_l4_csum_replace(p->skb, udp_checksum, old.word[3], source->word[3], flags | 4) &&
		       !bpf_l3_csum_replace(p->skb, checksum, old.word[3], source->word[3], 4) &&
		       !bpf_skb_store_bytes(p->skb, at, &source->word[3], 4, 0);
	}
	differ = bpf_csum_diff(old.word, sizeof(old), (__be32 *)source->word, sizeof(*source), 0);
	return !bpf_l4_csum_replace(p->skb, udp_checksum, 0, differ, flags) &&
	       !bpf_skb_store_bytes(p->skb, sizeof(struct ethhdr) + __builtin_offsetof(struct ipv6hdr, saddr), source,
				    sizeof(*source), 0);
}
