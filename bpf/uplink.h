/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sends to other nodes: queries the kernel's routes and leaves by an uplink of the pod's network. */
#pragma once

#include "bpf/fib.h"
#include "bpf/path_cache.h"
#include "bpf/rewrite.h"
#include "bpf/tables.h"
#include "bpf/translate.h"

/*
 * The kernel resolves the next hop while the packet waits, but sends no error for a redirected packet if that fails.
 * A retry before the next hop is resolved takes the slow path: the host stack sends ICMP unreachable.
 */
static __always_inline bool repeats_before_resolution(struct packet *p)
{
	return p->starts_flow && !p->is_new_flow && !p->uplink;
}

/* A flow whose uplink lost its route moves to one that has it. */
static __always_inline int find_route(struct packet *p, struct bpf_fib_lookup *fib)
{
	__u32 bytes = ip_bytes(p);
	long answer = BPF_FIB_LKUP_RET_UNREACHABLE;

	if (!bytes || bytes > 0xffff)
		return REASON_HOST_MTU;
	if (p->uplink)
		answer = query_routes(p, fib, p->uplink, bytes);
	if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH &&
	    answer != BPF_FIB_LKUP_RET_FRAG_NEEDED)
		answer = query_routes(p, fib, 0, bytes);
	if (answer == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return REASON_HOST_MTU;
	if (answer == BPF_FIB_LKUP_RET_NO_NEIGH)
		return repeats_before_resolution(p) ? REASON_HOST_NO_NEIGHBOUR : 0;
	return answer == BPF_FIB_LKUP_RET_SUCCESS ? 0 : REASON_HOST_NO_ROUTE;
}

static __always_inline int send_to_uplink(struct packet *p)
{
	struct bpf_redir_neigh next_hop = {};
	struct bpf_fib_lookup fib;
	struct uplink *uplink;
	__u32 ifindex;
	int lost = find_route(p, &fib);

	if (lost)
		return lost;
	ifindex = fib.ifindex;
	uplink = map_find(&uplinks_v2, &ifindex);
	if (!uplink || !serves(uplink, p->network))
		return REASON_HOST_NO_UPLINK;
	if (p->is_new_flow && !cache_path(&p->flow, PATH_UPLINK, 0))
		return REASON_HOST_UNKNOWN_PATH;
	next_hop.nh_family = fib.family;
	__builtin_memcpy(next_hop.ipv6_nh, fib.ipv6_dst, sizeof(next_hop.ipv6_nh));
	if ((p->follow & FOLLOW_TRANSLATED) && !translate(p->skb))
		return REASON_HOST_UNKNOWN_PATH;
	if (!decrement_hop_limit(p))
		return REASON_HOST_UNKNOWN_PATH;
	p->skb->mark |= fast_mark;
	p->verdict = bpf_redirect_neigh(ifindex, &next_hop, sizeof(next_hop), 0);
	return REASON_SENT_UPLINK;
}
