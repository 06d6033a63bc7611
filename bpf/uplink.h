/* The way to other nodes: asks the kernel's routes, and leaves by an uplink of the pod's network. */
#pragma once

#include "bpf/forward.h"
#include "bpf/route.h"

#define AF_INET 2
#define AF_INET6 10

static __always_inline bool serves(const struct uplink *uplink, __u32 network)
{
#pragma unroll
	for (int i = 0; i < UPLINK_NETWORKS; i++)
		if (uplink->networks[i] == network)
			return true;
	return false;
}

/*
 * Ports are part of the question, or all flows would take one of several equal routes. So is the size, which the kernel
 * compares with the route's MTU; asked without one, it knows the device's only.
 */
static __always_inline long ask_routes(struct packet *p, struct bpf_fib_lookup *fib, __u32 uplink, __u16 bytes)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = uplink ? uplink : p->skb->ifindex;
	fib->l4_protocol = p->ip.protocol;
	fib->tot_len = bytes;
	fib->sport = p->is_icmp_error ? 0 : p->flow.local_port;
	fib->dport = p->is_icmp_error ? 0 : p->flow.peer_port;
	if (p->protocol == ETH_P_IP) {
		fib->family = AF_INET;
		fib->tos = p->traffic_class;
		fib->ipv4_src = p->ip.source.word[3];
		fib->ipv4_dst = p->ip.destination.word[3];
	} else {
		fib->family = AF_INET6;
		fib->flowinfo = p->traffic_class;
		__builtin_memcpy(fib->ipv6_src, &p->ip.source, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, &p->ip.destination, sizeof(fib->ipv6_dst));
	}
	return bpf_fib_lookup(p->skb, fib, sizeof(*fib), uplink ? BPF_FIB_LOOKUP_OUTPUT : 0);
}

/*
 * The kernel finds a next hop while the packet waits, but whose packet was redirected is not told that there is none.
 * Who asks again before it is found gets the host stack, and with it an answer.
 */
static __always_inline bool asks_in_vain(struct packet *p)
{
	return p->starts_flow && !p->is_new_flow && !p->uplink;
}

/* An uplink that has lost its route is left for one that has it. */
static __always_inline int find_way(struct packet *p, struct bpf_fib_lookup *fib)
{
	__u32 bytes = ip_bytes(p);
	long answer = BPF_FIB_LKUP_RET_UNREACHABLE;

	if (!bytes || bytes > 0xffff)
		return REASON_HOST_MTU;
	if (p->uplink)
		answer = ask_routes(p, fib, p->uplink, bytes);
	if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH &&
	    answer != BPF_FIB_LKUP_RET_FRAG_NEEDED)
		answer = ask_routes(p, fib, 0, bytes);
	if (answer == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return REASON_HOST_MTU;
	if (answer == BPF_FIB_LKUP_RET_NO_NEIGH)
		return asks_in_vain(p) ? REASON_HOST_NO_NEIGHBOUR : 0;
	return answer == BPF_FIB_LKUP_RET_SUCCESS ? 0 : REASON_HOST_NO_ROUTE;
}

static __always_inline int send_to_uplink(struct packet *p)
{
	struct bpf_redir_neigh next_hop = {};
	struct bpf_fib_lookup fib;
	struct uplink *uplink;
	__u32 ifindex;
	int lost = find_way(p, &fib);

	if (lost)
		return lost;
	ifindex = fib.ifindex;
	uplink = bpf_map_lookup_elem(&uplinks_v1, &ifindex);
	if (!uplink || !serves(uplink, p->network))
		return REASON_HOST_NO_UPLINK;
	if (p->is_new_flow && !remember(&p->flow, PATH_UPLINK, 0))
		return REASON_HOST_UNKNOWN_PATH;
	next_hop.nh_family = fib.family;
	__builtin_memcpy(next_hop.ipv6_nh, fib.ipv6_dst, sizeof(next_hop.ipv6_nh));
	if (!decrement_hop_limit(p))
		return REASON_HOST_UNKNOWN_PATH;
	p->skb->mark |= fast_mark;
	p->verdict = bpf_redirect_neigh(ifindex, &next_hop, sizeof(next_hop), 0);
	return REASON_SENT_UPLINK;
}

/* The endpoint of one of the uplink's networks that owns the address. */
static __always_inline struct address *find_endpoint(struct packet *p, const struct ip_addr *addr)
{
	__u32 ifindex = p->skb->ifindex;
	struct uplink *uplink = bpf_map_lookup_elem(&uplinks_v1, &ifindex);

	if (!uplink)
		return 0;
#pragma unroll
	for (int i = 0; i < UPLINK_NETWORKS; i++) {
		struct address *owner;

		p->network = uplink->networks[i];
		if (!p->network)
			return 0;
		owner = find_address(p, addr);
		if (owner)
			return owner;
	}
	return 0;
}
