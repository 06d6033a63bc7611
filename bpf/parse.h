/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Parses a frame's headers: the result is a complete flow, a reason for the slow path, or a packet without a flow. */
#pragma once

#include "bpf/packet.h"

#define IPV6_EXTENSIONS_MAX 4

static __always_inline void set_flow(struct packet *p, const struct ip_ends *ip, struct ports ports,
				     enum direction from)
{
	struct path_key *flow = &p->flow;

	flow->ifindex = p->skb->ifindex;
	flow->protocol = ip->protocol;
	flow->local = from == FROM_POD ? ip->source : ip->destination;
	flow->peer = from == FROM_POD ? ip->destination : ip->source;
	flow->local_port = from == FROM_POD ? ports.source : ports.destination;
	flow->peer_port = from == FROM_POD ? ports.destination : ports.source;
	p->has_flow = true;
}

static __always_inline bool is_extension(__u8 protocol)
{
	return protocol == NEXTHDR_HOP || protocol == NEXTHDR_ROUTING || protocol == NEXTHDR_DEST ||
	       protocol == NEXTHDR_FRAGMENT;
}

/* Skips IPv6 extension headers from *offset on; a fragment other than the first has no transport header. */
static __always_inline bool skip_extensions(struct packet *p, __u32 *offset, __u8 *protocol)
{
	struct {
		__u8 next;
		__u8 length;
		__be16 fragment; /* of a fragment header: offset, flags */
	} header;

#pragma unroll
	for (int i = 0; i < IPV6_EXTENSIONS_MAX; i++) {
		if (!is_extension(*protocol))
			return true;
		if (bpf_skb_load_bytes(p->skb, *offset, &header, sizeof(header)))
			return false;
		if (*protocol == NEXTHDR_FRAGMENT) {
			detour(p, REASON_HOST_FRAGMENT);
			if (header.fragment & bpf_htons(0xfff8))
				return false;
			*offset += 8;
		} else {
			detour(p, REASON_HOST_OPTIONS);
			*offset += (header.length + 1) * 8;
		}
		*protocol = header.next;
	}
	p->has_unread_headers = is_extension(*protocol);
	return !p->has_unread_headers;
}

/* The flow of an ICMP error is that of the packet quoted at `offset`, which went in the other direction. */
static __always_inline void parse_quoted(struct packet *p, __u32 offset, enum direction from)
{
	struct ip_ends quoted;
	struct ports ports = {};
	__u32 l4;

	if (p->protocol == ETH_P_IP) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(p->skb, offset, &ip, sizeof(ip)) || ip.ihl < 5)
			return;
		quoted.source = mapped_ipv4(ip.saddr);
		quoted.destination = mapped_ipv4(ip.daddr);
		quoted.protocol = ip.protocol;
		l4 = offset + ip.ihl * 4;
	} else {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(p->skb, offset, &ip, sizeof(ip)))
			return;
		__builtin_memcpy(&quoted.source, &ip.saddr, sizeof(quoted.source));
		__builtin_memcpy(&quoted.destination, &ip.daddr, sizeof(quoted.destination));
		quoted.protocol = ip.nexthdr;
		l4 = offset + sizeof(ip);
	}
	switch (quoted.protocol) {
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (bpf_skb_load_bytes(p->skb, l4 + 4, &ports.source, sizeof(ports.source)))
			return;
		ports.destination = ports.source;
		break;
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
		if (bpf_skb_load_bytes(p->skb, l4, &ports, sizeof(ports)))
			return;
		break;
	}
	set_flow(p, &quoted, ports, from == FROM_POD ? TO_POD : FROM_POD);
}

/* Behind an IP header without options the offset is constant, and no helper call is needed. */
static __always_inline int load_l4(struct packet *p, void *to, __u32 size)
{
	const __u32 after_ipv4 = sizeof(struct ethhdr) + sizeof(struct iphdr);
	const __u32 after_ipv6 = sizeof(struct ethhdr) + sizeof(struct ipv6hdr);

	if (p->l4_offset == after_ipv4)
		return load(p, after_ipv4, to, size);
	if (p->l4_offset == after_ipv6)
		return load(p, after_ipv6, to, size);
	return bpf_skb_load_bytes(p->skb, p->l4_offset, to, size);
}

static __always_inline void parse_icmp(struct packet *p, enum direction from)
{
	struct {
		__u8 type;
		__u8 code;
		__be16 checksum;
		__be16 identifier;
		__be16 sequence;
	} icmp;
	struct ports ports = {};
	bool v6 = p->ip.protocol == IPPROTO_ICMPV6;

	if (load_l4(p, &icmp, sizeof(icmp)))
		return;
	p->icmp_type = icmp.type;
	/* RFC 4443: errors are below 128. RFC 792: unreachable, source quench, redirect, time exceeded, parameter. */
	p->is_icmp_error =
		v6 ? icmp.type < 128
		   : icmp.type == 3 || icmp.type == 4 || icmp.type == 5 || icmp.type == 11 || icmp.type == 12;
	if (p->is_icmp_error) {
		parse_quoted(p, p->l4_offset + sizeof(icmp), from);
		/* An error goes to the sender of what it quotes: to anybody else the flow says nothing about its path.
		 */
		if (!same_addr(&p->ip.destination, from == FROM_POD ? &p->flow.peer : &p->flow.local))
			p->has_flow = false;
		return;
	}
	if (v6 && (icmp.type == 128 || icmp.type == 129))
		ports.source = icmp.identifier;
	if (!v6 && (icmp.type == 8 || icmp.type == 0))
		ports.source = icmp.identifier;
	ports.destination = ports.source;
	set_flow(p, &p->ip, ports, from);
}

static __always_inline void parse_l4(struct packet *p, __u32 l3_bytes, enum direction from)
{
	struct {
		struct ports ports;
		__be32 sequence;
		__be32 acknowledgement;
		__u8 data_offset;
		__u8 flags;
	} tcp;
	struct ports ports = {};

	switch (p->ip.protocol) {
	case IPPROTO_TCP:
		if (load_l4(p, &tcp, 14))
			return;
		ports = tcp.ports;
		p->tcp_flags = tcp.flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK);
		p->header_bytes = l3_bytes + (tcp.data_offset >> 4) * 4;
		break;
	case IPPROTO_UDP:
		if (load_l4(p, &ports, sizeof(ports)))
			return;
		p->header_bytes = l3_bytes + 8;
		break;
	case IPPROTO_SCTP:
		if (load_l4(p, &ports, sizeof(ports)))
			return;
		p->header_bytes = l3_bytes + 12;
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return parse_icmp(p, from);
	}
	set_flow(p, &p->ip, ports, from);
}

/* RFC 1071 over a header without options. */
static __always_inline bool checksum_holds(const struct iphdr *ip)
{
	__u32 word[5];
	__u64 sum;

	__builtin_memcpy(word, ip, sizeof(word));
	sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum == 0xffff;
}

static __always_inline int parse_ipv4(struct packet *p, enum direction from)
{
	struct iphdr ip;
	__u32 l3_bytes, length;

	if (load(p, sizeof(struct ethhdr), &ip, sizeof(ip)))
		return REASON_DROP_MALFORMED;
	l3_bytes = ip.ihl * 4;
	length = bpf_ntohs(ip.tot_len);
	if (ip.version != 4 || l3_bytes < sizeof(ip))
		return REASON_DROP_MALFORMED;
	/* A length of 0 is a GSO packet over 64 KiB. */
	if (length != p->skb->len - sizeof(struct ethhdr) && !(length == 0 && p->skb->gso_size))
		detour(p, REASON_HOST_LENGTH);
	if (ip.frag_off & bpf_htons(0x3fff))
		detour(p, REASON_HOST_FRAGMENT);
	if (l3_bytes > sizeof(ip))
		detour(p, REASON_HOST_OPTIONS);
	else if (from == FROM_POD && !checksum_holds(&ip))
		detour(p, REASON_HOST_CHECKSUM);
	p->hop_limit = ip.ttl;
	p->traffic_class = ip.tos;
	p->l4_offset = sizeof(struct ethhdr) + l3_bytes;
	p->ip.source = mapped_ipv4(ip.saddr);
	p->ip.destination = mapped_ipv4(ip.daddr);
	p->ip.protocol = ip.protocol;
	if (!(ip.frag_off & bpf_htons(0x1fff)))
		parse_l4(p, l3_bytes, from);
	return 0;
}

static __always_inline int parse_ipv6(struct packet *p, enum direction from)
{
	__u32 offset = sizeof(struct ethhdr) + sizeof(struct ipv6hdr);
	struct ipv6hdr ip;

	if (load(p, sizeof(struct ethhdr), &ip, sizeof(ip)) || ip.version != 6)
		return REASON_DROP_MALFORMED;
	if (bpf_ntohs(ip.payload_len) != p->skb->len - offset && !(ip.payload_len == 0 && p->skb->gso_size))
		detour(p, REASON_HOST_LENGTH);
	p->hop_limit = ip.hop_limit;
	p->traffic_class = *(__be32 *)&ip & bpf_htonl(0x0fffffff);
	__builtin_memcpy(&p->ip.source, &ip.saddr, sizeof(p->ip.source));
	__builtin_memcpy(&p->ip.destination, &ip.daddr, sizeof(p->ip.destination));
	/* No host sends them (RFC 4291, 2.5.5.2); in the tables they would be another family's. */
	if (is_mapped_ipv4(&p->ip.source) || is_mapped_ipv4(&p->ip.destination))
		return REASON_DROP_MALFORMED;
	p->ip.protocol = ip.nexthdr;
	if (!skip_extensions(p, &offset, &p->ip.protocol))
		return 0;
	p->l4_offset = offset;
	parse_l4(p, offset - sizeof(struct ethhdr), from);
	return 0;
}

/*
 * The kernel has moved the outermost tag of a received frame out of it. A priority tag (VLAN 0) changes nobody's
 * network: the receiver strips it, so what a pod sends is read as if it had none. Any other tag hides what is behind
 * it.
 */
static __always_inline bool is_hidden_by_tag(struct packet *p, enum direction from)
{
	if (p->protocol == ETH_P_8021Q || p->protocol == ETH_P_8021AD)
		return true;
	return p->skb->vlan_present && (from != FROM_POD || p->skb->vlan_tci & VLAN_ID_MASK);
}

static __always_inline int read_headers(struct packet *p, enum direction from)
{
	p->protocol = bpf_ntohs(p->skb->protocol);
	p->verdict = VERDICT_NEXT;
	if (p->skb->len < sizeof(struct ethhdr))
		return REASON_DROP_MALFORMED;
	if (is_hidden_by_tag(p, from)) {
		detour(p, REASON_HOST_VLAN);
		p->protocol = 0;
		return 0;
	}
	if (p->skb->vlan_present)
		detour(p, REASON_HOST_VLAN);
	if (p->protocol == ETH_P_IP)
		return parse_ipv4(p, from);
	if (p->protocol == ETH_P_IPV6)
		return parse_ipv6(p, from);
	if (p->protocol != ETH_P_ARP)
		detour(p, REASON_HOST_NOT_IP);
	return 0;
}

/*
 * Each path through the parser leaves different constants behind, and the verifier would walk the rest of the program
 * once for each. Combined with a zero whose value it does not know they become unknown numbers, and the paths merge: a
 * tenth of the instructions to verify.
 */
static __always_inline void merge_paths(struct packet *p)
{
	volatile __u32 *length = &p->skb->len;
	__u32 zero = *length ^ *length;

	p->detour ^= zero;
	p->tcp_flags ^= zero;
	p->header_bytes ^= zero;
	p->flow.local_port ^= zero;
	p->flow.peer_port ^= zero;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		p->flow.local.word[i] ^= zero;
		p->flow.peer.word[i] ^= zero;
	}
}

static __always_inline int parse(struct packet *p, enum direction from)
{
	int reason = read_headers(p, from);

	if (!reason)
		merge_paths(p);
	return reason;
}
