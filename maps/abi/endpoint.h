/* SPDX-License-Identifier: MIT */
/* endpoints: everything known of an attachment. Written and read by user space only. */
#pragma once

#include "types.h"

#define ENDPOINT_CONTAINER_ID_SIZE 128
#define ENDPOINT_IFNAME_SIZE 16
#define ENDPOINT_NETWORK_SIZE 128
#define ENDPOINT_POD_NAME_SIZE 256
#define ENDPOINT_POD_NAMESPACE_SIZE 64
#define ENDPOINT_POD_UID_SIZE 64
#define ENDPOINT_ADDRESSES 16

/* The attachment's identity (CNI spec, section 2: container ID and interface name); NUL-padded. */
struct endpoint_key {
	char container_id[ENDPOINT_CONTAINER_ID_SIZE];
	char ifname[ENDPOINT_IFNAME_SIZE];
};

enum endpoint_mode {
	ENDPOINT_MAIN = 1,       /* Podlane delegated IPAM and made the interface */
	ENDPOINT_AFTER_IPAM = 2, /* addresses came in prevResult, Podlane made the interface */
	ENDPOINT_AFTER_MAIN =
		3, /* another plugin created the interface, Podlane attached its programs to the host-side veth */
};

/* Who rewrites the source of its packets to the outside. */
enum endpoint_masquerade {
	ENDPOINT_MASQUERADE_NONE = 0,
	ENDPOINT_MASQUERADE_NFTABLES = 1,
	ENDPOINT_MASQUERADE_IPTABLES = 2,
};

enum endpoint_attach {
	ENDPOINT_TCX = 1,
	ENDPOINT_CLSACT = 2,
};

struct endpoint {
	__u64 created_ns; /* CLOCK_REALTIME */
	__u64 netns_inode;
	__u32 ifindex;     /* host-side veth */
	__u32 pod_ifindex; /* container end, in the container's namespace */
	__u32 network;     /* network_id() */
	__u32 mtu;         /* bytes */
	__u32 flags;       /* enum interface_flags */
	__u8 mode;         /* enum endpoint_mode */
	__u8 attach;       /* enum endpoint_attach */
	__u8 address_count;
	__u8 allowed_source_count;
	__u8 pod_mac[6];
	__u8 host_mac[6];
	__u8 masquerade; /* enum endpoint_masquerade */
	__u8 shaped;     /* the container's interface has Podlane's qdisc for the egress limit */
	__u16 netns_id;  /* of the container's namespace, as the node's namespace numbers it, plus 1; 0: unknown */
	char host_ifname[ENDPOINT_IFNAME_SIZE];
	char network_name[ENDPOINT_NETWORK_SIZE];
	char pod_name[ENDPOINT_POD_NAME_SIZE];
	char pod_namespace[ENDPOINT_POD_NAMESPACE_SIZE];
	char pod_uid[ENDPOINT_POD_UID_SIZE];
	struct ip_addr link_local;
	struct ip_addr addresses[ENDPOINT_ADDRESSES];
};

ABI_STATIC_ASSERT(sizeof(struct endpoint_key) == 144, "no padding in a key");
ABI_STATIC_ASSERT(sizeof(struct endpoint) % 8 == 0, "no padding at the end");
