/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The path cache of networks whose first packets take the fast path, and of egress routes: a flow's replies take the
 * path of its requests.
 */
#pragma once

#include "bpf/tables.h"

/* The same flow as the endpoint at the other end sees it. */
static __always_inline struct path_key reverse_flow(const struct path_key *flow, __u32 ifindex)
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

static __always_inline bool cache_path(const struct path_key *flow, enum path_via via, __u32 uplink)
{
	struct flow_path path = {.since_ns = bpf_ktime_get_ns(), .via = via, .uplink = uplink};

	return map_insert(&paths_v1, flow, &path, BPF_ANY) == 0;
}

/*
 * Both directions are cached at once: a reply hardly ever starts a flow. If the other end already has a flow with the
 * same ports through the host stack, a Service's translation created it: only connection tracking can separate the two.
 */
static __always_inline int start_path(struct packet *p)
{
	struct path_key other = reverse_flow(&p->flow, p->receiver->ifindex);
	struct flow_path *theirs = map_find(&paths_v1, &other);

	if (theirs && theirs->via == PATH_HOST)
		return REASON_HOST_PATH;
	return cache_path(&p->flow, PATH_DIRECT, 0) && cache_path(&other, PATH_DIRECT, 0) ? 0
											  : REASON_HOST_UNKNOWN_PATH;
}

static __always_inline int find_local_path(struct packet *p)
{
	struct flow_path *known = map_find(&paths_v1, &p->flow);

	if (known && known->via != PATH_DIRECT)
		return REASON_HOST_PATH;
	/* A SYN starts a new flow: the other end's entry may be evicted, and its SYN ACK cannot start one. */
	if (known && !(p->starts_flow && p->ip.protocol == IPPROTO_TCP))
		return 0;
	return p->starts_flow ? start_path(p) : REASON_HOST_UNKNOWN_PATH;
}

/* Replies leave by the uplink that their flow came in by; flows that a pod starts may only reach the cluster. */
static __always_inline int find_uplink_path(struct packet *p)
{
	struct flow_path *known = map_find(&paths_v1, &p->flow);

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
 * The replies of a flow that the host stack carried must take the host stack too. Flows without a choice of paths need
 * no entry; `always` says that there is a choice, whatever the peer.
 */
static __always_inline void cache_host_path(struct packet *p, bool always)
{
	struct flow_path *known;

	if (!p->has_flow || p->is_icmp_error)
		return;
	known = map_find(&paths_v1, &p->flow);
	if (known && known->via == PATH_HOST)
		return;
	if (known || always || in_cluster(p, &p->flow.peer) || find_address(p, &p->flow.peer))
		cache_path(&p->flow, PATH_HOST, 0);
}
