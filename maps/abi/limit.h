/* limit_state, exempt: what the limiter remembers of a limit, and whom a limit does not concern. */
#pragma once

#include "types.h"

#ifndef __VMLINUX_H__
#include <linux/bpf.h>
#endif

/* Seen from the pod. */
enum limit_direction {
	LIMIT_INGRESS = 0,
	LIMIT_EGRESS = 1,
};

struct limit_key {
	__u32 ifindex;   /* the endpoint's host-side veth */
	__u32 direction; /* enum limit_direction */
};

/* Flows are told apart by that many places of their hash. */
#define LIMIT_PLACES 32

/* Times are CLOCK_MONOTONIC. What the programs change under the lock others may read torn, and only to show it. */
struct limit_state {
	struct bpf_spin_lock lock;
	__u32 epoch;             /* counts the seconds in which flows are counted */
	__u64 epoch_since_ns;    /* when the current one began */
	__u64 free_at_ns;        /* when all that was let through would have left at the rate */
	__u64 large_at_ns;       /* when a frame that is not small was let through last */
	__u64 small_free_at_ns;  /* the same of small frames alone, at a sixteenth of the rate */
	__u64 remainder;         /* of the last division by the rate, so that nothing is lost */
	__u64 window_since_ns;   /* when the current measurement began */
	__u64 window_charged_ns; /* time at the rate of what was let through in it */
	__u64 fair_bytes_per_s;  /* one flow's share as measured */
	__u64 paced_bytes_per_s; /* what a flow is to send at now: the share, less while the bucket is being drained */
	__u32 flows;             /* paced TCP flows that were active in the last whole epoch */
	__u32 flows_seen;        /* the same in the current one; added to without the lock */
	__u64 bytes, packets;    /* let through, on the wire: each segment of a GSO packet with its headers */
	__u64 paced;             /* times a rate was announced to a TCP sender; added to without the lock */
	__u64 delayed;           /* packets given a later earliest departure time */
	__u64 marked;            /* packets marked as having met congestion (RFC 3168) */
	__u64 dropped, dropped_bytes;
	__u64 departures[LIMIT_PLACES]; /* until then a flow of the place is busy */
};

/* Longest prefix of the other side's address: whether it is shaped. */
struct exempt_key {
	__u32 prefixlen; /* bits of the three fields below */
	__be32 ifindex;
	__be32 direction; /* enum limit_direction */
	struct ip_addr addr;
};

ABI_STATIC_ASSERT(sizeof(struct limit_key) == 8, "no padding in a key");
ABI_STATIC_ASSERT(sizeof(struct limit_state) == 400, "no padding in a value");
ABI_STATIC_ASSERT(sizeof(struct exempt_key) == 28, "no padding in a key");
