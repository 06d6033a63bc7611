/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Hands a packet over to the container's other interface that owns its source address. */
#pragma once

#include "bpf/rewrite.h"
#include "bpf/tables.h"

/* A packet is handed over once, whatever the tables say. The mark does not survive the way out of a pod's namespace. */
static __always_inline int recognise_handed_over(struct packet *p)
{
	if (p->skb->mark & fast_mark) {
		p->skb->mark &= ~fast_mark;
		p->is_handed_over = true;
	}
	return 0;
}

/* The route of another interface of the same container that owns the address. */
static __always_inline struct source_route *find_peer_interface(struct packet *p, const struct ip_addr *source)
{
	struct source_route *route;

	if (!(p->interface->flags & INTERFACE_PEERS) || p->is_handed_over)
		return 0;
	route = find_source_route(p->skb->ifindex, source);
	return route && route->ifindex != p->skb->ifindex ? route : 0;
}

/*
 * Redirects to the ingress of the other host-side veth, so that the programs, reverse path filter, rules by incoming
 * interface and counters of that network apply: also to what is larger than that interface's MTU, which the kernel
 * takes since 5.12. The host stack would get it from this interface, and judge it by the rules of another network.
 */
static __always_inline int hand_over(struct packet *p, struct source_route *peer)
{
	struct ethhdr *ethernet = writable(p, sizeof(*ethernet));

	if (!ethernet)
		return REASON_DROP_MALFORMED;
	if (tracing)
		trace(STEP(TRACE_LOOKUP, STEP_MAP_SOURCE_ROUTES, 0, sizeof(*peer)), true, 0, peer);
	__builtin_memcpy(ethernet->h_dest, peer->host_mac, 6);
	__builtin_memcpy(ethernet->h_source, peer->pod_mac, 6);
	p->skb->mark |= fast_mark;
	p->verdict = bpf_redirect(peer->ifindex, BPF_F_INGRESS);
	return REASON_SENT_SIBLING;
}

static __always_inline int hand_over_to_peer(struct packet *p)
{
	struct source_route *peer = find_peer_interface(p, &p->ip->source);

	return peer ? hand_over(p, peer) : 0;
}
