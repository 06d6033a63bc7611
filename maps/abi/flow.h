/* SPDX-License-Identifier: MIT */
/* flows: what conntrack says about each direction of a connection, so that the programs can repeat it. */
#pragma once

#include "types.h"

/* A packet as it arrives on a host-side veth or an uplink: the tuple by which conntrack knows this direction. */
struct flow_key {
	struct ip_addr source;
	struct ip_addr destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	__u8 reserved[3];
};

enum flow_flags {
	FLOW_TRANSLATED = 1 << 0, /* the tuple below is not the key's */
	FLOW_UNTRACKED = 1 << 1,  /* unknown to conntrack: on the fast path from its first packet on */
	FLOW_REPLY = 1 << 2,      /* the receiver opened the connection */
	FLOW_ALLOWED = 1 << 3,    /* isolation lets it through, as long as no change is counted */
};

/* Above the flags of a confirmed flow, what is kept of the hash that its sender gave its packets; 0: nothing. */
#define FLOW_HASH_SHIFT 4
#define FLOW_HASH (15U << FLOW_HASH_SHIFT)
#define FLOW_BY_HOST FLOW_HASH /* it has changed where it chooses a route: the host stack has the flow */

/*
 * Above these: watch.isolation_changes when it was allowed. Each query of conntrack writes the entry again, so that 24
 * bits do not come round.
 */
#define FLOW_CHANGES_SHIFT 8

/* The sequence numbers, from `ack` on, that a TCP endpoint last said that it accepts; and how far it has sent about. */
struct tcp_window {
	__u32 ack;
	__u16 size; /* as in the header, not scaled */
	__u16 sent; /* the upper half of its sequence number, and 1 in the lowest bit; 0: it has said nothing yet */
};

/* In confirmed_ns, whose last bit says nothing: conntrack has lost the entry, and the connection ends by the cache. */
#define FLOW_LOST 1ULL

/* The tuple of the same packet after the host's translation. Reversed, it is the key of the other direction. */
struct flow {
	__u64 confirmed_ns; /* CLOCK_MONOTONIC, when conntrack was last queried; FLOW_LOST */
	__u64 since_ns;     /* CLOCK_MONOTONIC, when the entry was inserted */
	struct ip_addr source;
	struct ip_addr destination;
	__be16 source_port;
	__be16 destination_port;
	__u32 flags;              /* enum flow_flags */
	__u32 ifindex;            /* host-side veth or uplink on which the flow was seen */
	__u32 check;              /* flow_check() of its key: an LRU hash may reuse an entry while a program reads it */
	struct tcp_window window; /* of the sender, in its last packet: for what comes from its peer */
};

static inline __u32 flow_check(const struct flow_key *key)
{
	return key->source.word[3] ^ (key->destination.word[3] << 1) ^ key->source.word[1] ^ key->destination.word[1] ^
	       ((__u32)key->source_port << 16 | key->destination_port) ^ (__u32)key->protocol << 8;
}

/* forwarded: of this tuple the host stack has forwarded a packet, as it was when it left. */
struct forwarded {
	__u64 at_ns;              /* CLOCK_MONOTONIC, the last one */
	__u32 came_by;            /* host-side veth or uplink by which it had come */
	__u32 check;              /* flow_check() of its key, as of a flow */
	struct tcp_window window; /* as of a flow */
};

ABI_STATIC_ASSERT(sizeof(struct flow_key) == 40, "no padding in a key");
ABI_STATIC_ASSERT(sizeof(struct flow) == 72, "no padding in a value");
ABI_STATIC_ASSERT(sizeof(struct forwarded) == 24, "no padding in a value");
