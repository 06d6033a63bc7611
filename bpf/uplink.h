/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sends to other nodes: queries the kernel's routes and leaves by an uplink of the pod's network. */
#pragma once

#include "bpf/fib.h"
#include "bpf/flow_cache.h"
#include "bpf/rewrite.h"
#include "bpf/tables.h"
#include "bpf/translate.h"

/*
 * If the next hop is not resolved, the host stack resolves it while the packet waits, and sends ICMP unreachable if
 * that fails, which it does not do for a redirected packet. But its rules may drop what follows the first SYN of a TCP
 * connection that began on the fast path, which is invalid to conntrack, and then nobody resolves it.
 */
static __always_inline int find_route(struct packet *p, struct bpf_fib_lookup *fib)
{
	__u32 bytes = ip_bytes(p);
	long answer;

	if (!bytes || bytes > 0xffff)
		return REASON_HOST_MTU;
	answer = query_routes(p, fib, 0, bytes);
	if (answer == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return REASON_HOST_MTU;
	if (answer == BPF_FIB_LKUP_RET_NO_NEIGH)
		return p->follow & FOLLOW_UNTRACKED && p->in->tcp_flags & TCP_ACK ? 0 : REASON_HOST_NO_NEIGHBOUR;
	return answer == BPF_FIB_LKUP_RET_SUCCESS ? 0 : REASON_HOST_NO_ROUTE;
}

/* Where the next hop of the packet at hand is compared: a global function of kernel 5.10 takes no pointers. */
static __always_inline void keep_next_hop(const struct bpf_redir_neigh *next_hop)
{
	struct flow_scratch *work = find_scratch();

	if (work)
		__builtin_memcpy(&work->other.source, next_hop->ipv6_nh, sizeof(work->other.source));
}

/* The flow in the scratch area, as it is before its source is translated. */
static __always_inline long query_flow(struct __sk_buff *skb, struct flow_scratch *work,
				       const struct ip_addr *destination, __be16 source_port,
				       struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = skb->ifindex;
	fib->l4_protocol = work->key.protocol;
	fib->sport = source_port;
	fib->dport = work->flow.destination_port;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		fib->family = AF_INET;
		fib->tos = work->parsed.traffic_class;
		fib->ipv4_src = work->key.source.word[3];
		fib->ipv4_dst = destination->word[3];
	} else {
		fib->family = AF_INET6;
		fib->flowinfo = work->parsed.traffic_class;
		__builtin_memcpy(fib->ipv6_src, &work->key.source, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, destination, sizeof(fib->ipv6_dst));
	}
	return route_lookup(skb, fib, sizeof(*fib), 0);
}

#define DEFAULT_ROUTE_QUERIES 8

/*
 * Pods of other nodes are reached by routes of their own. A destination behind the default route may be the address of
 * a Service that the host translates, even if the cluster's ranges hold it. Of several equal default routes an address
 * that nobody has is sent by any: several are tried. The flow and the next hop are in the scratch area. A global
 * function: the verifier checks it once.
 */
__attribute__((noinline)) int leaves_by_default_route(struct __sk_buff *skb, __u32 ifindex)
{
	struct ip_addr nobody = {{bpf_htonl(0x40000000), 0, 0, NOBODY}};
	struct flow_scratch *work = find_scratch();
	struct bpf_fib_lookup fib;
	bool is_next_hop;
	long answer;

	if (!work)
		return 1;
#pragma clang loop unroll(disable)
	for (int i = 0; i < DEFAULT_ROUTE_QUERIES; i++) {
		answer = query_flow(skb, work, &nobody, work->key.source_port, &fib);
		if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH)
			return 0;
		/* The second: on the link, without a gateway. */
		is_next_hop = fib.family == AF_INET
				      ? fib.ipv4_dst == work->other.source.word[0] || fib.ipv4_dst == nobody.word[3]
				      : same_addr((struct ip_addr *)fib.ipv6_dst, &work->other.source) ||
						fib.ipv6_dst[3] == nobody.word[3];
		if (fib.ifindex == ifindex && is_next_hop)
			return 1;
		nobody.word[3] = NOBODY ^ bpf_htonl(bpf_get_prandom_u32() & 0xffff);
	}
	return 0;
}

/* Whether the kernel chooses the route of the flow in the scratch area by its ports: by others, by chance. */
static __always_inline bool has_equal_routes(struct __sk_buff *skb, struct flow_scratch *work)
{
	struct bpf_fib_lookup fib;
	__u32 first = 0, hop;

#pragma unroll /* the verifier of 6.1 takes no loop that begins behind its body */
	for (__u32 i = 0; i < 4; i++) {
		query_flow(skb, work, &work->flow.destination, i ? (__u16)bpf_get_prandom_u32() : work->key.source_port,
			   &fib);
		/* In the place of a next hop, if the kernel knows none, is the destination. */
		hop = fib.ipv6_dst[0] ^ fib.ipv6_dst[1] ^ fib.ipv6_dst[2] ^ fib.ipv6_dst[3] ^ fib.ifindex << 12;
		first = i ? first : hop;
		if (hop != first)
			return true;
	}
	return false;
}

/*
 * A TCP that hears nothing chooses another hash for its packets, and Linux by it, if fib_multipath_hash_policy is 1,
 * another one of several equal routes. A program's query knows no hash, and would keep to a route that loses them: the
 * host stack gets the confirmed flow, until it ends. Not one with another source: it cannot change its uplink. A global
 * function: the verifier checks it once.
 */
__attribute__((noinline)) int is_rehashed(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	__u32 hash;

	if (!has_conntrack || !work || work->key.protocol != IPPROTO_TCP ||
	    !same_addr(&work->key.source, &work->flow.source))
		return 0;
	hash = work->flow.flags & FLOW_HASH;
	if (hash == FLOW_BY_HOST)
		return 1;
	if (tracing || !skb->hash || hash == hash_of(skb))
		return 0;
	hash = hash && has_equal_routes(skb, work) ? FLOW_BY_HOST : hash_of(skb);
	work->flow.flags = (work->flow.flags & ~FLOW_HASH) | hash;
	map_insert(&flows_v2, &work->key, &work->flow, BPF_EXIST);
	return hash == FLOW_BY_HOST;
}

/*
 * Whether the host stack sends the flow in the scratch area by this uplink, or, by a hash, might. By the packet's mark
 * it may choose another one than a program's query. It ends a masqueraded connection whose packets would leave by
 * another interface than before, because its source address is that of the former. Which uplink it takes, to_uplink has
 * seen. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int is_way_of_host(struct __sk_buff *skb, __u32 ifindex)
{
	struct flow_scratch *work = find_scratch();
	const struct forwarded *left;

	if (!work)
		return 0;
	left = find_forwarded(find_translated_key(work));
	if (left && left->came_by == skb->ifindex && has_left_by(left, ifindex))
		return 1;
	return same_addr(&work->key.source, &work->flow.source) && (!left || has_equal_routes(skb, work));
}

static __always_inline int send_to_uplink(struct packet *p)
{
	struct bpf_redir_neigh next_hop = {};
	struct bpf_fib_lookup fib;
	struct uplink *uplink;
	__u32 ifindex;
	int lost;

	if (p->follow & FOLLOW_CONFIRMED && is_rehashed(p->skb))
		return REASON_HOST_UNCONFIRMED;
	lost = find_route(p, &fib);
	if (lost)
		return lost;
	ifindex = fib.ifindex;
	uplink = map_find(&uplinks_v2, &ifindex);
	if (!uplink || !serves(uplink, p->network))
		return REASON_HOST_NO_UPLINK;
	next_hop.nh_family = fib.family;
	__builtin_memcpy(next_hop.ipv6_nh, fib.ipv6_dst, sizeof(next_hop.ipv6_nh));
	if (p->follow & FOLLOW_NEW || p->in->is_icmp_error) {
		keep_next_hop(&next_hop);
		if (leaves_by_default_route(p->skb, ifindex))
			return REASON_HOST_UNCONFIRMED;
	}
	if (p->follow & FOLLOW_QUERIED && !is_way_of_host(p->skb, ifindex)) {
		forget_key();
		return REASON_HOST_UNCONFIRMED;
	}
	if ((p->follow & FOLLOW_TRANSLATED) && !translate(p->skb))
		return REASON_HOST_UNKNOWN_PATH;
	return redirect_by_uplink(p, ifindex, &next_hop, REASON_SENT_UPLINK);
}
