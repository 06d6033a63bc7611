/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The flow cache: repeats on the fast path what the host's rules and conntrack decided about a connection. */
#pragma once

#include "bpf/conntrack.h"
#include "bpf/forwarded.h"
#include "bpf/tables.h"

/* An entry that is older is confirmed by conntrack before it is used again. Set by the loader. */
const volatile __u64 confirm_ns = 1000000000;

/* Both directions. */
static __always_inline void forget_flow(struct flow_scratch *work)
{
	struct flow_key *other = &work->other;

	other->source = work->flow.destination;
	other->destination = work->flow.source;
	other->source_port = work->flow.destination_port;
	other->destination_port = work->flow.source_port;
	other->protocol = work->key.protocol;
	map_remove(&flows_v1, &work->key);
	map_remove(&flows_v1, other);
}

static __always_inline bool is_translated(const struct flow_key *key, const struct flow *flow)
{
	return key->source_port != flow->source_port || key->destination_port != flow->destination_port ||
	       !same_addr(&key->source, &flow->source) || !same_addr(&key->destination, &flow->destination);
}

static __always_inline int result_of(const struct flow *flow)
{
	return flow->flags & FLOW_TRANSLATED ? FOLLOW_CONFIRMED | FOLLOW_TRANSLATED : FOLLOW_CONFIRMED;
}

/* As the packet is, for connections that take the slow path. */
static __always_inline int leave_as_is(struct flow_scratch *work, int result)
{
	work->flow.source = work->key.source;
	work->flow.destination = work->key.destination;
	work->flow.destination_port = work->key.destination_port;
	return result;
}

/* Whether both the connection and, of a flow that is not cached, its direction were let through. */
static __always_inline bool is_let_through(struct __sk_buff *skb, struct flow_scratch *work, __u64 now, __u32 uplink,
					   bool is_cached)
{
	struct flow_key *left = &work->other;

	if (!query_conntrack(skb, work))
		return false;
	if (is_cached)
		return true;
	left->source = work->flow.source;
	left->destination = work->flow.destination;
	left->source_port = work->flow.source_port;
	left->destination_port = work->flow.destination_port;
	left->protocol = work->key.protocol;
	return was_forwarded(left, now, uplink);
}

static __always_inline int learn_flow(struct __sk_buff *skb, struct flow_scratch *work, __u64 now, __u32 uplink,
				      bool is_cached)
{
	struct flow *flow = &work->flow;

	if (!is_let_through(skb, work, now, uplink, is_cached))
		return leave_as_is(work, 0);
	flow->confirmed_ns = now;
	flow->flags = is_translated(&work->key, flow) ? FLOW_TRANSLATED : 0;
	flow->ifindex = skb->ifindex;
	flow->check = flow_check(&work->key);
	return map_insert(&flows_v1, &work->key, flow, BPF_ANY) ? leave_as_is(work, 0) : result_of(flow);
}

/*
 * Looks up the flow whose key is in the scratch area, and leaves its translation there. Packets that open or close a
 * connection take the slow path, so that conntrack follows its states; the entries of both directions go with them.
 * A global function: the verifier checks it once.
 */
__attribute__((noinline)) int follow(struct __sk_buff *skb, __u32 changes_state, __u32 uplink)
{
	__u32 only = 0;
	struct flow_scratch *work = bpf_map_lookup_elem(&scratch, &only);
	struct flow *known;
	bool is_cached;
	__u64 now;
	int result;

	/* Verified on its own: without the kernel functions nothing that calls them may be left. */
	if (!has_conntrack || !work)
		return 0;
	now = bpf_ktime_get_ns();
	known = map_find(&flows_v1, &work->key);
	if (!known) {
		work->flow.since_ns = now;
		return changes_state ? leave_as_is(work, 0) : learn_flow(skb, work, now, uplink, false);
	}
	work->flow = *known;
	if (work->flow.check != flow_check(&work->key))
		return leave_as_is(work, 0);
	if (changes_state) {
		forget_flow(work);
		return leave_as_is(work, FOLLOW_FORGOTTEN);
	}
	is_cached = !uplink || work->flow.ifindex == uplink;
	if (is_cached && now - work->flow.confirmed_ns < confirm_ns)
		return result_of(&work->flow);
	result = learn_flow(skb, work, now, uplink, is_cached);
	if (!result && is_cached)
		map_remove(&flows_v1, &work->key);
	return result;
}

static __always_inline int follow_flow(struct packet *p, enum direction from)
{
	__u32 only = 0;
	struct flow_scratch *work;

	if (!has_conntrack || p->detour || !p->has_flow || p->is_icmp_error ||
	    (p->ip.protocol != IPPROTO_TCP && p->ip.protocol != IPPROTO_UDP))
		return 0;
	work = bpf_map_lookup_elem(&scratch, &only);
	if (!work)
		return 0;
	set_key(p, &work->key, from);
	p->follow = follow(p->skb, p->changes_state, from == TO_POD ? p->skb->ifindex : 0);
	p->ip.destination = work->flow.destination;
	p->new_destination_port = work->flow.destination_port;
	return p->follow & FOLLOW_FORGOTTEN ? REASON_HOST_PATH : 0;
}
