/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Turns an ARP request or a neighbour solicitation into its reply and sends it back. */
#pragma once

#include "bpf/headers.h"

/* Flags of an advertisement. */
#define ND_ROUTER 0x80000000u
#define ND_SOLICITED 0x40000000u
#define ND_OVERRIDE 0x20000000u

/* RFC 4861, 4.4, with the one option it carries, and its IPv6 header; the Ethernet header is not aligned to it. */
struct nd_advertisement {
	struct ipv6hdr ip;
	struct nd_message nd;
	__u8 option_type;
	__u8 option_length;
	__u8 option_mac[6];
};

static __always_inline int send_back(struct packet *p, enum reason reason)
{
	p->verdict = bpf_redirect(p->skb->ifindex, 0);
	return reason;
}

struct arp_frame {
	struct ethhdr ethernet;
	struct arp_packet arp;
} __attribute__((packed));

/* `mac` owns the requested address. */
static __always_inline int reply_arp(struct packet *p, struct arp_frame *request, const __u8 *mac, enum reason reason)
{
	struct arp_frame frame = *request;

	__builtin_memcpy(frame.ethernet.h_dest, request->arp.sender_mac, 6);
	__builtin_memcpy(frame.ethernet.h_source, mac, 6);
	__builtin_memcpy(frame.arp.target_mac, request->arp.sender_mac, 6);
	__builtin_memcpy(frame.arp.sender_mac, mac, 6);
	frame.arp.operation = bpf_htons(2);
	frame.arp.sender = request->arp.target;
	frame.arp.target = request->arp.sender;
	if (bpf_skb_store_bytes(p->skb, 0, &frame, sizeof(frame), 0))
		return REASON_HOST_ARP;
	return send_back(p, reason);
}

static __always_inline __be16 icmpv6_checksum(struct nd_advertisement *frame, __u32 bytes)
{
	__s64 sum = bpf_csum_diff(0, 0, (__be32 *)&frame->ip.saddr, 32, bpf_htonl(bytes + IPPROTO_ICMPV6));

	sum = bpf_csum_diff(0, 0, (__be32 *)&frame->nd, bytes, sum);
	sum = (sum >> 16) + (sum & 0xffff);
	sum += sum >> 16;
	return ~sum;
}

/* Advertises `mac` as the owner of the target; to all nodes if the requester has no address yet (RFC 4861, 7.2.4). */
static __always_inline int advertise(struct packet *p, const struct ip_addr *target, const __u8 *mac, __u32 flags,
				     enum reason reason)
{
	const struct ip_addr all_nodes = {{bpf_htonl(0xff020000), 0, 0, bpf_htonl(1)}};
	const __u32 bytes = sizeof(struct nd_message) + 8;
	bool has_source = !is_unspecified(&p->ip->source);
	struct ethhdr ethernet = {.h_proto = bpf_htons(ETH_P_IPV6), .h_dest = {0x33, 0x33, 0, 0, 0, 1}};
	struct nd_advertisement frame = {};

	if (has_source && bpf_skb_load_bytes(p->skb, 6, ethernet.h_dest, 6))
		return REASON_DROP_MALFORMED;
	__builtin_memcpy(ethernet.h_source, mac, 6);
	frame.ip.version = 6;
	frame.ip.payload_len = bpf_htons(bytes);
	frame.ip.nexthdr = IPPROTO_ICMPV6;
	frame.ip.hop_limit = 255;
	__builtin_memcpy(&frame.ip.saddr, target, sizeof(*target));
	__builtin_memcpy(&frame.ip.daddr, &all_nodes, sizeof(all_nodes));
	if (has_source)
		__builtin_memcpy(&frame.ip.daddr, &p->ip->source, sizeof(p->ip->source));
	frame.nd.type = ND_NEIGHBOUR_ADVERTISEMENT;
	frame.nd.flags = bpf_htonl(flags | (has_source ? ND_SOLICITED : 0));
	frame.nd.target = *target;
	frame.option_type = 2;
	frame.option_length = 1;
	__builtin_memcpy(frame.option_mac, mac, 6);
	frame.nd.checksum = icmpv6_checksum(&frame, bytes);
	if (bpf_skb_change_tail(p->skb, sizeof(ethernet) + sizeof(frame), 0) ||
	    bpf_skb_store_bytes(p->skb, 0, &ethernet, sizeof(ethernet), 0) ||
	    bpf_skb_store_bytes(p->skb, sizeof(ethernet), &frame, sizeof(frame), 0))
		return REASON_HOST_ND;
	return send_back(p, reason);
}
