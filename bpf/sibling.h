/* What a container sends from the address of another of its interfaces goes on as if that one had sent it. */
#pragma once

#include "bpf/forward.h"

static __always_inline struct source_route *find_source_route(__u32 ifindex, const struct ip_addr *source)
{
	struct source_route_key key = {.ifindex = ifindex, .source = *source};

	return bpf_map_lookup_elem(&source_route_v1, &key);
}

/* The way of another interface of the same container that owns the address. */
static __always_inline struct source_route *find_sibling(struct packet *p, const struct ip_addr *source)
{
	struct source_route *route;

	if (!(p->interface->flags & INTERFACE_SIBLINGS))
		return 0;
	route = find_source_route(p->skb->ifindex, source);
	return route && route->ifindex != p->skb->ifindex ? route : 0;
}

/*
 * Onto the other host end's ingress: its programs, reverse path filter, rules by incoming interface and counters are
 * those of the network that was addressed. A packet larger than that interface's MTU would get lost there.
 */
static __always_inline int hand_to(struct packet *p, struct source_route *sibling)
{
	struct ethhdr *ethernet;

	if (!p->skb->gso_size && p->skb->len - sizeof(*ethernet) > sibling->mtu)
		return REASON_HOST_MTU;
	ethernet = writable(p, sizeof(*ethernet));
	if (!ethernet)
		return REASON_DROP_MALFORMED;
	if (tracing)
		trace(STEP(TRACE_LOOKUP, STEP_MAP_SOURCE_ROUTES, 0, sizeof(*sibling)), true, 0, sibling);
	__builtin_memcpy(ethernet->h_dest, sibling->host_mac, 6);
	__builtin_memcpy(ethernet->h_source, sibling->pod_mac, 6);
	p->verdict = bpf_redirect(sibling->ifindex, BPF_F_INGRESS);
	return REASON_SENT_SIBLING;
}

/* The source is in the transport checksum as well; a packet that is the rest of a fragmented one has none. */
static __always_inline bool write_source(struct packet *p, const struct ip_addr *source)
{
	const __u32 udp_checksum = p->l4_offset + __builtin_offsetof(struct udphdr, check);
	const __u64 flags = BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0;
	struct ip_addr old = p->ip.source;
	__s64 differ;

	if (p->protocol == ETH_P_IP) {
		const __u32 at = sizeof(struct ethhdr) + __builtin_offsetof(struct iphdr, saddr);
		const __u32 checksum = sizeof(struct ethhdr) + __builtin_offsetof(struct iphdr, check);

		return !bpf_l4_csum_replace(p->skb, udp_checksum, old.word[3], source->word[3], flags | 4) &&
		       !bpf_l3_csum_replace(p->skb, checksum, old.word[3], source->word[3], 4) &&
		       !bpf_skb_store_bytes(p->skb, at, &source->word[3], 4, 0);
	}
	differ = bpf_csum_diff(old.word, sizeof(old), (__be32 *)source->word, sizeof(*source), 0);
	return !bpf_l4_csum_replace(p->skb, udp_checksum, 0, differ, flags) &&
	       !bpf_skb_store_bytes(p->skb, sizeof(struct ethhdr) + __builtin_offsetof(struct ipv6hdr, saddr), source,
				    sizeof(*source), 0);
}

/*
 * A UDP socket that is bound to no address answers from that of the interface it sends by (RFC 1122, 4.1.3.5, wants the
 * one that was asked). Where a sibling knows the flow and this interface does not, that one was asked; or it was
 * another address of this interface.
 */
static __always_inline int answer_as_sibling(struct packet *p)
{
	struct path_key flow = p->flow;

	if (bpf_map_lookup_elem(&paths_v1, &flow))
		return 0;
	for (__u32 i = 1; i <= SOURCE_ROUTE_PLACES; i++) {
		struct source_route_key key = source_route_place(p->skb->ifindex, p->protocol == ETH_P_IP, i);

		struct source_route *sibling = bpf_map_lookup_elem(&source_route_v1, &key);

		if (!sibling)
			return 0;
		flow.ifindex = sibling->ifindex;
		flow.local = sibling->source;
		if (!bpf_map_lookup_elem(&paths_v1, &flow))
			continue;
		if (!write_source(p, &sibling->source))
			return REASON_DROP_MALFORMED;
		if (sibling->ifindex != p->skb->ifindex)
			return hand_to(p, sibling);
		p->ip.source = sibling->source;
		p->flow = flow;
		return 0;
	}
	return 0;
}

static __always_inline int find_asked_sibling(struct packet *p)
{
	if (!(p->interface->flags & INTERFACE_SIBLINGS) || p->ip.protocol != IPPROTO_UDP || p->detour || !p->has_flow)
		return 0;
	return answer_as_sibling(p);
}

static __always_inline int hand_to_sibling(struct packet *p)
{
	struct source_route *sibling = find_sibling(p, &p->ip.source);

	return sibling ? hand_to(p, sibling) : 0;
}
