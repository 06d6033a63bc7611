/* SPDX-License-Identifier: MIT */
/* source routes: by which interface of a container, and which way out of the node, what it sends from an address goes.
 */
#pragma once

#include "types.h"

/* Keyed by the host-side veth a packet is on, so that only interfaces of the same container find each other's
 * addresses. */
struct source_route_key {
	__u32 ifindex; /* host-side veth of any of the container's interfaces */
	struct ip_addr source;
};

/*
 * source slots: the same values by number, for programs that try all addresses of the container's other interfaces, and
 * the interface's own if it has more than one. A table of its own: whatever address a packet claims, it is no slot.
 */
#define SOURCE_SLOTS 8

struct source_slot_key {
	__u32 ifindex; /* host-side veth of any of the container's interfaces */
	__u32 is_ipv4; /* 1: IPv4, 0: IPv6 */
	__u32 number;  /* from 1 on */
};

struct source_route {
	__u32 ifindex;          /* host-side veth of the interface that owns the address */
	__u32 uplink;           /* ifindex its network leaves the node by; 0: as the kernel's routes say */
	struct ip_addr gateway; /* next hop to what is not on the uplink's link; none: as the uplink's routes say */
	struct ip_addr source;  /* the address it is about */
	__u32 mtu;              /* the owner's, in bytes, without the Ethernet header */
	__u32 prefix_bits;      /* of the subnet on the uplink's link, 0: none (IPv4: + 96 for the mapped form) */
	__u8 host_mac[6];       /* by which a packet on the owner's host-side veth is one to be routed */
	__u8 pod_mac[6];        /* of the owner */
	__u8 uplink_mac[6];     /* by which neighbours on the uplink's link reach the address */
	__u8 reserved[2];
};

ABI_STATIC_ASSERT(sizeof(struct source_route_key) == 20, "no padding in a key");
ABI_STATIC_ASSERT(sizeof(struct source_slot_key) == 12, "no padding in a key");
ABI_STATIC_ASSERT(sizeof(struct source_route) == 68, "no padding in a value");
