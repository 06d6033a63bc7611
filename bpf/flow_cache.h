/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The flow cache: repeats on the fast path what the host's rules and conntrack decided about a connection. */
#pragma once

#include "bpf/conntrack.h"
#include "bpf/direct.h"
#include "bpf/fib.h"
#include "bpf/forwarded.h"
#include "bpf/own_connection.h"
#include "bpf/tables.h"

/* So many times confirm_ns a peer may be silent while it is sent to. */
#define SILENT_CONFIRMATIONS 10

/* Of the flow in the scratch area: the key of the other direction. */
static __always_inline struct flow_key *find_other_key(struct flow_scratch *work)
{
	struct flow_key *other = &work->other;

	other->source = work->flow.destination;
	other->destination = work->flow.source;
	other->source_port = work->flow.destination_port;
	other->destination_port = work->flow.source_port;
	other->protocol = work->key.protocol;
	return other;
}

/* Both directions. */
static __always_inline void forget_flow(struct flow_scratch *work)
{
	map_remove(&flows_v2, find_other_key(work));
	map_remove(&flows_v2, &work->key);
}

/*
 * A packet in the scratch area that opens a TCP connection: conntrack makes a new entry of it. That the host's rules
 * let the other direction through was known of an earlier connection with the same addresses and ports. The key of that
 * direction is exact before a translation if an entry says so, and behind it always. A global function: the verifier
 * checks it once.
 */
__attribute__((noinline)) int forget_earlier(struct __sk_buff *skb, __u32 from)
{
	struct flow_scratch *work = find_scratch();
	struct flow *known;

	if (!work || !skb)
		return 0;
	set_key(&work->parsed, &work->key, from);
	known = map_find(&flows_v2, &work->key);
	if (known) {
		work->flow = *known;
		if (work->flow.check == flow_check(&work->key))
			map_remove(&flows_v2, find_other_key(work));
	}
	reverse_key(&work->key, &work->other);
	map_remove(&flows_v2, &work->other);
	map_remove(&forwarded_v2, &work->other);
	forget_own_connection(&work->key);
	forget_own_connection(&work->other);
	return 0;
}

static __always_inline int notice_opening(struct packet *p, enum direction from)
{
	if (!tracing && has_conntrack && (p->in->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && p->in->has_flow &&
	    !p->in->is_icmp_error)
		forget_earlier(p->skb, from);
	return 0;
}

static __always_inline bool is_translated(const struct flow_key *key, const struct flow *flow)
{
	return key->source_port != flow->source_port || key->destination_port != flow->destination_port ||
	       !same_addr(&key->source, &flow->source) || !same_addr(&key->destination, &flow->destination);
}

/* Whether isolation let the flow through by this interface, and nothing has changed since. */
static __always_inline int result_of_isolation(const struct flow *flow, __u32 ifindex)
{
	struct watch *watch;

	if (!(flow->flags & FLOW_ALLOWED) || flow->ifindex != ifindex)
		return 0;
	watch = find_watch();
	return watch && (flow->flags ^ watch->isolation_changes << FLOW_CHANGES_SHIFT) >> FLOW_CHANGES_SHIFT == 0
		       ? FOLLOW_ALLOWED
		       : 0;
}

static __always_inline int result_of(struct flow *flow, __u32 ifindex)
{
	if (flow->flags & FLOW_UNTRACKED)
		return FOLLOW_UNTRACKED;
	/* Without branches: the verifier walks what follows once for each. */
	return FOLLOW_CONFIRMED | (flow->flags & FLOW_TRANSLATED) * (FOLLOW_TRANSLATED / FLOW_TRANSLATED) |
	       (flow->flags & FLOW_REPLY) * (FOLLOW_REPLY / FLOW_REPLY) | result_of_isolation(flow, ifindex);
}

/* As the packet is, for connections that take the slow path. */
static __always_inline int leave_as_is(struct flow_scratch *work, int result)
{
	work->flow.source = work->key.source;
	work->flow.destination = work->key.destination;
	work->flow.source_port = work->key.source_port;
	work->flow.destination_port = work->key.destination_port;
	return result;
}

/*
 * Whether this direction of a TCP connection, whose entry is in the scratch area, was in use when the other one had
 * long been silent. When that one is heard again, it queries conntrack, or takes the slow path (see keep_connection.h).
 */
static __always_inline bool is_peer_silent(struct flow_scratch *work)
{
	const __u64 long_ns = SILENT_CONFIRMATIONS * confirm_ns;
	const struct forwarded *heard;
	const struct flow *other;

	if (work->key.protocol != IPPROTO_TCP)
		return false;
	other = map_find(&flows_v2, find_other_key(work));
	if (!other || other->check != flow_check(&work->other) ||
	    other->confirmed_ns + long_ns >= work->flow.confirmed_ns)
		return false;
	reverse_key(&work->key, &work->other);
	heard = find_forwarded(&work->other);
	return !heard || heard->at_ns + long_ns < work->flow.confirmed_ns;
}

/*
 * Of UDP, which has no window, the age that conntrack's entry had is in its place. Another entry of the same addresses
 * and ports says nothing about what the host's rules let through now; conntrack counts even packets that they drop.
 */
static __always_inline bool is_same_connection(const struct flow_scratch *work)
{
	return work->origin && (work->key.protocol == IPPROTO_TCP || work->origin == work->flow.window.ack);
}

/* In the place of FLOW_HASH: 1 to 14, or 0 if nobody has hashed the packet. */
static __always_inline __u32 hash_of(struct __sk_buff *skb)
{
	return skb->hash ? (1 + skb->hash % 14) << FLOW_HASH_SHIFT : 0;
}

/*
 * Whether the last packet of the flow in the scratch area, which a pod sends to another one, went to a third one: the
 * host's rules on packet marks, which a program's query of the routes does not know, lead to a proxy there. A global
 * function: the verifier checks it once.
 */
__attribute__((noinline)) int has_left_elsewhere(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct flow_scratch *work = find_scratch();
	struct interface *sender = bpf_map_lookup_elem(&interfaces_v1, &ifindex);
	struct address_key key = {};
	struct forwarded *last;
	struct address *owner;

	if (!work || !sender)
		return 0;
	key.network = sender->network;
	key.addr = work->flow.destination;
	owner = bpf_map_lookup_elem(&addresses_v1, &key);
	last = owner ? find_forwarded(find_translated_key(work)) : 0;
	return last && !has_left_by(last, owner->ifindex);
}

/*
 * Queries conntrack and caches what it says. A packet that changes the state of a known connection is the host's.
 */
static __always_inline int learn_flow(struct __sk_buff *skb, struct flow_scratch *work, __u64 now, __u32 how,
				      bool is_cached)
{
	struct flow *flow = &work->flow;
	bool is_confirmed = is_cached && !(flow->flags & FLOW_UNTRACKED);
	__u32 hash = is_confirmed ? flow->flags & FLOW_HASH : hash_of(skb);
	int verdict;

	if (is_confirmed)
		how |= is_peer_silent(work) ? IS_CACHED | PEER_IS_SILENT : IS_CACHED;
	verdict = query_conntrack(skb, work, how);
	if (verdict == FOLLOW_CONFIRMED && is_cached)
		is_cached = is_same_connection(work);
	if (verdict == FOLLOW_CONFIRMED && how & (TCP_FIN | TCP_SYN | TCP_RST | READ_ONLY))
		verdict = 0;
	if (verdict == FOLLOW_CONFIRMED && !is_cached) {
		if (!was_forwarded(find_translated_key(work), now, skb->ifindex))
			verdict = note_own_connection(skb);
		else if (has_left_elsewhere(skb))
			verdict = 0;
	}
	if (verdict != FOLLOW_CONFIRMED)
		leave_as_is(work, 0);
	if (!verdict || how & READ_ONLY)
		return verdict;
	flow->confirmed_ns = now & ~FLOW_LOST;
	if (!is_cached)
		flow->since_ns = now;
	flow->flags = verdict == FOLLOW_UNTRACKED ? FLOW_UNTRACKED : hash;
	if (verdict == FOLLOW_CONFIRMED && is_translated(&work->key, flow))
		flow->flags |= FLOW_TRANSLATED;
	if (verdict == FOLLOW_CONFIRMED && work->opts.dir)
		flow->flags |= FLOW_REPLY;
	flow->ifindex = skb->ifindex;
	flow->check = flow_check(&work->key);
	flow->window = work->parsed.window;
	if (work->key.protocol == IPPROTO_UDP)
		flow->window.ack = work->origin;
	if (map_insert(&flows_v2, &work->key, flow, BPF_ANY))
		return leave_as_is(work, 0);
	if (verdict == FOLLOW_UNTRACKED)
		return verdict | FOLLOW_NEW;
	return result_of(flow, skb->ifindex) | FOLLOW_QUERIED | is_cached * FOLLOW_RENEWED;
}

/* Whether the entry in the scratch area holds for a packet without another query. */
static __always_inline bool holds(const struct flow *flow, __u64 now, __u32 how)
{
	if (now - flow->confirmed_ns >= confirm_ns)
		return false;
	return !(flow->flags & FLOW_UNTRACKED) || (how & (MAY_BE_UNTRACKED | TCP_SYN)) == MAY_BE_UNTRACKED;
}

/*
 * Whether an end of the flow in the scratch area, of which conntrack has no entry, goes where the packets before it
 * went. Its acknowledgements do as well, but only so long, and no data: conntrack's entry may have been deleted to end
 * the connection.
 */
static __always_inline bool may_end(struct flow_scratch *work, struct flow *known, __u64 now)
{
	__u64 age_ns = now - known->confirmed_ns;
	struct flow *other;

	if (known->flags & FLOW_UNTRACKED)
		return false;
	if (known->confirmed_ns & FLOW_LOST || tracing)
		return age_ns < confirm_ns;
	if (age_ns >= 2 * confirm_ns)
		return false;
	known->confirmed_ns = now | FLOW_LOST;
	other = map_find(&flows_v2, find_other_key(work));
	if (other && other->check == flow_check(&work->other))
		other->confirmed_ns = known->confirmed_ns;
	return true;
}

/* An end that arrives by an uplink. */
static __always_inline int follow_lost(struct __sk_buff *skb, struct flow_scratch *work)
{
	struct flow *known = work->opts.error == -ENOENT ? map_find(&flows_v2, &work->key) : 0;

	if (!known || known->check != flow_check(&work->key) || known->ifindex != skb->ifindex)
		return leave_as_is(work, 0);
	work->flow = *known;
	return may_end(work, known, bpf_ktime_get_ns()) ? result_of(&work->flow, skb->ifindex) : leave_as_is(work, 0);
}

/* Of a packet of TCP: it has no data. */
static __always_inline bool is_empty(struct __sk_buff *skb, const struct parsed *p)
{
	return p->header_bytes && ip_end(skb) == sizeof(struct ethhdr) + p->header_bytes;
}

/* The window of the sender, for judge_end(). UDP has no window. */
static __always_inline void note_window(struct flow *known, struct flow_scratch *work)
{
	const struct tcp_window *window = &work->parsed.window;

	if (window->sent && !tracing)
		known->window = *window;
}

/*
 * Looks up the flow whose key is in the scratch area, and leaves its translation there. Packets that open or close a
 * connection take the slow path, so that conntrack follows its states; the entries of both directions go with them. An
 * end of a connection whose entry is lost, and what acknowledges it, go where the packets before it went. A global
 * function: the verifier checks it once.
 */
__attribute__((noinline)) int follow(struct __sk_buff *skb, __u32 how)
{
	struct flow_scratch *work = find_scratch();
	bool changes_state = how & (TCP_FIN | TCP_SYN | TCP_RST);
	struct flow *known;
	bool is_cached = false;
	__u64 now;
	int result;

	/* Verified on its own: without the kernel functions nothing that calls them may be left. */
	if (!has_conntrack || !work)
		return 0;
	now = bpf_ktime_get_ns();
	known = map_find(&flows_v2, &work->key);
	if (known) {
		work->flow = *known;
		if (work->flow.check != flow_check(&work->key))
			return leave_as_is(work, 0);
		is_cached = work->flow.ifindex == skb->ifindex;
		if (changes_state && !(work->flow.flags & FLOW_UNTRACKED)) {
			if (is_cached && !(how & TCP_SYN) && is_lost(skb, work) && may_end(work, known, now))
				return result_of(&work->flow, skb->ifindex);
			forget_flow(work);
			return leave_as_is(work, FOLLOW_FORGOTTEN);
		}
		if (work->flow.confirmed_ns & FLOW_LOST && now - work->flow.confirmed_ns < confirm_ns &&
		    !is_empty(skb, &work->parsed))
			return leave_as_is(work, 0);
		if (is_cached && holds(&work->flow, now, how)) {
			note_window(known, work);
			return result_of(&work->flow, skb->ifindex);
		}
	} else if (changes_state ? !(how & MAY_BE_UNTRACKED) : is_own_connection(skb)) {
		return leave_as_is(work, 0);
	}
	result = learn_flow(skb, work, now, how, is_cached);
	if (!result && is_cached)
		map_remove(&flows_v2, &work->key);
	return result;
}

static __always_inline void forget_key(void)
{
	struct flow_scratch *work = find_scratch();

	if (work)
		map_remove(&flows_v2, &work->key);
}

/* The kernel's lookup takes no other protocols. */
static __always_inline bool can_be_queried(struct packet *p)
{
	return has_conntrack && !p->in->detour && p->in->has_flow &&
	       (p->in->flow.protocol == IPPROTO_TCP || p->in->flow.protocol == IPPROTO_UDP);
}

/* The packet goes where the translation in the scratch area leads. */
static __always_inline int take_destination(struct packet *p)
{
	const struct flow_scratch *work = p->work;

	p->ip->destination = work->flow.destination;
	p->new_destination_port = work->flow.destination_port;
	return p->follow & FOLLOW_FORGOTTEN ? REASON_HOST_PATH : 0;
}

/* With one packet of each query; a flow that conntrack does not know is queried as often. */
static __always_inline int check_destination(struct packet *p)
{
	if (!(p->follow & (FOLLOW_QUERIED | FOLLOW_NEW)) || leads_to_receiver(p))
		return 0;
	forget_key();
	return REASON_HOST_NO_ROUTE;
}

static __always_inline int follow_flow(struct packet *p, enum direction from, bool first_is_direct)
{
	__u32 how = 0;

	if (!can_be_queried(p))
		return 0;
	set_key(p->in, &p->work->key, from);
	if (from == FROM_POD && first_is_direct)
		how = may_be_untracked(p->skb, p->network);
	if (p->in->is_icmp_error) {
		if (how && same_addr(&p->ip->source, &p->in->flow.local))
			p->follow = follow(p->skb, how | READ_ONLY) & FOLLOW_UNTRACKED;
		return 0;
	}
	/* Egress routes carry connections that conntrack does not know. */
	if (!how && from == FROM_POD && p->interface->flags & INTERFACE_EGRESS_ROUTE)
		return 0;
	p->follow = follow(p->skb, how | p->in->tcp_flags);
	return take_destination(p);
}
