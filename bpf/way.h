/* A network's own way out of the node: its uplink, and there the neighbour on the link or the network's gateway. */
#pragma once

#include "bpf/sibling.h"
#include "bpf/uplink.h"

static __always_inline bool same_subnet(const struct ip_addr *a, const struct ip_addr *b, __u32 bits)
{
#pragma unroll
	for (__u32 i = 0; i < 4; i++) {
		__u32 differ = bpf_ntohl(a->word[i] ^ b->word[i]);

		if (bits <= i * 32)
			return true;
		if (bits < (i + 1) * 32)
			differ &= ~0U << ((i + 1) * 32 - bits);
		if (differ)
			return false;
	}
	return true;
}

/* Whether the kernel's lookup finds a way to an address nobody has: 240.0.0.1 (RFC 1112), 4000:: (RFC 3513). */
static __always_inline bool routes_everything(struct packet *p)
{
	const struct ip_addr destination = p->ip.destination;
	struct bpf_fib_lookup fib;
	long answer;

	p->ip.destination.word[3] = bpf_htonl(0xf0000001);
	if (p->protocol == ETH_P_IPV6)
		p->ip.destination.word[0] = bpf_htonl(0x40000000);
	answer = ask_routes(p, &fib, 0, 0);
	p->ip.destination = destination;
	return answer != BPF_FIB_LKUP_RET_NOT_FWDED;
}

/*
 * The node itself and its pods are reached on the node, whatever the network. The kernel says "not forwarded" of the
 * node's addresses, and of those without any route as well.
 */
static __always_inline bool stays_on_node(struct packet *p)
{
	struct bpf_fib_lookup fib;
	long answer = ask_routes(p, &fib, 0, 0);
	__u32 ifindex = fib.ifindex;

	if (answer == BPF_FIB_LKUP_RET_NOT_FWDED)
		return routes_everything(p);
	return (answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH) &&
	       bpf_map_lookup_elem(&interfaces_v1, &ifindex);
}

/* Nothing but what came through the host stack has a choice of ways: not even the rest of a fragmented packet. */
static __always_inline int find_way_path(struct packet *p)
{
	struct flow_path *known;

	if (!p->has_flow)
		return 0;
	known = bpf_map_lookup_elem(&paths_v1, &p->flow);
	if (known)
		return known->via == PATH_HOST ? REASON_HOST_PATH : 0;
	if (stays_on_node(p))
		return REASON_HOST_NOT_LOCAL;
	p->is_new_flow = !p->is_icmp_error;
	return 0;
}

static __always_inline int find_next_hop(struct packet *p, struct bpf_redir_neigh *next_hop)
{
	struct source_route *way = p->way;
	const struct ip_addr *to = &way->gateway;
	struct bpf_fib_lookup fib;
	long answer;

	if (way->prefix_bits && same_subnet(&p->ip.source, &p->ip.destination, way->prefix_bits))
		to = &p->ip.destination;
	if (is_unspecified(to)) {
		answer = ask_routes(p, &fib, way->uplink, 0);
		if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH)
			return REASON_HOST_NO_ROUTE;
		next_hop->nh_family = fib.family;
		__builtin_memcpy(next_hop->ipv6_nh, fib.ipv6_dst, sizeof(next_hop->ipv6_nh));
	} else if (p->protocol == ETH_P_IP) {
		next_hop->nh_family = AF_INET;
		next_hop->ipv4_nh = to->word[3];
	} else {
		next_hop->nh_family = AF_INET6;
		__builtin_memcpy(next_hop->ipv6_nh, to, sizeof(next_hop->ipv6_nh));
	}
	return 0;
}

static __always_inline int send_by_way(struct packet *p)
{
	struct bpf_redir_neigh next_hop = {};
	__u32 ifindex = p->way->uplink;
	struct uplink *uplink = bpf_map_lookup_elem(&uplinks_v1, &ifindex);
	int lost;

	if (!uplink || !serves(uplink, p->network))
		return REASON_HOST_NO_UPLINK;
	lost = find_next_hop(p, &next_hop);
	if (lost)
		return lost;
	if (p->is_new_flow && !remember(&p->flow, PATH_UPLINK, ifindex))
		return REASON_HOST_UNKNOWN_PATH;
	if (!decrement_hop_limit(p))
		return REASON_HOST_UNKNOWN_PATH;
	p->skb->mark |= fast_mark;
	p->verdict = bpf_redirect_neigh(ifindex, &next_hop, sizeof(next_hop), 0);
	return REASON_SENT_WAY;
}
