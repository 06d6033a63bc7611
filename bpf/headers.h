/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Messages of ARP and neighbour discovery as they are on the wire. */
#pragma once

#include "bpf/packet.h"

enum nd_type {
	ND_ROUTER_SOLICITATION = 133,
	ND_ROUTER_ADVERTISEMENT = 134,
	ND_NEIGHBOUR_SOLICITATION = 135,
	ND_NEIGHBOUR_ADVERTISEMENT = 136,
	ND_REDIRECT = 137,
};

/* RFC 826, for IPv4 over Ethernet. */
struct arp_packet {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_size;
	__u8 protocol_size;
	__be16 operation;
	__u8 sender_mac[6];
	__be32 sender;
	__u8 target_mac[6];
	__be32 target;
} __attribute__((packed, aligned(2)));

/* RFC 4861, 4.3 and 4.4, without options. */
struct nd_message {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 flags;
	struct ip_addr target;
};

/*
 * Addresses that no router forwards (RFC 6890, RFC 3927): this network, loopback, link-local, multicast. Of IPv4, the
 * kernel forwards link-local ones all the same: some clouds have services there.
 */
static __always_inline bool stays_on_link(const struct ip_addr *addr)
{
	__u32 first = bpf_ntohl(addr->word[0]);

	if (first == 0 && addr->word[1] == 0 && addr->word[2] == bpf_htonl(0x0000ffff)) {
		__u32 v4 = bpf_ntohl(addr->word[3]);

		return v4 >> 24 == 0 || v4 >> 24 == 127 || v4 >> 16 == 0xa9fe || v4 >> 24 >= 224;
	}
	/* :: and ::1 are the only ones below ::2 that get here. */
	return (first & 0xffc00000) == 0xfe800000 || first >= 0xff000000 ||
	       !(first | addr->word[1] | addr->word[2] | (addr->word[3] & bpf_htonl(~1U)));
}

static __always_inline bool is_icmpv6(struct packet *p)
{
	return p->in->is_icmpv6;
}

/* Of the IP packet, in bytes from the start of the frame, as its header says; 0 if it cannot be read. */
static __always_inline __u32 ip_end(struct __sk_buff *skb)
{
	const bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	const __u32 at =
		is_ipv4 ? __builtin_offsetof(struct iphdr, tot_len) : __builtin_offsetof(struct ipv6hdr, payload_len);
	__be16 length;

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + at, &length, sizeof(length)))
		return 0;
	return sizeof(struct ethhdr) + (is_ipv4 ? 0 : sizeof(struct ipv6hdr)) + bpf_ntohs(length);
}

/* The beginning of an IPv6 extension header. */
struct extension {
	__u8 next;
	__u8 length;
	__be16 fragment; /* of a fragment header: offset, flags */
	__be32 id;       /* and which packet it is of */
};

static __always_inline __u32 extension_bytes(__u8 protocol, const struct extension *header)
{
	if (protocol == NEXTHDR_FRAGMENT)
		return 8;
	return protocol == NEXTHDR_AUTH ? (header->length + 2) * 4 : (header->length + 1) * 8;
}

static __always_inline bool is_later_fragment(__u8 protocol, const struct extension *header)
{
	return protocol == NEXTHDR_FRAGMENT && header->fragment & bpf_htons(0xfff8);
}

/* Of fragments, the first has to hold the header (RFC 1858, RFC 7112): nothing else here sees it. */
static __always_inline bool is_tcp_cut(const struct packet *p)
{
	return p->in->is_first_fragment && !p->in->has_flow && p->ip->protocol == IPPROTO_TCP;
}

static __always_inline bool is_ip(struct packet *p)
{
	return p->in->protocol == ETH_P_IP || p->in->protocol == ETH_P_IPV6;
}

/* Receivers ignore neighbour discovery that a router has forwarded (RFC 4861, 7.1.1): it is ordinary traffic. */
static __always_inline bool is_neighbour_discovery(struct packet *p)
{
	return is_icmpv6(p) && p->in->hop_limit == 255 && p->in->icmp_type >= ND_ROUTER_SOLICITATION &&
	       p->in->icmp_type <= ND_REDIRECT;
}
