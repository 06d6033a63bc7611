/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Restores the source address of UDP replies of containers that have several addresses or interfaces. */
#pragma once

#include "bpf/conntrack.h"
#include "bpf/first_speaker.h"
#include "bpf/forwarded.h"
#include "bpf/hand_over.h"
#include "bpf/path_cache.h"
#include "bpf/rewrite.h"

static __always_inline struct source_route *find_slot(struct __sk_buff *skb, __u32 number)
{
	struct source_slot_key key = {skb->ifindex, skb->protocol == bpf_htons(ETH_P_IP), number};

	return bpf_map_lookup_elem(&source_slots_v1, &key);
}

/*
 * Whether the peer has sent a datagram to the source of the flow in the scratch area, an address of this interface: the
 * uplink has delivered it, or the host stack, of which conntrack knows. An own flow is also one that the pod began.
 */
static __always_inline bool is_requested(struct __sk_buff *skb, struct flow_scratch *work, __u32 ifindex, bool is_own)
{
	struct path_key flow = {.ifindex = ifindex, .local = work->key.source, .peer = work->key.destination};
	struct nf_conn___podlane *ct;

	flow.local_port = work->key.source_port;
	flow.peer_port = work->key.destination_port;
	flow.protocol = work->key.protocol;
	if (find_kept_path(skb, &flow))
		return true;
	if (!has_conntrack)
		return false;
	ct = find_connection(skb, work, &work->key);
	if (!ct)
		return false;
	bpf_ct_release(ct);
	return is_own || work->opts.dir;
}

/*
 * The number of the address that the flow in the scratch area replies from, by the path cache, or else, because others
 * may have evicted the entry, by what else knows of the request. 0: the packet's own, which comes first: what is forged
 * on another interface moves no conversation. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int find_requested_slot(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	struct source_route *peer;
	struct path_key flow;

	if (!work || is_requested(skb, work, skb->ifindex, true))
		return 0;
	flow = work->parsed.flow;
	for (__u32 i = 1; i <= SOURCE_SLOTS; i++) {
		peer = find_slot(skb, i);
		if (!peer)
			break;
		flow.ifindex = peer->ifindex;
		flow.local = peer->source;
		if (bpf_map_lookup_elem(&paths_v1, &flow))
			return i;
	}
	for (__u32 i = 1; i <= SOURCE_SLOTS; i++) {
		peer = find_slot(skb, i);
		if (!peer)
			return 0;
		work->key.source = peer->source;
		if (is_requested(skb, work, peer->ifindex, false))
			return i;
	}
	return 0;
}

/*
 * An unbound UDP socket replies from the address of the interface it sends by (RFC 1122, 4.1.3.5, wants the address
 * that the request was sent to). If the flow is cached for a peer interface and not for this one, the request was sent
 * to the peer interface's address; the same holds for another address of this interface.
 */
static __always_inline int send_from_requested_address(struct packet *p)
{
	struct source_route *owner;
	int number;

	if (map_find(&paths_v1, &p->in->flow))
		return 0;
	set_key(p->in, &p->work->key, FROM_POD);
	number = find_requested_slot(p->skb);
	owner = number ? find_slot(p->skb, number) : 0;
	if (!owner)
		return 0;
	if (!write_source(p, &owner->source))
		return REASON_DROP_MALFORMED;
	if (owner->ifindex != p->skb->ifindex)
		return hand_over(p, owner);
	p->ip->source = owner->source;
	p->in->is_from_link = stays_on_link(&owner->source);
	p->in->flow.local = owner->source;
	return 0;
}

/*
 * A bound or connected socket decides by itself from which address it sends. One that spoke first is a client's and
 * replies to nobody, as those that resolvers leave unbound and unconnected: whoever forges datagrams to one interface
 * must not pull there what it sends.
 */
static __always_inline bool is_servers_unbound_socket(struct __sk_buff *skb)
{
	struct bpf_sock *socket = skb->sk;

	if (!socket)
		return false;
	socket = bpf_sk_fullsock(socket);
	if (!socket)
		return false;
	if (socket->family == AF_INET && socket->src_ip4)
		return false;
	if (socket->family != AF_INET &&
	    socket->src_ip6[0] | socket->src_ip6[1] | socket->src_ip6[2] | socket->src_ip6[3])
		return false;
	return has_received_first(socket);
}

static __always_inline int restore_reply_source(struct packet *p)
{
	if (!(p->interface->flags & INTERFACE_PEERS) || p->ip->protocol != IPPROTO_UDP)
		return 0;
	/* First, whatever the packet is: this notes who spoke. */
	if (!is_servers_unbound_socket(p->skb) || p->is_handed_over || p->in->detour || !p->in->has_flow)
		return 0;
	return send_from_requested_address(p);
}
