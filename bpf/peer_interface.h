/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Restores the source address of UDP replies of containers that have several addresses or interfaces. */
#pragma once

#include "bpf/hand_over.h"
#include "bpf/rewrite.h"

/*
 * An unbound UDP socket replies from the address of the interface it sends by (RFC 1122, 4.1.3.5, wants the address
 * that the request was sent to). If the flow is cached for a peer interface and not for this one, the request was sent
 * to the peer interface's address; the same holds for another address of this interface.
 */
static __always_inline int send_from_requested_address(struct packet *p)
{
	struct path_key flow = p->flow;

	if (map_find(&paths_v1, &flow))
		return 0;
	/* The verifier walks each iteration in every state: tracing, and what follows a hit, are outside. */
	struct source_route *owner = 0;

	for (__u32 i = 1; i <= SOURCE_SLOTS && !owner; i++) {
		struct source_slot_key key = {p->skb->ifindex, p->protocol == ETH_P_IP, i};
		struct source_route *peer = bpf_map_lookup_elem(&source_slots_v1, &key);

		if (!peer)
			return 0;
		flow.ifindex = peer->ifindex;
		flow.local = peer->source;
		if (bpf_map_lookup_elem(&paths_v1, &flow))
			owner = peer;
	}
	if (!owner)
		return 0;
	if (!write_source(p, &owner->source))
		return REASON_DROP_MALFORMED;
	if (owner->ifindex != p->skb->ifindex)
		return hand_over(p, owner);
	p->ip.source = owner->source;
	p->flow = flow;
	return 0;
}

/*
 * A bound or connected socket decides by itself from which address it sends: whoever forges datagrams to one interface
 * must not pull what it sends there. The socket is still known here, because a veth keeps it (since Linux 4.19).
 */
static __always_inline bool has_unbound_socket(struct __sk_buff *skb)
{
	struct bpf_sock *socket = skb->sk;

	if (!socket)
		return false;
	socket = bpf_sk_fullsock(socket);
	if (!socket)
		return false;
	if (socket->family == AF_INET)
		return !socket->src_ip4;
	return !(socket->src_ip6[0] | socket->src_ip6[1] | socket->src_ip6[2] | socket->src_ip6[3]);
}

static __always_inline int restore_reply_source(struct packet *p)
{
	if (!(p->interface->flags & INTERFACE_PEERS) || p->is_handed_over)
		return 0;
	if (p->ip.protocol != IPPROTO_UDP || p->detour || !p->has_flow || !has_unbound_socket(p->skb))
		return 0;
	return send_from_requested_address(p);
}
