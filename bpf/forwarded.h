/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Packets that the host stack has forwarded lately. conntrack counts a reply before the host's rules for forwarded
 * packets, and before those on sources: that it knows both directions does not say that both were let through.
 */
#pragma once

#include "bpf/nf_conn.h"
#include "bpf/packet.h"

/* After that a packet on the slow path has to show it again. */
#define FORWARDED_NS 1000000000ULL

static __always_inline struct forwarded *find_forwarded(const struct flow_key *key)
{
	struct forwarded *last = map_find(&forwarded_v2, key);

	return last && last->check == flow_check(key) ? last : 0;
}

/*
 * Whether the host's rules let packets of this tuple through, as it is when they leave, that came by this interface:
 * others may have forged them.
 */
static __always_inline bool was_forwarded(const struct flow_key *key, __u64 now, __u32 came_by)
{
	struct forwarded *last = find_forwarded(key);

	return last && now - last->at_ns < FORWARDED_NS && last->came_by == came_by;
}

/* The flow in the scratch area as it is after its translation. */
static __always_inline struct flow_key *find_translated_key(struct flow_scratch *work)
{
	struct flow_key *left = &work->other;

	left->source = work->flow.source;
	left->destination = work->flow.destination;
	left->source_port = work->flow.source_port;
	left->destination_port = work->flow.destination_port;
	left->protocol = work->key.protocol;
	return left;
}

/* Of an ICMP error, the key is that of the flow which it quotes. */
static __always_inline void set_key(const struct parsed *p, struct flow_key *key, enum direction from)
{
	key->source = from == FROM_POD ? p->flow.local : p->flow.peer;
	key->destination = from == FROM_POD ? p->flow.peer : p->flow.local;
	key->source_port = from == FROM_POD ? p->flow.local_port : p->flow.peer_port;
	key->destination_port = from == FROM_POD ? p->flow.peer_port : p->flow.local_port;
	key->protocol = p->flow.protocol;
}

/* The last bits of at_ns, which needs none so fine, say by which interface the packet left. */
#define LEFT_BY_MASK 0xffffULL

static __always_inline bool has_left_by(const struct forwarded *last, __u32 ifindex)
{
	return ((last->at_ns ^ ifindex) & LEFT_BY_MASK) == 0;
}

static __always_inline void forget_untracked(const struct flow_key *key)
{
	struct flow *known = map_find(&flows_v2, key);

	if (known && known->flags & FLOW_UNTRACKED)
		map_remove(&flows_v2, key);
}

/*
 * A packet that conntrack counts as no connection's, as with a wrong checksum, or as another zone's, shows of none that
 * the host's rules let it through: it leaves as it came, with the addresses of another one's translation if its sender
 * forges them.
 */
static __always_inline bool is_of_no_connection(struct __sk_buff *skb)
{
	unsigned long entry = entry_of(skb);

	return can_read_kernel && (!entry || zone_of(entry));
}

/*
 * A packet that leaves the host stack. Packets of the node itself have come by no interface. If conntrack did not know
 * the flow when its entries were made, it does now, and may translate the replies.
 */
static __always_inline void note_forwarded(struct packet *p, enum direction from, bool first_is_direct)
{
	bool is_tcp_or_udp = p->ip->protocol == IPPROTO_TCP || p->ip->protocol == IPPROTO_UDP;
	struct forwarded *last, now = {.came_by = p->skb->ingress_ifindex};
	struct flow_key key = {}, other = {};

	if (!now.came_by || !p->in->has_flow || p->in->is_icmp_error || !is_tcp_or_udp ||
	    (has_conntrack && !tracing && is_of_no_connection(p->skb)))
		return;
	set_key(p->in, &key, from);
	if (first_is_direct) {
		reverse_key(&key, &other);
		forget_untracked(&key);
		forget_untracked(&other);
	}
	if (p->in->detour)
		return;
	now.at_ns = ((bpf_ktime_get_ns() - LEFT_BY_MASK) & ~LEFT_BY_MASK) | (p->skb->ifindex & LEFT_BY_MASK);
	now.check = flow_check(&key);
	now.window = p->in->window;
	last = map_find(&forwarded_v2, &key);
	if (last && !tracing)
		*last = now;
	else
		map_insert(&forwarded_v2, &key, &now, BPF_ANY);
}
