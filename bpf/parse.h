/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Parses a frame's headers: the result is a complete flow, a reason for the slow path, or a packet without a flow. */
#pragma once

#include "bpf/headers.h"

#define IPV6_EXTENSIONS_MAX 4

/* Completes the flow, whose addresses are there, of a packet that goes in this direction. */
static __always_inline void complete_flow(struct __sk_buff *skb, struct parsed *p, __u8 protocol, struct ports ports,
					  enum direction from)
{
	p->flow.ifindex = skb->ifindex;
	p->flow.protocol = protocol;
	p->flow.local_port = from == FROM_POD ? ports.source : ports.destination;
	p->flow.peer_port = from == FROM_POD ? ports.destination : ports.source;
	p->has_flow = true;
}

static __always_inline void set_flow(struct __sk_buff *skb, struct parsed *p, struct ports ports, enum direction from)
{
	p->flow.local = from == FROM_POD ? p->ip.source : p->ip.destination;
	p->flow.peer = from == FROM_POD ? p->ip.destination : p->ip.source;
	complete_flow(skb, p, p->ip.protocol, ports, from);
}

/* Skips IPv6 extension headers from *offset on; a fragment other than the first has no transport header. */
static __always_inline bool skip_extensions(struct __sk_buff *skb, struct parsed *p, __u32 *offset, __u8 *protocol)
{
	struct extension header;

#pragma unroll
	for (int i = 0; i < IPV6_EXTENSIONS_MAX; i++) {
		if (!is_extension(*protocol))
			return true;
		if (bpf_skb_load_bytes(skb, *offset, &header, sizeof(header)))
			return false;
		if (*protocol == NEXTHDR_FRAGMENT) {
			detour(p, REASON_HOST_FRAGMENT);
			p->is_fragment = true;
			p->fragment = header.id;
			if (is_later_fragment(*protocol, &header))
				return false;
			p->is_first_fragment = true;
		} else {
			detour(p, REASON_HOST_OPTIONS);
		}
		*offset += extension_bytes(*protocol, &header);
		*protocol = header.next;
	}
	p->has_unread_headers = is_extension(*protocol);
	return !p->has_unread_headers;
}

/* The flow of an ICMP error is that of the packet quoted at `offset`, which went in the other direction. */
static __always_inline void parse_quoted(struct __sk_buff *skb, struct parsed *p, __u32 offset, enum direction from)
{
	enum direction quoted = from == FROM_POD ? TO_POD : FROM_POD;
	struct ip_addr *source = quoted == FROM_POD ? &p->flow.local : &p->flow.peer;
	struct ip_addr *destination = quoted == FROM_POD ? &p->flow.peer : &p->flow.local;
	struct ports ports = {};
	__u8 protocol;
	__u32 l4;

	if (p->protocol == ETH_P_IP) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)) || ip.ihl < 5)
			return;
		*source = mapped_ipv4(ip.saddr);
		*destination = mapped_ipv4(ip.daddr);
		protocol = ip.protocol;
		l4 = offset + ip.ihl * 4;
	} else {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)))
			return;
		__builtin_memcpy(source, &ip.saddr, sizeof(*source));
		__builtin_memcpy(destination, &ip.daddr, sizeof(*destination));
		protocol = ip.nexthdr;
		l4 = offset + sizeof(ip);
	}
	switch (protocol) {
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (bpf_skb_load_bytes(skb, l4 + 4, &ports.source, sizeof(ports.source)))
			return;
		ports.destination = ports.source;
		break;
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
		if (bpf_skb_load_bytes(skb, l4, &ports, sizeof(ports)))
			return;
		break;
	}
	complete_flow(skb, p, protocol, ports, quoted);
}

/* Behind an IP header without options the offset is constant, and no helper call is needed. */
static __always_inline int load_l4(struct __sk_buff *skb, struct parsed *p, void *to, __u32 size)
{
	const __u32 after_ipv4 = sizeof(struct ethhdr) + sizeof(struct iphdr);
	const __u32 after_ipv6 = sizeof(struct ethhdr) + sizeof(struct ipv6hdr);

	if (p->l4_offset == after_ipv4)
		return load(skb, after_ipv4, to, size);
	if (p->l4_offset == after_ipv6)
		return load(skb, after_ipv6, to, size);
	return bpf_skb_load_bytes(skb, p->l4_offset, to, size);
}

static __always_inline void parse_icmp(struct __sk_buff *skb, struct parsed *p, enum direction from)
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

	if (load_l4(skb, p, &icmp, sizeof(icmp)))
		return;
	p->icmp_type = icmp.type;
	/* RFC 4443: errors are below 128. RFC 792: unreachable, source quench, redirect, time exceeded, parameter. */
	p->is_icmp_error =
		v6 ? icmp.type < 128
		   : icmp.type == 3 || icmp.type == 4 || icmp.type == 5 || icmp.type == 11 || icmp.type == 12;
	if (p->is_icmp_error) {
		parse_quoted(skb, p, p->l4_offset + sizeof(icmp), from);
		/* An error goes to the sender of what it quotes: to anybody else the flow says nothing about its path.
		 */
		if (!same_addr(&p->ip.destination, from == FROM_POD ? &p->flow.peer : &p->flow.local))
			p->has_flow = false;
		return;
	}
	p->is_icmpv6 = v6 && p->protocol == ETH_P_IPV6;
	if (v6 && (icmp.type == 128 || icmp.type == 129))
		ports.source = icmp.identifier;
	if (!v6 && (icmp.type == 8 || icmp.type == 0))
		ports.source = icmp.identifier;
	ports.destination = ports.source;
	set_flow(skb, p, ports, from);
}

/* A header that is cut has no flow: it cannot be translated. */
static __always_inline void parse_l4(struct __sk_buff *skb, struct parsed *p, __u32 l3_bytes, enum direction from)
{
	struct {
		struct ports ports;
		__be32 sequence;
		__be32 acknowledgement;
		__u8 data_offset;
		__u8 flags;
		__be16 window;
		__be32 checksum_and_urgent;
	} tcp;
	struct {
		struct ports ports;
		__be32 length_and_checksum;
	} udp;
	struct ports ports = {};

	switch (p->ip.protocol) {
	case IPPROTO_TCP:
		if (load_l4(skb, p, &tcp, sizeof(tcp)))
			return;
		ports = tcp.ports;
		p->tcp_flags = tcp.flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK);
		p->header_bytes = l3_bytes + (tcp.data_offset >> 4) * 4;
		if (tcp.flags & TCP_ACK)
			p->window = (struct tcp_window){bpf_ntohl(tcp.acknowledgement), bpf_ntohs(tcp.window),
							bpf_ntohl(tcp.sequence) >> 16 | 1};
		break;
	case IPPROTO_UDP:
		if (load_l4(skb, p, &udp, sizeof(udp)))
			return;
		ports = udp.ports;
		p->header_bytes = l3_bytes + sizeof(udp);
		break;
	case IPPROTO_SCTP:
		if (load_l4(skb, p, &ports, sizeof(ports)))
			return;
		p->header_bytes = l3_bytes + 12;
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return parse_icmp(skb, p, from);
	}
	set_flow(skb, p, ports, from);
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

/*
 * `length` as an IP header has it; that of a GSO packet over 64 KiB is written as 0. Ethernet pads small frames to 60
 * bytes, which the receiver takes off. `least`: bytes of the header that counts itself.
 */
static __always_inline void check_length(struct __sk_buff *skb, struct parsed *p, __u32 length, __u32 bytes,
					 __u32 least, enum direction from)
{
	if (length == bytes || (length == 0 && skb->gso_size && skb->len - sizeof(struct ethhdr) > 0xffff))
		return;
	if (from == TO_POD && length > least && length < bytes && !skb->gso_size)
		p->is_padded = true;
	else
		detour(p, REASON_HOST_LENGTH);
}

/* No header is read of the padding: nobody gets it. */
static __always_inline bool is_l4_in_padding(struct __sk_buff *skb, struct parsed *p)
{
	__u32 bytes = p->ip.protocol == IPPROTO_TCP ? sizeof(struct tcphdr) : sizeof(struct udphdr);

	return p->is_padded && p->l4_offset + bytes > ip_end(skb);
}

static __always_inline int read_ipv4(struct __sk_buff *skb, struct parsed *p, enum direction from, bool *has_l4)
{
	struct iphdr ip;
	__u32 l3_bytes;

	if (load(skb, sizeof(struct ethhdr), &ip, sizeof(ip)))
		return REASON_DROP_MALFORMED;
	l3_bytes = ip.ihl * 4;
	if (ip.version != 4 || l3_bytes < sizeof(ip))
		return REASON_DROP_MALFORMED;
	if (l3_bytes == sizeof(ip) && !checksum_holds(&ip))
		detour(p, REASON_HOST_CHECKSUM);
	check_length(skb, p, bpf_ntohs(ip.tot_len), skb->len - sizeof(struct ethhdr), l3_bytes, from);
	if (ip.frag_off & bpf_htons(0x3fff)) {
		detour(p, REASON_HOST_FRAGMENT);
		p->is_fragment = true;
		p->fragment = ip.id;
		p->is_first_fragment = !(ip.frag_off & bpf_htons(0x1fff));
	}
	if (l3_bytes > sizeof(ip))
		detour(p, REASON_HOST_OPTIONS);
	p->hop_limit = ip.ttl;
	p->traffic_class = ip.tos;
	p->l4_offset = sizeof(struct ethhdr) + l3_bytes;
	p->ip.source = mapped_ipv4(ip.saddr);
	p->ip.destination = mapped_ipv4(ip.daddr);
	p->ip.protocol = ip.protocol;
	p->is_from_link = stays_on_link(&p->ip.source);
	*has_l4 = !(ip.frag_off & bpf_htons(0x1fff));
	return 0;
}

static __always_inline int parse_ipv4(struct __sk_buff *skb, struct parsed *p, enum direction from)
{
	bool has_l4 = false;
	int malformed = read_ipv4(skb, p, from, &has_l4);

	if (!malformed && has_l4 && !is_l4_in_padding(skb, p))
		parse_l4(skb, p, p->l4_offset - sizeof(struct ethhdr), from);
	return malformed;
}

static __always_inline int read_ipv6(struct __sk_buff *skb, struct parsed *p, enum direction from)
{
	const __u32 headers = sizeof(struct ethhdr) + sizeof(struct ipv6hdr);
	struct ipv6hdr ip;

	if (load(skb, sizeof(struct ethhdr), &ip, sizeof(ip)) || ip.version != 6)
		return REASON_DROP_MALFORMED;
	check_length(skb, p, bpf_ntohs(ip.payload_len), skb->len - headers, 0, from);
	p->hop_limit = ip.hop_limit;
	p->traffic_class = *(__be32 *)&ip & bpf_htonl(0x0fffffff);
	__builtin_memcpy(&p->ip.source, &ip.saddr, sizeof(p->ip.source));
	__builtin_memcpy(&p->ip.destination, &ip.daddr, sizeof(p->ip.destination));
	p->ip.protocol = ip.nexthdr;
	p->is_from_link = stays_on_link(&p->ip.source);
	return 0;
}

static __always_inline int parse_ipv6(struct __sk_buff *skb, struct parsed *p, enum direction from)
{
	__u32 offset = sizeof(struct ethhdr) + sizeof(struct ipv6hdr);
	int malformed = read_ipv6(skb, p, from);

	if (malformed)
		return malformed;
	/* No host sends them (RFC 4291, 2.5.5.2); in the tables they would be another family's. */
	if (is_mapped_ipv4(&p->ip.source) || is_mapped_ipv4(&p->ip.destination))
		return REASON_DROP_MALFORMED;
	if (!skip_extensions(skb, p, &offset, &p->ip.protocol))
		return 0;
	p->l4_offset = offset;
	if (!is_l4_in_padding(skb, p))
		parse_l4(skb, p, offset - sizeof(struct ethhdr), from);
	return 0;
}

/*
 * The kernel has moved the outermost tag of a received frame out of it. A priority tag (VLAN 0) changes nobody's
 * network: the receiver strips it, so the frame is read as if it had none. Any other tag hides what is behind it.
 */
static __always_inline bool is_hidden_by_tag(struct __sk_buff *skb, struct parsed *p)
{
	if (p->protocol == ETH_P_8021Q || p->protocol == ETH_P_8021AD)
		return true;
	return skb->vlan_present && skb->vlan_tci & VLAN_ID_MASK;
}

static __always_inline int read_headers(struct __sk_buff *skb, struct parsed *p, enum direction from)
{
	p->protocol = bpf_ntohs(skb->protocol);
	if (skb->len < sizeof(struct ethhdr))
		return REASON_DROP_MALFORMED;
	if (is_hidden_by_tag(skb, p)) {
		detour(p, REASON_HOST_VLAN);
		p->protocol = 0;
		return 0;
	}
	if (skb->vlan_present)
		detour(p, REASON_HOST_VLAN);
	if (p->protocol == ETH_P_IP)
		return parse_ipv4(skb, p, from);
	if (p->protocol == ETH_P_IPV6)
		return parse_ipv6(skb, p, from);
	if (p->protocol != ETH_P_ARP)
		detour(p, REASON_HOST_NOT_IP);
	return 0;
}

static __always_inline int parse_packet(struct __sk_buff *skb, enum direction from)
{
	struct flow_scratch *work = find_scratch();
	int reason;

	if (!work)
		return REASON_DROP_MALFORMED;
	__builtin_memset(&work->parsed, 0, sizeof(work->parsed));
	reason = read_headers(skb, &work->parsed, from);
	work->ip = work->parsed.ip;
	return reason;
}

/* Functions of their own, which the verifier checks once. */
__attribute__((noinline)) int parse_from_pod(struct __sk_buff *skb)
{
	return parse_packet(skb, FROM_POD);
}

__attribute__((noinline)) int parse_to_pod(struct __sk_buff *skb)
{
	return parse_packet(skb, TO_POD);
}

/* `from` is constant. */
static __always_inline int parse(struct packet *p, enum direction from)
{
	int reason = from == FROM_POD ? parse_from_pod(p->skb) : parse_to_pod(p->skb);

	return find_parsed(p) ? reason : REASON_DROP_MALFORMED;
}
