/* SPDX-License-Identifier: MIT */
/* paths: which way a flow came, so that its answers go back that way ("a flow returns the way it came"). */
#pragma once

#include "types.h"

/*
 * A flow as the endpoint sees it: local is the pod's side. Ports in network byte order; for ICMP echo both
 * ports are the identifier; protocols without ports have both 0.
 */
struct path_key {
	__u32 ifindex; /* the endpoint's host-side veth */
	struct ip_addr local;
	struct ip_addr peer;
	__be16 local_port;
	__be16 peer_port;
	__u8 protocol; /* IPPROTO_* */
	__u8 reserved[3];
};

enum path_via {
	PATH_HOST = 1,   /* through the host stack, which may translate or filter it */
	PATH_DIRECT = 2, /* between two pods of this node, on the fast path */
	PATH_UPLINK = 3, /* by the uplink, on the fast path; without one as the kernel's routes say */
	PATH_INIT = 4,   /* through the host stack, which has delivered an INIT of SCTP; nobody has replied yet */
};

/* PATH_UPLINK without an uplink: since then the host stack has delivered a SYN of the flow. */
struct flow_path {
	__u64 since_ns; /* CLOCK_MONOTONIC, when this path was chosen; by an uplink: when it was last used, to 5 s */
	__u32 via;      /* enum path_via */
	__u32 uplink;   /* ifindex of the uplink, 0 if there is none */
};

/*
 * kept_paths: paths that conntrack cannot restore, by the endpoint's host-side veth, so that no other endpoint's flows
 * evict them. A flow has one of KEPT_WAYS slots, which by its hash begin at a multiple of them. So has a packet in
 * fragments, of whose flow the host stack carries: its key has the packet's identification as ports.
 */
#define KEPT_PATHS 32
#define KEPT_WAYS 4

/* An unused one has since_ns 0. A flow that is not in use is replaced. */
struct kept_path {
	struct path_key flow;
	__u32 reserved;
	struct flow_path path; /* since_ns: when it was last used */
};

struct kept_paths {
	struct kept_path paths[KEPT_PATHS];
};

ABI_STATIC_ASSERT(sizeof(struct path_key) == 44, "no padding in a key");
ABI_STATIC_ASSERT(sizeof(struct flow_path) == 16, "no padding in a value");
ABI_STATIC_ASSERT(sizeof(struct kept_path) == 64, "one cache line");
