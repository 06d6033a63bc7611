/* Decides between the host stack and the way past it: "a flow returns the way it came". */
#pragma once

#include "bpf/sibling.h"

static __always_inline struct address *find_address(struct packet *p, const struct ip_addr *addr)
{
	struct address_key key = {.network = p->network, .addr = *addr};

	return bpf_map_lookup_elem(&addresses_v1, &key);
}

/* The same flow as the endpoint at its other end sees it. */
static __always_inline struct path_key other_end(const struct path_key *flow, __u32 ifindex)
{
	struct path_key other = {
		.ifindex = ifindex,
		.local = flow->peer,
		.peer = flow->local,
		.local_port = flow->peer_port,
		.peer_port = flow->local_port,
		.protocol = flow->protocol,
	};

	return other;
}

static __always_inline bool remember(const struct path_key *flow, enum path_via via, __u32 uplink)
{
	struct flow_path path = {.since_ns = bpf_ktime_get_ns(), .via = via, .uplink = uplink};

	return bpf_map_update_elem(&paths_v1, flow, &path, BPF_ANY) == 0;
}

/* Length of the IP packet; of a GSO packet that of its segments, as the kernel's forwarding has it. 0: unknown. */
static __always_inline __u32 ip_bytes(struct packet *p)
{
	__u32 segment = p->skb->gso_size;

	if (!segment)
		return p->skb->len - sizeof(struct ethhdr);
	return p->header_bytes ? segment + p->header_bytes : 0;
}

static __always_inline bool fits(struct packet *p, __u32 mtu)
{
	__u32 bytes = ip_bytes(p);

	return bytes && bytes <= mtu;
}

/* Destinations and sources of other nodes' pods. */
static __always_inline bool in_cluster(struct packet *p, const struct ip_addr *addr)
{
	struct cluster_cidr_key key = {.prefixlen = 160, .network = bpf_htonl(p->network), .addr = *addr};

	return bpf_map_lookup_elem(&cluster_cidr_v1, &key);
}

/* Sources the kernel's forwarding refuses as well: this network, loopback, link-local, multicast (RFC 6890). */
static __always_inline bool stays_on_link(const struct ip_addr *source)
{
	__u32 first = bpf_ntohl(source->word[0]);

	if (first == 0 && source->word[1] == 0 && source->word[2] == bpf_htonl(0x0000ffff)) {
		__u8 net = bpf_ntohl(source->word[3]) >> 24;

		return net == 0 || net == 127 || net >= 224;
	}
	/* :: and ::1 are the only ones below ::2 that get here. */
	return (first & 0xffc00000) == 0xfe800000 || first >= 0xff000000 ||
	       !(first | source->word[1] | source->word[2] | (source->word[3] & bpf_htonl(~1U)));
}

/* What a router would forward at all. */
static __always_inline int check_forwardable(struct packet *p)
{
	if (p->skb->pkt_type != PACKET_HOST)
		return REASON_HOST_L2;
	return stays_on_link(&p->ip.source) ? REASON_HOST_SCOPE : 0;
}

/* What is delivered to a pod of this node past the host stack, whoever sends it. */
static __always_inline int check_receiver(struct packet *p, __u32 allowed)
{
	int refused = check_forwardable(p);

	if (refused)
		return refused;
	if (!(p->receiver->flags & allowed))
		return REASON_HOST_FAST_PATH_OFF;
	if (!p->has_flow && !(p->receiver->flags & allowed & INTERFACE_WAY))
		return REASON_HOST_NO_FLOW;
	if (p->hop_limit <= 1)
		return REASON_HOST_TTL;
	return fits(p, p->receiver->mtu) ? 0 : REASON_HOST_MTU;
}

/* What a network's own way can carry without knowing its flow. */
static __always_inline bool goes_as_it_is(struct packet *p)
{
	return p->detour == REASON_HOST_FRAGMENT || p->detour == REASON_HOST_OPTIONS;
}

/* Goes on with a receiver on this node, or with none towards another node. */
static __always_inline int find_receiver(struct packet *p)
{
	if (p->interface->flags & INTERFACE_WAY)
		p->way = find_source_route(p->skb->ifindex, &p->ip.source);
	if (p->detour && !(p->way && goes_as_it_is(p)))
		return p->detour;
	p->receiver = find_address(p, &p->ip.destination);
	if (p->receiver) {
		if (p->detour)
			return p->detour;
		if (p->receiver->ifindex == p->skb->ifindex)
			return REASON_HOST_SELF;
		return check_receiver(p, p->interface->flags & INTERFACE_FAST_LOCAL);
	}
	if (!p->way && !(p->interface->flags & INTERFACE_FAST_UPLINK))
		return REASON_HOST_NOT_LOCAL;
	if (!p->way && !p->has_flow)
		return REASON_HOST_NO_FLOW;
	return check_forwardable(p) ?: (p->hop_limit > 1 ? 0 : REASON_HOST_TTL);
}

/*
 * Both ends remember: the answer of a flow is hardly ever the first packet of one. Where the other end has a flow of
 * the same ports through the host stack, a service's translation made it: connection tracking tells the two apart.
 */
static __always_inline int start_path(struct packet *p)
{
	struct path_key other = other_end(&p->flow, p->receiver->ifindex);
	struct flow_path *theirs = bpf_map_lookup_elem(&paths_v1, &other);

	if (theirs && theirs->via == PATH_HOST)
		return REASON_HOST_PATH;
	return remember(&p->flow, PATH_DIRECT, 0) && remember(&other, PATH_DIRECT, 0) ? 0 : REASON_HOST_UNKNOWN_PATH;
}

static __always_inline int find_local_path(struct packet *p)
{
	struct flow_path *known = bpf_map_lookup_elem(&paths_v1, &p->flow);

	if (known && known->via != PATH_DIRECT)
		return REASON_HOST_PATH;
	/* A SYN begins anew, for the other end may have forgotten, and its SYN ACK begins nothing. */
	if (known && !(p->starts_flow && p->ip.protocol == IPPROTO_TCP))
		return 0;
	return p->starts_flow ? start_path(p) : REASON_HOST_UNKNOWN_PATH;
}

/* Answers go by the uplink their flow came in by; of its own accord a pod only reaches the cluster. */
static __always_inline int find_uplink_path(struct packet *p)
{
	struct flow_path *known = bpf_map_lookup_elem(&paths_v1, &p->flow);

	if (known) {
		p->uplink = known->uplink;
		return known->via == PATH_UPLINK ? 0 : REASON_HOST_PATH;
	}
	if (!in_cluster(p, &p->ip.destination))
		return REASON_HOST_NOT_LOCAL;
	p->is_new_flow = true;
	return p->starts_flow ? 0 : REASON_HOST_UNKNOWN_PATH;
}

static __always_inline int find_path(struct packet *p)
{
	return p->receiver ? find_local_path(p) : find_uplink_path(p);
}

/*
 * What the host stack carried it must also get the answers of. Flows without a choice of paths need no memory; `always`
 * says that there is a choice, whatever the peer.
 */
static __always_inline void remember_host(struct packet *p, bool always)
{
	struct flow_path *known;

	if (!p->has_flow || p->is_icmp_error)
		return;
	known = bpf_map_lookup_elem(&paths_v1, &p->flow);
	if (known && known->via == PATH_HOST)
		return;
	if (known || always || in_cluster(p, &p->flow.peer) || find_address(p, &p->flow.peer))
		remember(&p->flow, PATH_HOST, 0);
}
