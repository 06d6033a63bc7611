/* SPDX-License-Identifier: MIT */
/* addresses: which endpoint of this node owns an address, and how a packet is put into its hands. */
#pragma once

#include "types.h"

/* Networks may share a range, so an address means something only within its network. */
struct address_key {
	__u32 network;
	struct ip_addr addr;
};

struct address {
	__u32 ifindex; /* the owner's host-side veth */
	__u32 flags;   /* enum interface_flags of the owner */
	__u32 mtu;     /* the owner's MTU in bytes, without the Ethernet header */
	__u8 pod_mac[6];
	__u8 host_mac[6];
};

ABI_STATIC_ASSERT(sizeof(struct address_key) == 20, "no padding in a key");
ABI_STATIC_ASSERT(sizeof(struct address) == 24, "no padding in a value");
