/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The path cache of networks with an egress route and of containers with several interfaces. */
#pragma once

#include "bpf/nf_conn.h"
#include "bpf/tables.h"

/* As conntrack counts a UDP flow as gone. */
#define PATH_IN_USE_NS 30000000000ULL
/* So often the source of what arrives is judged, and if nothing arrives, the destination of what the pod sends. */
#define PATH_JUDGED_NS 1000000000ULL
#define PATH_TOUCH_NS 2000000000ULL
/* As conntrack counts an association of SCTP as gone. */
#define SCTP_IN_USE_NS 210000000000ULL
/* For so long others do not get a kept path's slot: UDP and ICMP are replied to soon, SCTP's heartbeats come each 30 s.
 */
#define KEPT_REQUEST_NS 5000000000ULL
#define KEPT_NS 60000000000ULL
/* The fragments of a packet are sent at once. */
#define FRAGMENTS_NS 1000000000ULL

#define SCTP_CHUNK_TYPE 12 /* offset of the first chunk's type, behind the common header (RFC 9260, 3) */
#define SCTP_INIT 1

static __always_inline bool is_by_host(const struct flow_path *path)
{
	return path->via == PATH_HOST || path->via == PATH_INIT;
}

/* Only INIT begins an association of SCTP. A global function: the verifier checks it once. */
__attribute__((noinline)) int is_init(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	__u8 chunk;

	return work && work->parsed.ip.protocol == IPPROTO_SCTP &&
	       !bpf_skb_load_bytes(skb, work->parsed.l4_offset + SCTP_CHUNK_TYPE, &chunk, sizeof(chunk)) &&
	       chunk == SCTP_INIT;
}

static __always_inline bool is_same_flow(const struct path_key *a, const struct path_key *b)
{
	const __u32 *x = (const void *)a, *y = (const void *)b;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < sizeof(*a) / sizeof(*x); i++)
		if (x[i] != y[i])
			return false;
	return true;
}

static __always_inline __u32 kept_slot(const struct path_key *flow)
{
	const __u32 *word = (const void *)flow;
	__u32 hash = 0;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < sizeof(*flow) / sizeof(*word); i++)
		hash = (hash ^ word[i]) * 0x9e3779b1; /* 2^32 divided by the golden ratio */
	/* The upper bits: no bit of a factor counts in those of the product below it. */
	return hash >> 27 & (KEPT_PATHS - KEPT_WAYS);
}

/* conntrack cannot be queried about the protocol: nothing restores a path that was evicted. */
static __always_inline bool is_kept(const struct path_key *flow)
{
	return flow->protocol != IPPROTO_TCP && flow->protocol != IPPROTO_UDP;
}

static __always_inline bool is_request(const struct path_key *flow)
{
	return flow->protocol == IPPROTO_UDP || flow->protocol == IPPROTO_ICMP || flow->protocol == IPPROTO_ICMPV6;
}

/* Of a request at most the reply is lost: others take its slot. */
static __always_inline bool is_in_use(const struct kept_path *kept, const struct path_key *by, __u64 now)
{
	__u64 age = now - kept->path.since_ns;

	if (!kept->path.since_ns)
		return false;
	if (kept->flow.protocol == NEXTHDR_FRAGMENT)
		return age < FRAGMENTS_NS;
	return is_request(&kept->flow) ? is_request(by) && age < KEPT_REQUEST_NS : age < KEPT_NS;
}

/*
 * Which of its endpoint's kept paths is that of the flow in work->kept; KEPT_PATHS: none. A global function: the
 * verifier checks it once.
 */
__attribute__((noinline)) int find_kept_slot(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	struct kept_paths *all;
	__u32 first;

	all = work && skb ? bpf_map_lookup_elem(&kept_paths_v1, &work->kept.ifindex) : 0;
	if (!all)
		return KEPT_PATHS;
	first = kept_slot(&work->kept);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < KEPT_WAYS; i++) {
		__u32 slot = (first + i) & (KEPT_PATHS - 1);

		if (is_same_flow(&all->paths[slot].flow, &work->kept))
			return slot;
	}
	return KEPT_PATHS;
}

static __always_inline struct kept_path *find_kept_path(struct __sk_buff *skb, const struct path_key *flow)
{
	struct flow_scratch *work = find_scratch();
	struct kept_paths *all;
	__u32 slot;

	if (!work)
		return 0;
	work->kept = *flow;
	slot = find_kept_slot(skb);
	all = slot < KEPT_PATHS ? bpf_map_lookup_elem(&kept_paths_v1, &flow->ifindex) : 0;
	if (!all)
		return 0;
	asm volatile("" : "+r"(slot)); /* or clang adds it to what may be no pointer */
	return &all->paths[slot & (KEPT_PATHS - 1)];
}

/* The one whose flow was silent for longest; 0: all are in use. */
static __always_inline struct kept_path *find_free_slot(const struct path_key *flow, __u64 now)
{
	struct kept_paths *all = bpf_map_lookup_elem(&kept_paths_v1, &flow->ifindex);
	struct kept_path *free = 0;
	__u32 first;

	if (!all)
		return 0;
	first = kept_slot(flow);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < KEPT_WAYS; i++) {
		struct kept_path *kept = &all->paths[(first + i) & (KEPT_PATHS - 1)];

		if (!is_in_use(kept, flow, now) && (!free || kept->path.since_ns < free->path.since_ns))
			free = kept;
	}
	return free;
}

/* This path took the flow, or packet, that work->kept names; `via` is enum path_via. A global function: the verifier
 * checks it once. */
__attribute__((noinline)) int store_kept_path(struct __sk_buff *skb, __u32 via, __u32 uplink)
{
	struct flow_scratch *work = find_scratch();
	__u64 now = bpf_ktime_get_ns();
	struct kept_path *kept;

	if (tracing || !work)
		return 0;
	kept = find_kept_path(skb, &work->kept) ?: find_free_slot(&work->kept, now);
	if (!kept)
		return 0;
	kept->flow = work->kept;
	kept->path.since_ns = now;
	kept->path.via = via;
	kept->path.uplink = uplink;
	return 0;
}

static __always_inline void keep_path(struct packet *p, enum path_via via, __u32 uplink)
{
	p->work->kept = p->in->flow;
	store_kept_path(p->skb, via, uplink);
}

/* In the place of its flow, which only the first fragment of a packet names. */
static __always_inline void name_by_fragment(struct packet *p)
{
	struct path_key *name = &p->work->kept;

	name->ifindex = p->skb->ifindex;
	name->local = p->ip->source;
	name->peer = p->ip->destination;
	name->local_port = p->in->fragment;
	name->peer_port = p->in->fragment >> 16;
	name->protocol = NEXTHDR_FRAGMENT;
}

static __always_inline bool has_first_fragment_left_by_host(struct packet *p)
{
	struct kept_path *kept;

	name_by_fragment(p);
	kept = find_kept_path(p->skb, &p->work->kept);
	return kept && bpf_ktime_get_ns() - kept->path.since_ns < FRAGMENTS_NS;
}

/* Of a flow that is not in paths_v1. Of UDP, conntrack restores what came through the host stack, if nothing else did.
 */
static __always_inline struct flow_path *find_path_kept(struct packet *p)
{
	struct kept_path *kept = p->in->flow.protocol != IPPROTO_TCP ? find_kept_path(p->skb, &p->in->flow) : 0;

	if (!kept || (!is_kept(&p->in->flow) && bpf_ktime_get_ns() - kept->path.since_ns >= PATH_IN_USE_NS))
		return 0;
	return &kept->path;
}

static __always_inline struct flow_path *find_path(struct packet *p)
{
	return map_find(&paths_v1, &p->in->flow) ?: find_path_kept(p);
}

/* `age_ns`: how long ago the source of an arriving packet was judged. */
static __always_inline bool cache_path(const struct path_key *flow, enum path_via via, __u32 uplink, __u64 age_ns)
{
	struct flow_path path = {.since_ns = bpf_ktime_get_ns() - age_ns, .via = via, .uplink = uplink};

	return map_insert(&paths_v1, flow, &path, BPF_ANY) == 0;
}

/* A TCP endpoint replies so to a SYN; what else it sends is of a connection that it has. */
static __always_inline bool may_reply_to_syn(struct packet *p)
{
	return p->in->tcp_flags & TCP_RST || (p->in->tcp_flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK);
}

/* The uplink carries the flow, and this packet of the pod does not reply to a SYN that the host stack has delivered. */
static __always_inline bool is_carried_by_uplink(struct packet *p, const struct flow_path *known)
{
	return !is_by_host(known) && (known->uplink || !may_reply_to_syn(p));
}

/* Neither by the node nor by its pods, to whom the host stack carries all packets anyway. */
static __always_inline bool is_from_elsewhere(struct packet *p)
{
	__u32 came_by = p->skb->ingress_ifindex;

	return came_by && !map_find(&interfaces_v1, &came_by);
}

/* Nothing has come by the uplink for long, and this packet may be the first of another flow. */
static __always_inline bool is_abandoned(struct packet *p, const struct flow_path *known)
{
	__u64 age = bpf_ktime_get_ns() - known->since_ns;

	if (p->ip->protocol == IPPROTO_TCP)
		return false;
	if (p->ip->protocol != IPPROTO_SCTP)
		return age > PATH_IN_USE_NS;
	return age > SCTP_IN_USE_NS && is_init(p->skb);
}

/* Whether the host stack has let packets of both ends through; of a protocol that it does not follow, it may have. */
static __always_inline bool is_answered(struct packet *p)
{
	__u32 info = ctinfo_of(p->skb);

	return p->ip->protocol != IPPROTO_SCTP || info == CTINFO_ESTABLISHED || info == CTINFO_ESTABLISHED_REPLY;
}

/*
 * A packet from the host stack does not move a flow that the uplink carries: anybody on another uplink can send it in
 * the peer's name. A SYN may begin a connection, and the pod's reply to it says so: until then the entry names no
 * uplink. Of SCTP only INIT begins one, which the uplink's own may follow. Other protocols have no such packet.
 */
static __always_inline void cache_host_path(struct packet *p)
{
	enum path_via via = PATH_HOST;
	struct flow_path *known;

	if (!p->in->has_flow || p->in->is_icmp_error)
		return;
	known = find_path(p);
	if (known && !is_by_host(known) && !is_abandoned(p, known)) {
		if ((p->in->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && !tracing)
			known->uplink = 0;
		return;
	}
	if (!is_answered(p)) {
		if (!is_init(p->skb))
			return;
		if (!known || known->via != PATH_HOST)
			via = PATH_INIT;
	}
	if (!known || known->via != via)
		cache_path(&p->in->flow, via, 0, 0);
	if (is_kept(&p->in->flow) && is_from_elsewhere(p))
		keep_path(p, via, 0);
}
