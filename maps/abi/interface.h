/* SPDX-License-Identifier: MIT */
/* interfaces: what the programs need to know of the host-side veth a packet is on. Key: its ifindex (host order). */
#pragma once

#include "types.h"

enum interface_flags {
	/* Pods of this node may be reached on the fast path. */
	INTERFACE_FAST_LOCAL = 1 << 0,
	/* Other nodes may be reached on the fast path. */
	INTERFACE_FAST_UPLINK = 1 << 1,
	/* Source addresses and MAC are bound to the endpoint. */
	INTERFACE_ANTI_SPOOF = 1 << 2,
	/* The map of allowed sources holds prefixes for this interface. */
	INTERFACE_ALLOWED_SOURCES = 1 << 3,
	/* The host-side veth is Podlane's: its gateway addresses are answered from BPF. */
	INTERFACE_GATEWAY = 1 << 4,
	/* The endpoint has addresses beyond the first of a family: they are found in the addresses map. */
	INTERFACE_MORE_ADDRESSES = 1 << 5,
	/* Traffic to the endpoint, or from it, has a limit. */
	INTERFACE_LIMIT_INGRESS = 1 << 6,
	INTERFACE_LIMIT_EGRESS = 1 << 7,
	/* The container has peer interfaces: the source routes map holds their addresses for this one. */
	INTERFACE_PEERS = 1 << 8,
	/* The network has an egress route: the source routes map holds it for the endpoint's addresses. */
	INTERFACE_EGRESS_ROUTE = 1 << 9,
	/* Source routing is off: neither gets the packets of other interfaces, nor leaves its own to them. */
	INTERFACE_APART = 1 << 10,
	/* The container has an interface without programs: rules in it route what is sent from the endpoint's
	   addresses. */
	INTERFACE_POD_RULES = 1 << 11,
	/* TCP senders of this node are not paced towards the endpoint; the endpoint's own are not paced. */
	INTERFACE_LIMIT_UNPACED_INGRESS = 1 << 12,
	INTERFACE_LIMIT_UNPACED_EGRESS = 1 << 13,
	/* The map of exempt prefixes holds some for this interface. */
	INTERFACE_LIMIT_EXEMPT = 1 << 14,
	/* The host-side veth has Podlane's qdisc for the earliest departure time; the configuration wants none. */
	INTERFACE_LIMIT_EDT = 1 << 15,
	INTERFACE_LIMIT_NO_EDT = 1 << 16,
	/* The host-side veth is a port of a bridge that does not route for the endpoint: its frames bypass the node's
	 * routes.
	 */
	INTERFACE_BRIDGED = 1 << 17,
	/* Allowed with anti-spoofing besides IPv4, IPv6 and ARP; the content is not checked. */
	INTERFACE_ETHER_LLC = 1 << 18, /* 802.3 frames with LLC, such as STP */
	INTERFACE_ETHER_LLDP = 1 << 19,
	INTERFACE_ETHER_MPLS = 1 << 20,
	INTERFACE_ETHER_PPPOE = 1 << 21,
	INTERFACE_ETHER_VLAN = 1 << 22, /* tags of any VLAN but 0 */
	INTERFACE_ETHER_ANY = 1 << 23,  /* all others, VLAN tags excepted */
	/* The first packets of its connections with other pods may take the fast path (firstPacket: direct). */
	INTERFACE_FIRST_DIRECT = 1 << 24,
	/* The container had a default route of the family by another interface: the endpoint has none. */
	INTERFACE_NO_DEFAULT_IPV4 = 1 << 25,
	INTERFACE_NO_DEFAULT_IPV6 = 1 << 26,
	/* No bridge carries the endpoint's frames: its MAC is known on its own link only, and may change. */
	INTERFACE_ROUTED = 1 << 27,
	/* The MAC is not the one of the ADD: the endpoint has announced another. */
	INTERFACE_MAC_LEARNED = 1 << 28,
	/* Only pods that share a group with the endpoint, or pods of its network, may open connections to it. */
	INTERFACE_ISOLATED_GROUP = 1 << 29,
	INTERFACE_ISOLATED_NETWORK = 1 << 30,
	/* Its limits are guarantees within a limit that pods share. */
	INTERFACE_LIMIT_GROUP = 1U << 31,
};

/* Written by ADD and, when the endpoint announces another MAC, by the program; erased by DEL; read for every packet:
 * one cache line. */
struct interface {
	__u32 network;       /* network_id() of the network's name */
	__u32 flags;         /* enum interface_flags */
	struct ip_addr ipv4; /* the first address of each family, zero if there is none */
	struct ip_addr ipv6;
	struct ip_addr link_local; /* the pod's own fe80::/64 address, zero without IPv6 */
	__u8 pod_mac[6];
	__u16 netns_id; /* as that of the endpoint */
};

ABI_STATIC_ASSERT(sizeof(struct interface) == 64, "one cache line");
