/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Writes the host's translation of a connection into a packet. */
#pragma once

#include "bpf/packet.h"

/* By how much the sum changes if others take the place of two words (RFC 1624). A helper would cost more. */
static __always_inline __u32 differ_by(const __be32 old[2], const __be32 new[2])
{
	__u64 sum = (__u64)(__u32)~old[0] + new[0] + (__u32)~old[1] + new[1];

	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

static __always_inline __u16 update_checksum(__u16 check, __u32 differ)
{
	__u32 sum = (__u16)~check + (differ & 0xffff) + (differ >> 16);

	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* For an IPv4 packet without options, whose headers are linear and writable. */
static __always_inline bool translate_ipv4(struct __sk_buff *skb, const struct flow_scratch *work, __u32 checksum,
					   __u64 flags)
{
	struct iphdr *ip = (void *)(long)skb->data + sizeof(struct ethhdr);
	__be32 old[2] = {work->key.source.word[3], work->key.destination.word[3]};
	__be32 new[2] = {work->flow.source.word[3], work->flow.destination.word[3]};
	__u32 differ = differ_by(old, new);

	if ((void *)(ip + 1) > (void *)(long)skb->data_end)
		return false;
	ip->saddr = new[0];
	ip->daddr = new[1];
	ip->check = update_checksum(ip->check, differ);
	return !bpf_l4_csum_replace(skb, checksum, 0, differ, flags | BPF_F_PSEUDO_HDR);
}

/*
 * Source and destination are adjacent in the scratch area, as in the header: no copy on the stack.
 * A checksum of the whole packet that a device computed does not change, because the addresses and the transport
 * checksum cancel out. The first helper does not know that; BPF_F_RECOMPUTE_CSUM takes its change back.
 */
static __always_inline bool translate_ipv6(struct __sk_buff *skb, const struct flow_scratch *work, __u32 checksum,
					   __u64 flags)
{
	const __u32 l3 = sizeof(struct ethhdr);
	const __u32 bytes = 2 * sizeof(struct ip_addr);
	__s64 differ = bpf_csum_diff((__be32 *)&work->key.source, bytes, (__be32 *)&work->flow.source, bytes, 0);

	return !bpf_l4_csum_replace(skb, checksum, 0, differ, flags | BPF_F_PSEUDO_HDR) &&
	       !bpf_skb_store_bytes(skb, l3 + __builtin_offsetof(struct ipv6hdr, saddr), &work->flow.source, bytes,
				    BPF_F_RECOMPUTE_CSUM);
}

static __always_inline bool translate_ports(struct __sk_buff *skb, const struct flow_scratch *work, __u32 l4,
					    __u32 checksum, __u64 flags)
{
	__be16 old[2] = {work->key.source_port, work->key.destination_port};
	__be16 new[2] = {work->flow.source_port, work->flow.destination_port};
	__be32 *ports;
	__u32 from, to;

	__builtin_memcpy(&from, old, sizeof(from));
	__builtin_memcpy(&to, new, sizeof(to));
	if (from == to)
		return true;
	if (bpf_l4_csum_replace(skb, checksum, from, to, flags | sizeof(to)))
		return false;
	ports = (void *)(long)skb->data + l4;
	if ((void *)(ports + 1) > (void *)(long)skb->data_end)
		return false;
	*ports = to;
	return true;
}

/* Limits exempt a sender by the address that the receiver sees. */
static __always_inline void set_translated_source(struct packet *p)
{
	p->ip->source = p->work->flow.source;
}

/* 0 if the packet is too short, before anything is changed. A global function: the verifier checks it once. */
__attribute__((noinline)) int translate(struct __sk_buff *skb)
{
	__u32 l4, checksum;
	struct flow_scratch *work = find_scratch();
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	bool is_tcp = work && work->key.protocol == IPPROTO_TCP;
	__u64 flags = is_tcp ? 0 : BPF_F_MARK_MANGLED_0;

	l4 = sizeof(struct ethhdr) + (is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	checksum = l4 + (is_tcp ? __builtin_offsetof(struct tcphdr, check) : __builtin_offsetof(struct udphdr, check));
	if (!work || bpf_skb_pull_data(skb, l4 + (is_tcp ? sizeof(struct tcphdr) : sizeof(struct udphdr))))
		return 0;
	if (is_ipv4 ? !translate_ipv4(skb, work, checksum, flags) : !translate_ipv6(skb, work, checksum, flags))
		return 0;
	return translate_ports(skb, work, l4, checksum, flags);
}
