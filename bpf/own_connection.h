/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Connections that conntrack knows and of which the host forwards nothing: those of the node itself. Their packets need
 * no query each.
 */
#pragma once

#include "bpf/conntrack.h"

#define OWN_SLOTS_BITS 9
/* A packet has passed the host stack by then. */
#define OWN_PASSED_NS 10000000ULL

/* As a packet comes to the host stack, by this interface. Two connections that share a slot cost queries. */
struct own_connection {
	struct flow_key key;
	__u32 ifindex;
	__u32 sure; /* own_mark() of the key: it is the node's own, for FORWARDED_NS from at_ns on; 0: perhaps */
	__u64 at_ns;
};

static struct own_connection own_connections[1 << OWN_SLOTS_BITS];

static __always_inline struct own_connection *find_own_slot(const struct flow_key *key)
{
	return &own_connections[flow_check(key) * 0x9e3779b1U >> (32 - OWN_SLOTS_BITS)];
}

static __always_inline __u32 own_mark(const struct flow_key *key)
{
	return flow_check(key) | 1;
}

static __always_inline bool is_in_slot(const struct own_connection *slot, const struct flow_key *key, __u32 ifindex)
{
	return slot->ifindex == ifindex && slot->key.source_port == key->source_port &&
	       slot->key.destination_port == key->destination_port && slot->key.protocol == key->protocol &&
	       same_addr(&slot->key.source, &key->source) && same_addr(&slot->key.destination, &key->destination);
}

/* Another connection of the same addresses and ports begins. */
static __always_inline void forget_own_connection(const struct flow_key *key)
{
	find_own_slot(key)->sure = 0;
}

/* The flow in the scratch area. A global function: the verifier checks it once. */
__attribute__((noinline)) int is_own_connection(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	struct own_connection *slot;

	if (!work)
		return 0;
	slot = find_own_slot(&work->key);
	return slot->sure == own_mark(&work->key) && bpf_ktime_get_ns() - slot->at_ns < FORWARDED_NS &&
	       is_in_slot(slot, &work->key, skb->ifindex);
}

/*
 * The host has not forwarded the last packet of the flow in the scratch area. If it was to forward that, it has done so
 * 10 ms later. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int note_not_forwarded(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	__u64 now = bpf_ktime_get_ns(), age_ns;
	struct own_connection *slot;

	if (!work || tracing)
		return 0;
	slot = find_own_slot(&work->key);
	age_ns = now - slot->at_ns;
	if (slot->sure || age_ns >= FORWARDED_NS || !is_in_slot(slot, &work->key, skb->ifindex)) {
		slot->sure = 0;
		slot->key = work->key;
		slot->ifindex = skb->ifindex;
		slot->at_ns = now;
	} else if (age_ns >= OWN_PASSED_NS) {
		slot->at_ns = now;
		slot->sure = own_mark(&work->key);
	}
	return 0;
}
