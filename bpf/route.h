/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Finds the receiver of what a pod sends, and decides whether it may be forwarded on the fast path at all. */
#pragma once

#include "bpf/fib.h"
#include "bpf/headers.h"
#include "bpf/tables.h"

/* 240.0.0.0/4 but for the broadcast address: Linux forwards to them as to any other (RFC 1112, 4). */
static __always_inline bool is_reserved(const struct ip_addr *addr)
{
	return !addr->word[0] && addr->word[2] == bpf_htonl(0x0000ffff) && bpf_ntohl(addr->word[3]) >= 0xf0000000 &&
	       addr->word[3] != 0xffffffff;
}

/* Frames to a bridge carry the bridge's MAC, not that of the port they arrive on. */
static __always_inline bool is_for_bridge(struct packet *p)
{
	__u8 to[6] __attribute__((aligned(2)));
	struct address *own;

	if (!p->interface || p->skb->pkt_type != PACKET_OTHERHOST || load(p->skb, 0, to, sizeof(to)))
		return false;
	own = find_address(p, &p->ip->source);
	return own && own->ifindex == p->skb->ifindex && same_mac(to, own->host_mac);
}

/* Whether a router would forward the packet. */
static __always_inline int check_forwardable(struct packet *p)
{
	if (p->skb->pkt_type != PACKET_HOST && !is_for_bridge(p))
		return REASON_HOST_L2;
	return p->in->is_from_link ? REASON_HOST_SCOPE : 0;
}

/* Whether the packet may be delivered to a pod of this node on the fast path, whoever sends it. */
static __always_inline int check_receiver(struct packet *p, __u32 allowed)
{
	int refused = check_forwardable(p);

	if (refused)
		return refused;
	if (!(p->receiver->flags & allowed))
		return REASON_HOST_FAST_PATH_OFF;
	if (!p->in->has_flow && !(p->receiver->flags & allowed & INTERFACE_EGRESS_ROUTE))
		return REASON_HOST_NO_FLOW;
	if (p->in->hop_limit <= 1)
		return REASON_HOST_TTL;
	return fits(p, p->receiver->mtu) ? 0 : REASON_HOST_MTU;
}

/* Packets that an egress route can carry although their flow is unknown. */
static __always_inline bool needs_no_flow(struct packet *p)
{
	return p->in->detour == REASON_HOST_FRAGMENT || p->in->detour == REASON_HOST_OPTIONS;
}

/*
 * Whether there is a route for the source in the scratch area; the pod's own address of the family takes its place if
 * it has none. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int find_routed_source(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct interface *own = map_find(&interfaces_v1, &ifindex);
	struct flow_scratch *work = find_scratch();

	if (!work || !own)
		return 0;
	if (find_source_route(ifindex, &work->other.source))
		return 1;
	work->other.source = skb->protocol == bpf_htons(ETH_P_IP) ? own->ipv4 : own->ipv6;
	return find_source_route(ifindex, &work->other.source) != 0;
}

static __always_inline struct source_route *find_egress_route(struct packet *p)
{
	struct source_route_key key = {.ifindex = p->skb->ifindex};

	if (!(p->interface->flags & INTERFACE_EGRESS_ROUTE))
		return 0;
	p->work->other.source = p->ip->source;
	if (!find_routed_source(p->skb))
		return 0;
	key.source = p->work->other.source;
	return map_find(&source_route_v1, &key);
}

/* Continues with a receiver on this node, or without one towards another node. */
static __always_inline int find_receiver(struct packet *p)
{
	p->egress_route = find_egress_route(p);
	if (p->in->detour && !(p->egress_route && needs_no_flow(p)))
		return p->in->detour;
	p->receiver = find_address(p, &p->ip->destination);
	if (p->receiver) {
		if (p->in->detour)
			return p->in->detour;
		if (p->receiver->ifindex == p->skb->ifindex)
			return REASON_HOST_SELF;
		return check_receiver(p, p->interface->flags & INTERFACE_FAST_LOCAL);
	}
	if (!p->egress_route && !(p->interface->flags & INTERFACE_FAST_UPLINK))
		return REASON_HOST_NOT_LOCAL;
	if (!p->egress_route && !p->in->has_flow)
		return REASON_HOST_NO_FLOW;
	if (stays_on_link(&p->ip->destination) && !is_reserved(&p->ip->destination))
		return REASON_HOST_SCOPE;
	return check_forwardable(p) ?: (p->in->hop_limit > 1 ? 0 : REASON_HOST_TTL);
}
