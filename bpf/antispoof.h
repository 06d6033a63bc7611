/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Anti-spoofing: binds what a pod sends to its own MAC and addresses, ARP and neighbour discovery included. */
#pragma once

#include "bpf/hand_over.h"
#include "bpf/headers.h"
#include "bpf/hidden.h"
#include "bpf/kernel.h"

#define ND_OPTIONS_MAX 4
#define CHECKSUM_PARTIAL 3

static __always_inline bool may_send_from(struct packet *p, const struct ip_addr *addr)
{
	if (owns(p, addr))
		return true;
	if (p->interface->flags & INTERFACE_ALLOWED_SOURCES) {
		struct allowed_source_key key = {
			.prefixlen = 160, .ifindex = bpf_htonl(p->skb->ifindex), .addr = *addr};

		return prefix_value_for(map_find(&allowed_srcs_v1, &key), addr);
	}
	return false;
}

/* Linux may send ARP requests with the source address of the packet (arp(7)); the node ignores foreign senders. */
static __always_inline int write_own_sender(struct packet *p)
{
	const __u32 offset = sizeof(struct ethhdr) + __builtin_offsetof(struct arp_packet, sender);
	__be32 own = p->interface->ipv4.word[3];

	return own && !bpf_skb_store_bytes(p->skb, offset, &own, sizeof(own), 0) ? 0 : REASON_DROP_ARP_SPOOFED;
}

/*
 * RFC 5227: a probe has no sender address, and claims its target: a host that probes it as well would give it up. That
 * of the gateway is answered, and goes no further.
 */
static __always_inline bool is_probe_of_own(struct packet *p, struct arp_packet *arp, struct ip_addr *target)
{
	if (arp->operation != bpf_htons(1))
		return false;
	return may_send_from(p, target) ||
	       (p->interface->flags & INTERFACE_GATEWAY && arp->target == bpf_htonl(PODLANE_GATEWAY_IPV4));
}

/* Where the checksum begins that is left to be written, and where it is to be written from there. */
struct checksum_left {
	__u16 start; /* in sk_buff from its head, as mac_header */
	__u16 offset;
};

#define CHECKSUM_LEFT 0x80000000U
#define LARGEST_START 0x7fffU

/*
 * 0 if none is left; else CHECKSUM_LEFT, the start from that of the frame in the upper half, and the offset from there
 * in the lower one. Before the frame counts as its start. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int find_checksum_left(struct __sk_buff *skb)
{
	struct sk_buff___podlane *kernel = (void *)skb;
	struct checksum_left left = {};
	__u32 frame, start;

	if (!can_read_kernel || BPF_CORE_READ_BITFIELD_PROBED(kernel, ip_summed) != CHECKSUM_PARTIAL)
		return 0;
	bpf_probe_read_kernel(&left, sizeof(left), &kernel->csum_start);
	frame = BPF_CORE_READ(kernel, mac_header);
	start = left.start > frame ? left.start - frame : 0;
	if (start > LARGEST_START)
		start = LARGEST_START;
	return CHECKSUM_LEFT | start << 16 | left.offset;
}

static __always_inline __u32 start_of(__u32 left)
{
	return left >> 16 & LARGEST_START;
}

/* A global function, as check_discovery(): the verifier checks it once. */
__attribute__((noinline)) int check_arp(struct __sk_buff *skb)
{
	struct packet taken = {.skb = skb}, *p = &taken;
	struct ip_addr sender;
	struct arp_packet arp;

	if (!take_up(p) || find_checksum_left(skb) || bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &arp, sizeof(arp)))
		return REASON_DROP_MALFORMED;
	if (arp.hardware != bpf_htons(1) || arp.protocol != bpf_htons(ETH_P_IP) || arp.hardware_size != 6 ||
	    arp.protocol_size != 4)
		return REASON_DROP_MALFORMED;
	if (!same_mac(arp.sender_mac, p->interface->pod_mac))
		return REASON_DROP_ARP_SPOOFED;
	sender = mapped_ipv4(arp.sender ?: arp.target);
	if (!arp.sender)
		return is_probe_of_own(p, &arp, &sender) ? 0 : REASON_DROP_ARP_SPOOFED;
	if (may_send_from(p, &sender))
		return 0;
	return find_peer_interface(p, &sender) ? write_own_sender(p) : REASON_DROP_ARP_SPOOFED;
}

/* Link-layer address options must carry the pod's MAC. Options that cannot be parsed completely fail the check, and so
 * does one without a length: no step gets past it. */
static __always_inline bool nd_options_own(struct packet *p, __u32 offset)
{
	struct {
		__u8 type;
		__u8 length; /* in units of 8 bytes */
		__u8 mac[6];
	} __attribute__((aligned(2))) option;

#pragma unroll
	for (int i = 0; i < ND_OPTIONS_MAX; i++) {
		if (offset >= p->skb->len)
			return true;
		if (bpf_skb_load_bytes(p->skb, offset, &option, sizeof(option)))
			return false;
		if ((option.type == 1 || option.type == 2) && !same_mac(option.mac, p->interface->pod_mac))
			return false;
		offset += option.length * 8;
	}
	return offset >= p->skb->len;
}

static __always_inline bool is_discovery(__u8 type)
{
	return type >= ND_ROUTER_SOLICITATION && type <= ND_REDIRECT;
}

/* Where the checksum of a protocol is in its header, and how long that is at least; of others nothing is known. */
static __always_inline __u32 checksum_place(__u8 protocol, __u32 *header)
{
	switch (protocol) {
	case IPPROTO_TCP:
		*header = 20;
		return 16;
	case IPPROTO_UDP:
		*header = 8;
		return 6;
	case IPPROTO_SCTP:
		*header = 12;
		return 8;
	case IPPROTO_ICMP:
		*header = 8;
		return 2;
	case IPPROTO_ICMPV6: /* any of it could become discovery */
		*header = LARGEST_START;
		return 2;
	}
	*header = 0;
	return 0;
}

/*
 * A process with CAP_NET_RAW may leave a checksum of any bytes to be written anywhere behind their start. The kernel or
 * the network card writes it after all that is checked here, and the kernel completes the header's own checksum in each
 * fragment it makes. So it is the packet's own, or one behind the transport header, as of a tunnel. In later fragments,
 * and behind headers that end too soon, nobody leaves one.
 */
static __always_inline bool is_checksum_astray(struct packet *p)
{
	__u32 left = find_checksum_left(p->skb), start = start_of(left), header, place;

	if (!left)
		return false;
	if (!p->in->l4_offset || start < p->in->l4_offset)
		return true;
	place = checksum_place(p->ip->protocol, &header);
	return start < p->in->l4_offset + header && start + (left & 0xffff) != p->in->l4_offset + place;
}

__attribute__((noinline)) int check_discovery(struct __sk_buff *skb)
{
	struct packet taken = {.skb = skb}, *p = &taken;
	struct nd_message nd;

	if (!take_up(p))
		return REASON_DROP_MALFORMED;
	/* RFC 6980: discovery has no fragments: the next could hold what is not checked here. */
	if (p->in->is_first_fragment || p->in->icmp_type == ND_ROUTER_ADVERTISEMENT || p->in->icmp_type == ND_REDIRECT)
		return REASON_DROP_ND_SPOOFED;
	if (p->in->icmp_type == ND_ROUTER_SOLICITATION)
		return nd_options_own(p, p->in->l4_offset + 8) ? 0 : REASON_DROP_ND_SPOOFED;
	if (bpf_skb_load_bytes(skb, p->in->l4_offset, &nd, sizeof(nd)))
		return REASON_DROP_MALFORMED;
	if (is_mapped_ipv4(&nd.target))
		return REASON_DROP_ND_SPOOFED;
	/* Duplicate address detection and advertisements claim the target. */
	if (p->in->icmp_type == ND_NEIGHBOUR_ADVERTISEMENT || is_unspecified(&p->ip->source))
		if (!may_send_from(p, &nd.target))
			return REASON_DROP_ND_SPOOFED;
	return nd_options_own(p, p->in->l4_offset + sizeof(nd)) ? 0 : REASON_DROP_ND_SPOOFED;
}

/* RFC 4861 and RFC 3810: messages that a host may send before it has an address. */
static __always_inline bool may_lack_source(struct packet *p)
{
	return p->in->icmp_type == ND_ROUTER_SOLICITATION || p->in->icmp_type == ND_NEIGHBOUR_SOLICITATION ||
	       p->in->icmp_type == 131 || p->in->icmp_type == 143; /* multicast listener reports */
}

/* Another tag behind a priority tag is never allowed: receivers strip both. */
static __always_inline int check_tag(struct packet *p)
{
	bool has_network = p->skb->vlan_present && p->skb->vlan_tci & VLAN_ID_MASK;

	return has_network && p->interface->flags & INTERFACE_ETHER_VLAN ? 0 : REASON_DROP_VLAN;
}

/* The flag that allows frames of this type. */
static __always_inline __u32 ether_flag(__u16 protocol)
{
	switch (protocol) {
	case ETH_P_802_2:
		return INTERFACE_ETHER_LLC;
	case ETH_P_LLDP:
		return INTERFACE_ETHER_LLDP;
	case ETH_P_MPLS_UC:
	case ETH_P_MPLS_MC:
		return INTERFACE_ETHER_MPLS;
	case ETH_P_PPP_DISC:
	case ETH_P_PPP_SES:
		return INTERFACE_ETHER_PPPOE;
	}
	return 0;
}

static __always_inline int check_ether_type(struct packet *p)
{
	__u32 left = find_checksum_left(p->skb);

	/* It could be another type when it leaves. */
	if (left && start_of(left) < sizeof(struct ethhdr))
		return REASON_DROP_MALFORMED;
	if (p->in->protocol == 0)
		return check_tag(p);
	return p->interface->flags & (INTERFACE_ETHER_ANY | ether_flag(p->in->protocol)) ? 0 : REASON_DROP_ETHER_TYPE;
}

/* Nor TCP, which would end connections there unseen. */
static __always_inline bool may_hide_nd(struct packet *p)
{
	int hidden = find_hidden(p->skb), type = hidden >> 8;

	return may_be_tcp(hidden) || ((hidden & 0xff) == IPPROTO_ICMPV6 && (is_discovery(type) || type == HIDDEN_TYPE));
}

/* Neighbour discovery could be there, or in the next fragment (RFC 7112: the first one has all headers). */
static __always_inline bool hides_nd(struct packet *p)
{
	if (p->in->has_unread_headers)
		return may_hide_nd(p);
	if (!p->in->is_first_fragment || p->in->protocol != ETH_P_IPV6)
		return false;
	return is_extension(p->ip->protocol) ||
	       (p->ip->protocol == IPPROTO_ICMPV6 && !p->in->icmp_type && !p->in->is_icmp_error);
}

static __always_inline int check_source(struct packet *p)
{
	__u8 source_mac[6] __attribute__((aligned(2)));
	struct source_route *peer;
	int reason;

	if (!(p->interface->flags & INTERFACE_ANTI_SPOOF))
		return is_ip(p) ? hand_over_to_peer(p) : 0;
	if (load(p->skb, 6, source_mac, sizeof(source_mac)))
		return REASON_DROP_MALFORMED;
	/* The program that handed it over wrote the MAC of the ADD. */
	if (!p->is_handed_over && !same_mac(source_mac, p->interface->pod_mac))
		return REASON_DROP_SOURCE_MAC;
	if (p->in->protocol == ETH_P_ARP)
		return check_arp(p->skb);
	if (!is_ip(p))
		return check_ether_type(p);
	if (!may_send_from(p, &p->ip->source) &&
	    !(is_icmpv6(p) && is_unspecified(&p->ip->source) && may_lack_source(p))) {
		peer = find_peer_interface(p, &p->ip->source);
		reason = peer ? hand_over(p, peer) : REASON_DROP_SOURCE_ADDRESS;
		if (reason)
			return reason;
	}
	if (hides_nd(p))
		return REASON_DROP_ND_SPOOFED;
	if (is_checksum_astray(p) || is_tcp_cut(p))
		return REASON_DROP_MALFORMED;
	return is_icmpv6(p) && is_discovery(p->in->icmp_type) ? check_discovery(p->skb) : 0;
}
