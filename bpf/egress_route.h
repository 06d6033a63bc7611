/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sends by the network's egress route: its own uplink, to a neighbour on that link or to the network's gateway. */
#pragma once

#include "bpf/carrier.h"
#include "bpf/fib.h"
#include "bpf/ipsec.h"
#include "bpf/path_cache.h"
#include "bpf/rewrite.h"
#include "bpf/tables.h"

#include <bpf/bpf_core_read.h>

/* See is_local_to_node(). A global function: see resume(). */
__attribute__((noinline)) int leads_to_node(struct __sk_buff *skb, __u32 uplink, __u32 follow)
{
	struct packet p = {.skb = skb};
	struct bpf_fib_lookup fib;
	__u32 ifindex;
	long answer;

	if (!resume(&p, follow))
		return 0;
	answer = query_routes(&p, &fib, 0, 0);
	ifindex = fib.ifindex;
	if (answer == BPF_FIB_LKUP_RET_NOT_FWDED)
		return is_own_address(&p, &fib);
	if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH)
		return 0;
	/* The second: behind a bridge that another plugin has made. */
	return map_find(&interfaces_v1, &ifindex) || (ifindex != uplink && find_owner_on_node(&p.ip->destination));
}

/* The node and its pods are reached on the node, whatever the network. */
static __always_inline bool is_local_to_node(struct packet *p)
{
	return leads_to_node(p->skb, p->egress_route->uplink, p->follow);
}

/* The destination may have become the node's or a pod's since then: it is judged again, and for each new connection. */
static __always_inline bool is_judged_destination(struct packet *p, const struct flow_path *known)
{
	return (p->in->tcp_flags & (TCP_SYN | TCP_ACK)) != TCP_SYN &&
	       bpf_ktime_get_ns() - known->since_ns <= PATH_TOUCH_NS;
}

/*
 * All fragments of a packet take one path, and only the first names the flow: if the host stack carries that, it is
 * kept for the others. Packets without a flow have no choice.
 */
static __always_inline int find_path_of_unnamed(struct packet *p)
{
	struct flow_path *known;

	if (is_local_to_node(p))
		return REASON_HOST_NOT_LOCAL;
	if (!p->in->is_fragment)
		return 0;
	if (!p->in->is_first_fragment)
		return has_first_fragment_left_by_host(p) ? REASON_HOST_PATH : 0;
	known = p->in->has_flow ? find_path(p) : 0;
	if (!p->in->has_flow || (known && is_carried_by_uplink(p, known)) || !is_carried_by_host(p, known))
		return 0;
	name_by_fragment(p);
	store_kept_path(p->skb, PATH_HOST, 0);
	return REASON_HOST_PATH;
}

/* Only flows that came through the host stack have a choice of paths, and conntrack knows which did. */
static __always_inline int find_egress_path(struct packet *p)
{
	struct flow_path *known;

	if (is_left_to_policies(p->skb, p->skb->ifindex, p->egress_route->uplink, p->follow))
		return REASON_HOST_IPSEC;
	if (!p->in->has_flow || p->in->is_fragment)
		return find_path_of_unnamed(p);
	known = find_path(p);
	if (known && is_carried_by_uplink(p, known)) {
		if (is_judged_destination(p, known))
			return 0;
	} else if (is_carried_by_host(p, known)) {
		if (known && !is_by_host(known))
			cache_path(&p->in->flow, PATH_HOST, 0, 0);
		return REASON_HOST_PATH;
	}
	if (is_local_to_node(p)) {
		if (known && !tracing)
			bpf_map_delete_elem(&paths_v1, &p->in->flow);
		return REASON_HOST_NOT_LOCAL;
	}
	p->is_new_flow = !p->in->is_icmp_error;
	return 0;
}

static __always_inline int find_next_hop(struct packet *p, struct bpf_redir_neigh *next_hop)
{
	struct source_route *route = p->egress_route;
	const struct ip_addr *to = &route->gateway;
	struct bpf_fib_lookup fib;
	long answer;

	if (route->prefix_bits && same_subnet(&route->source, &p->ip->destination, route->prefix_bits))
		to = &p->ip->destination;
	if (is_unspecified(to)) {
		answer = query_routes(p, &fib, route->uplink, 0);
		if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH)
			return REASON_HOST_NO_ROUTE;
		next_hop->nh_family = fib.family;
		__builtin_memcpy(next_hop->ipv6_nh, fib.ipv6_dst, sizeof(next_hop->ipv6_nh));
	} else if (p->in->protocol == ETH_P_IP) {
		next_hop->nh_family = AF_INET;
		next_hop->ipv4_nh = to->word[3];
	} else {
		next_hop->nh_family = AF_INET6;
		__builtin_memcpy(next_hop->ipv6_nh, to, sizeof(next_hop->ipv6_nh));
	}
	return 0;
}

/* Linux 5.12; older kernels have no types for it. */
enum bpf_func_id___podlane {
	BPF_FUNC_check_mtu___podlane = 163,
};
#define CHECK_MTU_SEGMENTS 1 /* BPF_MTU_CHK_SEGS */
#define SEGMENTS_TOO_LARGE 2 /* BPF_MTU_CHK_RET_SEGS_TOOBIG */

/*
 * Whether the uplink's link takes the packet: a redirect compares nothing, and a network card may send what is larger.
 * Kernels before 5.12 do not say; there the MTU of the pod's own interface counts.
 */
static __always_inline bool fits_link(struct packet *p, __u32 ifindex)
{
	__u32 mtu = p->egress_route->mtu;
	long answer;

	if (bpf_core_enum_value_exists(enum bpf_func_id___podlane, BPF_FUNC_check_mtu___podlane)) {
		mtu = 0;
		answer = bpf_check_mtu(p->skb, ifindex, &mtu, 0, CHECK_MTU_SEGMENTS);
		if (answer < 0 || (!answer && p->skb->gso_size))
			return true;
		if (answer == SEGMENTS_TOO_LARGE && !is_jumbogram(p))
			return false;
	}
	return fits(p, mtu); /* exact if the link has a longer header than the packet, or its segments a shorter one */
}

static __always_inline int send_by_egress_route(struct packet *p)
{
	struct bpf_redir_neigh next_hop = {};
	__u32 ifindex = p->egress_route->uplink;
	struct uplink *uplink = map_find(&uplinks_v2, &ifindex);
	int lost;

	if (!uplink || !serves(uplink, p->network))
		return REASON_HOST_NO_UPLINK;
	/* The host stack would send it, or fragments of it, by the node's own routes. */
	if (!fits_link(p, ifindex))
		return REASON_DROP_MALFORMED;
	lost = find_next_hop(p, &next_hop);
	if (lost)
		return lost;
	if (p->is_new_flow && !cache_path(&p->in->flow, PATH_UPLINK, ifindex, PATH_JUDGED_NS))
		return REASON_HOST_UNKNOWN_PATH;
	return redirect_by_uplink(p, ifindex, &next_hop, REASON_SENT_WAY);
}
