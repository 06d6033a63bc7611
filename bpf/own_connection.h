/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Connections of the node itself, of which nothing is forwarded or cached: their packets need no query each. */
#pragma once

#include "bpf/conntrack.h"

#define OWN_SLOTS_BITS 9

/* As a packet comes to the host stack, by this interface. Two connections that share a slot cost queries. */
struct own_connection {
	struct flow_key key;
	__u32 ifindex;
	__u32 mark;  /* own_mark() of the key; 0: it leads elsewhere, as far as the routes say */
	__u64 at_ns; /* when they were queried */
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
	struct own_connection *slot = find_own_slot(key);

	slot->mark = 0;
	slot->at_ns = 0;
}

/* The flow in the scratch area. A global function: the verifier checks it once. */
__attribute__((noinline)) int is_own_connection(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	struct own_connection *slot;

	if (!work)
		return 0;
	slot = find_own_slot(&work->key);
	return slot->mark == own_mark(&work->key) && bpf_ktime_get_ns() - slot->at_ns < FORWARDED_NS &&
	       is_in_slot(slot, &work->key, skb->ifindex);
}

static __always_inline bool ends_here(struct __sk_buff *skb, struct flow_scratch *work)
{
	struct bpf_fib_lookup fib = {.ifindex = skb->ifindex, .l4_protocol = work->key.protocol};

	fib.sport = work->key.source_port;
	fib.dport = work->flow.destination_port;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		fib.family = AF_INET;
		fib.ipv4_src = work->key.source.word[3];
		fib.ipv4_dst = work->flow.destination.word[3];
	} else {
		fib.family = AF_INET6;
		__builtin_memcpy(fib.ipv6_src, &work->key.source, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, &work->flow.destination, sizeof(fib.ipv6_dst));
	}
	return bpf_fib_lookup(skb, &fib, sizeof(fib), 0) == BPF_FIB_LKUP_RET_NOT_FWDED;
}

/*
 * Records whether the flow in the scratch area, of which the host has forwarded nothing, ends at an address of the
 * node, or nowhere. A mark that leads it elsewhere is unknown here: then it stays on the slow path so long. A global
 * function: the verifier checks it once.
 */
__attribute__((noinline)) int note_own_connection(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	struct own_connection *slot;
	__u64 now;

	if (!work || tracing)
		return 0;
	now = bpf_ktime_get_ns();
	slot = find_own_slot(&work->key);
	if (now - slot->at_ns < FORWARDED_NS && is_in_slot(slot, &work->key, skb->ifindex))
		return 0;
	slot->mark = 0;
	slot->key = work->key;
	slot->ifindex = skb->ifindex;
	slot->at_ns = now;
	if (ends_here(skb, work))
		slot->mark = own_mark(&work->key);
	return 0;
}
