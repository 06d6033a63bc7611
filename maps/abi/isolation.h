/* SPDX-License-Identifier: MIT */
/*
 * isolation: an endpoint's groups, and whom it lets in. Key: ifindex of the host-side veth (host order). Entry 0
 * belongs to no interface: its groups hold the secret that names are hashed with.
 */
#pragma once

#include "types.h"

#define ISOLATION_GROUPS 8    /* that a container is a member of */
#define ISOLATION_ACCEPTED 24 /* its own, and those that at most 16 pairs of `allow` add */

enum isolation_flags {
	ISOLATION_HOST = 1 << 0,    /* the node may open connections to the endpoint */
	ISOLATION_OUTSIDE = 1 << 1, /* so may whoever is neither the node nor a known pod */
};

/* Written by ADD, DEL and podlanectl; read for packets to isolated endpoints. Endpoints without groups have none. */
struct isolation {
	__u64 since_ns; /* CLOCK_MONOTONIC, of the last change: flows that were cached before it do not count */
	__u32 flags;    /* enum isolation_flags */
	__u32 reserved;
	__u64 groups[ISOLATION_GROUPS];     /* keyed hashes of names, never 0; unused ones are 0, at the end */
	__u64 accepted[ISOLATION_ACCEPTED]; /* groups whose members may open connections to the endpoint */
};

ABI_STATIC_ASSERT(sizeof(struct isolation) == 272, "no padding in a value");
