/* SPDX-License-Identifier: MIT */
/* networks: names, and how they leave the node. Key: network_id(name). Written and read by user space only. */
#pragma once

#include "endpoint.h"

#define NETWORK_UPLINKS_SIZE 256

struct network {
	char name[ENDPOINT_NETWORK_SIZE];
	char uplinks[NETWORK_UPLINKS_SIZE]; /* names and patterns, a space between them; none: the default routes' */
	__u8 has_uplinks;                   /* 0: none; 1: for its packets; 2: programs there only judge them */
	__u8 attach;                        /* enum endpoint_attach, how programs are attached to its uplinks */
	__u8 masquerade;                    /* a bit (enum endpoint_masquerade) for each program it was done with */
	__u8 reserved;
};

ABI_STATIC_ASSERT(sizeof(struct network) == 388, "no padding in a value");
