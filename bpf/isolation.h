/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Isolation: who may open a connection to an endpoint. to_pod decides about all that the host stack delivers. A local
 * sender is known by the interface that the packet came by, which nobody can forge; the kernel's own conntrack entry of
 * the packet says whether it is a reply. The programs on the fast path let pass what surely is allowed, and leave the
 * rest to to_pod.
 */
#pragma once

#include "bpf/conntrack.h"
#include "bpf/headers.h"
#include "bpf/tables.h"

#define INTERFACE_ISOLATED (INTERFACE_ISOLATED_GROUP | INTERFACE_ISOLATED_NETWORK)

/* Whether the entry accepts a group; 0 is none. */
static __always_inline bool accepts(const struct isolation *entry, __u64 group)
{
	for (int i = 0; i < ISOLATION_ACCEPTED; i++) {
		if (!entry->accepted[i])
			return false;
		if (entry->accepted[i] == group)
			return true;
	}
	return false;
}

/* A decision holds until the next change: counted before it is made. */
static __always_inline __u32 count_changes(void)
{
	struct watch *watch = find_watch();

	return watch ? watch->isolation_changes : 0;
}

#define ALLOWED_PAIRS 256

/*
 * The last pairs of which the receiver accepts a group of the sender. CPUs write at the same time: a pair counts if
 * both words are of it and of the number of changes.
 */
static volatile struct {
	__u64 pair; /* by ifindex: sender, receiver */
	__u64 check;
} allowed[ALLOWED_PAIRS];

static __always_inline __u64 pair_check(__u64 pair, __u32 changes)
{
	return pair ^ (changes + 1ULL) * 0x9e3779b97f4a7c15;
}

static __always_inline __u32 pair_slot(__u32 receiver, __u32 sender)
{
	return (sender * 31 + receiver) % ALLOWED_PAIRS;
}

static __always_inline void keep_pair(__u32 receiver, __u32 sender, __u32 changes)
{
	const __u64 pair = (__u64)sender << 32 | receiver;
	const __u32 slot = pair_slot(receiver, sender);

	if (tracing)
		return;
	allowed[slot].pair = pair;
	allowed[slot].check = pair_check(pair, changes);
}

/* By the entries of both, of which one may be lost. A global function: the verifier checks it once. */
__attribute__((noinline)) int find_shared_group(__u32 receiver, __u32 sender)
{
	const __u32 changes = count_changes();
	struct isolation *from = map_find(&isolation_v1, &sender);
	struct isolation *to = from || tracing ? map_find(&isolation_v1, &receiver) : 0;

	if (!from || !to)
		return 0;
	for (int i = 0; i < ISOLATION_GROUPS; i++) {
		if (!from->groups[i])
			return 0;
		if (accepts(to, from->groups[i])) {
			keep_pair(receiver, sender, changes);
			return 1;
		}
	}
	return 0;
}

/*
 * Whether the receiver accepts one of the sender's groups; only endpoints are in any. An entry of a receiver that is
 * lost lets nobody in.
 */
static __always_inline bool shares_group(__u32 receiver, __u32 sender)
{
	const __u64 pair = (__u64)sender << 32 | receiver;
	const __u32 slot = pair_slot(receiver, sender);

	if (!tracing && allowed[slot].pair == pair && allowed[slot].check == pair_check(pair, count_changes()) &&
	    map_find(&isolation_v1, &receiver))
		return true;
	return find_shared_group(receiver, sender);
}

/* Whether the endpoint accepts the pods that have this address on other nodes, or else what is outside. */
static __always_inline bool accepts_remote(struct packet *p, __u32 receiver, __u32 flags, const struct ip_addr *addr)
{
	struct allowed_source_key key = {.prefixlen = 160, .ifindex = bpf_htonl(receiver), .addr = *addr};
	struct isolation *entry = map_find(&isolation_v1, &receiver);
	__u32 known;

	if (!entry)
		return false;
	if (flags & INTERFACE_ISOLATED_NETWORK && in_cluster(p, addr))
		return true;
	known = prefix_value_for(map_find(&group_cidrs_v1, &key), addr);
	return known ? known & PREFIX_SET : entry->flags & ISOLATION_OUTSIDE;
}

/* Whether the endpoint lets in what came by this interface, but for members of its groups; 0 is the node itself. */
static __always_inline bool lets_in(struct packet *p, __u32 came_by, struct interface *sender)
{
	__u32 receiver = p->skb->ifindex;
	struct ip_addr source = p->ip->source;
	struct isolation *entry;
	__u32 owner;

	if (!came_by) {
		entry = map_find(&isolation_v1, &receiver);
		return entry && (entry->flags & ISOLATION_HOST || p->in->is_icmp_error);
	}
	if (!sender && read_former_source(p->skb))
		source = p->work->other.source;
	owner = sender ? 0 : find_owner_on_node(&source);
	if (owner)
		return p->interface->flags & INTERFACE_ISOLATED_GROUP && is_behind_bridge(owner) &&
		       !map_find(&uplinks_v2, &came_by) && shares_group(receiver, owner);
	/* Routers send errors: what counts is the other end of the connection that they are about. */
	if (!sender && p->in->is_icmp_error)
		return p->in->has_flow && ctinfo_of(p->skb) != CTINFO_NONE &&
		       accepts_remote(p, receiver, p->interface->flags, &p->in->flow.peer);
	if (!sender)
		return accepts_remote(p, receiver, p->interface->flags, &source);
	return p->interface->flags & INTERFACE_ISOLATED_NETWORK && sender->network == p->network;
}

/* Whether it belongs to a connection that the endpoint opened, and may still open. */
static __always_inline bool is_wanted_reply(struct packet *p, __u32 came_by, struct interface *sender)
{
	__u32 info = ctinfo_of(p->skb);

	if (info == CTINFO_RELATED_REPLY) {
		bool may_be_of_pod = sender || (!came_by && p->in->detour);

		/* A pod may answer with an error only for itself: it could name connections with others. What else is
		 * related are the node's resets in place of a peer that it rejects. */
		if (p->in->is_icmp_error
			    ? may_be_of_pod && !(p->in->has_flow && same_addr(&p->ip->source, &p->in->flow.peer))
			    : came_by || !(p->in->tcp_flags & TCP_RST))
			return false;
	} else if (info != CTINFO_ESTABLISHED_REPLY) {
		return false;
	}
	if (!sender || !(sender->flags & INTERFACE_ISOLATED))
		return true;
	if (sender->flags & INTERFACE_ISOLATED_NETWORK)
		return sender->network == p->network;
	return shares_group(came_by, p->skb->ifindex);
}

/*
 * A dropped packet opens no connection: to conntrack, which has seen it, what the endpoint sends to the same ports
 * would be a reply, and what comes back would be none. The entry is found by its replies' tuple, whatever headers the
 * packet has. The kernel's lookup takes TCP and UDP. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int end_refused(struct __sk_buff *skb)
{
	const unsigned long entry = entry_of(skb);
	struct nf_conn___podlane *ct = (void *)(entry & ~CTINFO_MASK);
	const struct nf_conntrack_tuple___podlane *reply = &ct->tuplehash[1].tuple;
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct flow_scratch *work = find_scratch();
	union nf_inet_addr___podlane from, to;
	struct flow_key *key;

	if (!has_conntrack || tracing || !work || (entry & CTINFO_MASK) != CTINFO_NEW)
		return 0;
	key = &work->key;
	if (bpf_probe_read_kernel(&from, sizeof(from), &reply->src.u3) ||
	    bpf_probe_read_kernel(&to, sizeof(to), &reply->dst.u3) ||
	    bpf_probe_read_kernel(&key->source_port, sizeof(key->source_port), &reply->src.u.all) ||
	    bpf_probe_read_kernel(&key->destination_port, sizeof(key->destination_port), &reply->dst.u.all) ||
	    bpf_probe_read_kernel(&key->protocol, sizeof(key->protocol), &reply->dst.protonum))
		return 0;
	key->source = ct_address(&from, is_ipv4);
	key->destination = ct_address(&to, is_ipv4);
	ct = find_connection(skb, work, key);
	if (!ct)
		return 0;
	if (work->opts.dir && !(ct->status & CT_SEEN_REPLY))
		bpf_ct_change_timeout(ct, 0);
	bpf_ct_release(ct);
	return 0;
}

/* Address resolution on the endpoint's own link. */
static __always_inline bool is_on_link_only(struct packet *p)
{
	if (p->in->protocol == ETH_P_ARP)
		return true;
	return p->in->protocol == ETH_P_IPV6 && p->ip->protocol == IPPROTO_ICMPV6 && p->in->hop_limit == 255 &&
	       (p->in->icmp_type == ND_NEIGHBOUR_SOLICITATION || p->in->icmp_type == ND_NEIGHBOUR_ADVERTISEMENT);
}

/* Fragments that Linux makes of IPv6 packets do not say where they came by. The node's own have a socket. */
static __always_inline bool is_from_unknown(struct packet *p)
{
	return !p->skb->ingress_ifindex && p->in->protocol == ETH_P_IPV6 && p->in->detour && !p->skb->sk;
}

/* Whether others of its connection may be let in. By its address, which lets nobody in here. */
static __always_inline bool may_be_of_accepted(struct packet *p)
{
	__u32 receiver = p->skb->ifindex, owner;
	struct ip_addr source = p->ip->source;

	if (!is_from_unknown(p))
		return false;
	if (read_former_source(p->skb))
		source = p->work->other.source;
	owner = find_owner_on_node(&source);
	if (owner)
		return p->interface->flags & INTERFACE_ISOLATED_NETWORK || shares_group(receiver, owner);
	return accepts_remote(p, receiver, p->interface->flags, &source);
}

static __always_inline bool may_arrive(struct packet *p)
{
	__u32 came_by = p->skb->ingress_ifindex;
	struct interface *sender = 0;

	if (!(p->interface->flags & INTERFACE_ISOLATED) || p->is_edt)
		return true;
	if (came_by == p->skb->ifindex || is_on_link_only(p))
		return true;
	/* First, before the interface it came by is looked up: most packets end here. */
	if (came_by && p->interface->flags & INTERFACE_ISOLATED_GROUP && shares_group(p->skb->ifindex, came_by))
		return true;
	if (is_from_unknown(p))
		return is_wanted_reply(p, 0, 0);
	if (came_by)
		sender = map_find(&interfaces_v1, &came_by);
	return lets_in(p, came_by, sender) || is_wanted_reply(p, came_by, sender);
}

/* Packets that the host stack delivers. */
static __always_inline int check_arriving(struct packet *p)
{
	if (may_arrive(p))
		return 0;
	if (!may_be_of_accepted(p))
		end_refused(p->skb);
	return REASON_DROP_ISOLATION;
}

/* Whether the flow in the scratch area was cached after the endpoint's last change. */
__attribute__((noinline)) int is_newer(__u32 receiver)
{
	struct flow_scratch *work = find_scratch();
	struct isolation *entry = map_find(&isolation_v1, &receiver);

	return work && entry && work->flow.since_ns > entry->since_ns;
}

/*
 * Caches that the flow in the scratch area is allowed, after so many changes. Written as a whole: the entry in the map
 * may have become another flow's. Global functions: see shares_group().
 */
__attribute__((noinline)) int note_allowed(__u32 ifindex, __u32 changes)
{
	struct flow_scratch *work = find_scratch();

	if (!work || work->flow.ifindex != ifindex || tracing)
		return 0;
	work->flow.flags = (work->flow.flags & (FLOW_TRANSLATED | FLOW_REPLY | FLOW_HASH)) | FLOW_ALLOWED |
			   changes << FLOW_CHANGES_SHIFT;
	bpf_map_update_elem(&flows_v2, &work->key, &work->flow, BPF_EXIST);
	return 0;
}

/* On the fast path between two pods, which are of one network. The beginning of a connection is dropped at once. */
static __always_inline int check_isolation(struct packet *p)
{
	bool is_opening = (p->in->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	__u32 changes, to, from = p->skb->ifindex;

	if (!p->receiver || !(p->receiver->flags & INTERFACE_ISOLATED_GROUP) || p->follow & FOLLOW_ALLOWED)
		return 0;
	if (!is_opening && !(p->follow & (FOLLOW_CONFIRMED | FOLLOW_UNTRACKED)) && !tracing)
		return REASON_HOST_UNCONFIRMED;
	changes = p->follow & FOLLOW_CONFIRMED ? count_changes() : 0;
	to = p->receiver->ifindex;
	if (shares_group(to, from) || (p->follow & FOLLOW_REPLY && is_newer(to) &&
				       (!(p->interface->flags & INTERFACE_ISOLATED_GROUP) || shares_group(from, to)))) {
		if (p->follow & FOLLOW_CONFIRMED)
			note_allowed(from, changes);
		return 0;
	}
	return is_opening ? REASON_DROP_ISOLATION : REASON_HOST_UNCONFIRMED;
}

/* On the fast path from another node. */
static __always_inline int check_isolation_of_remote(struct packet *p)
{
	__u32 changes, to = p->receiver->ifindex;

	if (!(p->receiver->flags & INTERFACE_ISOLATED) || p->follow & FOLLOW_ALLOWED)
		return 0;
	changes = count_changes();
	if (!(p->follow & FOLLOW_REPLY && is_newer(to)) && !accepts_remote(p, to, p->receiver->flags, &p->ip->source))
		return REASON_HOST_UNCONFIRMED;
	if (p->follow & FOLLOW_CONFIRMED)
		note_allowed(p->skb->ifindex, changes);
	return 0;
}

/*
 * The host-side veth that the node would forward to the source of the packet in the scratch area by. The addresses of
 * `allowedSources` are behind routes.
 */
static __always_inline struct interface *find_behind_route(struct __sk_buff *skb, const struct parsed *parsed)
{
	struct bpf_fib_lookup fib = {.ifindex = skb->ifindex};
	__u32 ifindex;
	long answer;

	if (parsed->protocol == ETH_P_IP) {
		fib.family = AF_INET;
		fib.ipv4_src = parsed->ip.destination.word[3];
		fib.ipv4_dst = parsed->ip.source.word[3];
	} else if (parsed->protocol == ETH_P_IPV6) {
		fib.family = AF_INET6;
		__builtin_memcpy(fib.ipv6_src, &parsed->ip.destination, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, &parsed->ip.source, sizeof(fib.ipv6_dst));
	} else {
		return 0;
	}
	answer = route_lookup(skb, &fib, sizeof(fib), 0);
	ifindex = fib.ifindex;
	return answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH
		       ? map_find(&interfaces_v1, &ifindex)
		       : 0;
}

/*
 * Of what the host stack would get by an uplink in the name of an isolated pod of this node: where the host forwards
 * it, the answer to it is a reply to the pod, and let in. A reverse path filter would refuse it, but IPv6 has none. A
 * global function: the verifier checks it once, and what follows it once for all reasons.
 */
__attribute__((noinline)) int refuse_isolated_name(struct __sk_buff *skb, __u32 reason)
{
	__u32 ifindex = skb->ifindex;
	struct flow_scratch *work = find_scratch();
	struct watch *watch = find_watch();
	struct interface *behind;
	struct uplink *uplink;
	struct address *owner;
	__u32 flags;

	if (!work || !watch || !watch->isolation_changes)
		return reason;
	uplink = map_find(&uplinks_v2, &ifindex);
	owner = uplink ? find_in(uplink, &work->parsed.ip.source) : 0;
	if (owner) {
		flags = owner->flags;
	} else {
		behind = find_behind_route(skb, &work->parsed);
		flags = behind ? behind->flags : 0;
	}
	return flags & INTERFACE_ISOLATED ? REASON_DROP_ISOLATION : reason;
}
