/* SPDX-License-Identifier: MIT */
/* senders: which endpoint a TCP socket belongs to, or, for a socket of the node itself, talks to. Value: ifindex. */
#pragma once

#include "types.h"

/* The pod's namespace and own address; or the node's namespace and the pod's address. */
struct sender_key {
	__u32 netns; /* inode of the socket's network namespace */
	struct ip_addr addr;
};

ABI_STATIC_ASSERT(sizeof(struct sender_key) == 20, "no padding in a key");
