/* SPDX-License-Identifier: MIT */
/* limit_state, limit_groups, exempt: the state of a limit, pods that share one, and prefixes that it does not apply
 * to. */
#pragma once

#include "bandwidth.h"
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
	__u32 ifindex;   /* the endpoint's host-side veth, or the number of a group */
	__u32 direction; /* enum limit_direction */
};

/* Groups have numbers that no interface has; with these they have their limits beside those of endpoints. */
#define LIMIT_GROUP 0x80000000U
#define LIMIT_GROUP_NAME_SIZE 64

/* Handle ("PL") of the qdisc that holds packets to a limited endpoint, and the class of its `htb` for those that wait.
 * They have it as their priority, of whose last 4 bits `fq` makes a band (since 6.7): 0 as for others. */
#define LIMIT_QDISC 0x504c0000U
#define LIMIT_CLASS (LIMIT_QDISC | 0x10)

/* Flows that are not paced are distinguished by this many buckets of their hash: whether one is under way, ... */
#define LIMIT_BUCKETS 32
/* ... and what it took of the rate. With more of these a node with 256 CPUs would need more than 64 MiB. */
#define LIMIT_PARTS 16
/* Flows leave the share in one of so many slots of 2^LIMIT_SLOT_SHIFT ns (17 ms). */
#define LIMIT_SLOTS 64
#define LIMIT_SLOT_SHIFT 24

/* A rate and a burst, as the programs need them. */
struct limit {
	__u64 rate_bits_per_s;
	__u64 horizon_ns; /* backlog beyond which packets are dropped */
	__u64 target_ns;  /* backlog that senders are steered to */
	__u64 frame_ns;   /* a full frame at the rate */
};

/* A flow's part in one limit, in the memory of its sender; a pod's part in its group's. */
struct flow_share {
	__u32 rate;     /* bytes per second announced to it last */
	__u32 slot;     /* it leaves then, and ... */
	__u32 weight;   /* ... until then it weighs this */
	__u32 taken;    /* part of its share it took, as measured last, in 1/ONE */
	__u64 at_ns;    /* when its weight was determined last */
	__u64 since_ns; /* when the current measurement began, ... */
	__u64 acked;    /* ... how many bytes were acknowledged then, ... */
	__u64 allowed;  /* ... and how many it could have sent since */
};

/* Times are CLOCK_MONOTONIC. The programs write it under the lock; readers without it may see a torn value. */
struct limit_state {
	struct bpf_spin_lock lock;
	__u32 flows;                /* paced flows with a demand, by weight and rounded */
	__u64 free_at_ns;           /* when all that was let through would have left at the rate */
	__u64 large_at_ns;          /* when a frame that is not small was let through last */
	__u64 small_free_at_ns;     /* the same of small frames alone, at a sixteenth of the rate */
	__u64 remainder;            /* of the last division by the rate, so that nothing is lost */
	__u64 window_since_ns;      /* when the current measurement began */
	__u64 window_charged_ns;    /* time at the rate of what was let through in it */
	__u64 window_other_ns;      /* the same of what is not paced */
	__u64 other_bytes_per_s;    /* rate of what is not paced, as measured */
	__u64 fair_bytes_per_s;     /* one flow's share */
	__u64 paced_bytes_per_s;    /* announced last: the share, less while the bucket drains */
	__u64 coming_bits_per_s;    /* a lower rate, announced but not enforced yet; 0: none */
	__u64 gain;                 /* corrects the share, in 1/1024; 0: 1 */
	__u32 weight;               /* demand of the paced flows: 1024 for one that takes its whole share */
	__u32 slot;                 /* flows that leave until then have left */
	__u32 leaving[LIMIT_SLOTS]; /* weight that leaves in a slot, unless it is renewed before */
	__u64 bytes, packets;       /* let through, on the wire: each segment of a GSO packet with its headers */
	__u64 paced;                /* times a rate was announced to a TCP sender; added to without the lock */
	__u64 delayed;              /* packets given a later earliest departure time */
	__u64 marked;               /* packets marked as having met congestion (RFC 3168) */
	__u64 dropped, dropped_bytes;
	__u64 departures[LIMIT_BUCKETS]; /* until then a flow of the bucket is busy */
	struct limit limit;              /* in effect: computed of these two, or the group's share of it */
	__u64 given_bits_per_s, given_burst_bits;
	__u32 group;              /* number of the group that the pod is in; 0: none */
	__u32 pause_us;           /* how long a sender with more to send may be silent, as announced last */
	struct flow_share share;  /* the pod's part in the group's limit; `acked`: `bytes` then */
	__u64 reported;           /* of `bytes`, those charged to the group */
	__u64 round_trip_ns;      /* of the paced flows, smoothed */
	__u64 parts[LIMIT_PARTS]; /* when a flow of the bucket would have sent all at its part of the rate */
};

/* A limit that pods of a network share. Its rates now are beside those of endpoints, by its number. */
struct limit_group {
	__u32 network; /* network_id() */
	__u32 reserved;
	struct bandwidth configured; /* as the network's last configuration has it */
	char name[LIMIT_GROUP_NAME_SIZE];
};

/* Longest prefix of the other side's address: whether it is shaped. */
struct exempt_key {
	__u32 prefixlen; /* bits of the three fields below */
	__be32 ifindex;
	__be32 direction; /* enum limit_direction */
	struct ip_addr addr;
};

ABI_STATIC_ASSERT(sizeof(struct limit_key) == 8, "no padding in a key");
ABI_STATIC_ASSERT(sizeof(struct limit_state) == 680 + 120 + 8 * LIMIT_PARTS, "no padding in a value");
ABI_STATIC_ASSERT(sizeof(struct exempt_key) == 28, "no padding in a key");
