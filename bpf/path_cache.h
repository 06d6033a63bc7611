/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The path cache of networks with an egress route and of containers with several interfaces. */
#pragma once

#include "bpf/tables.h"

/* As conntrack counts a UDP flow as gone. */
#define PATH_IN_USE_NS 30000000000ULL
#define PATH_TOUCH_NS 1000000000ULL

static __always_inline bool cache_path(const struct path_key *flow, enum path_via via, __u32 uplink)
{
	struct flow_path path = {.since_ns = bpf_ktime_get_ns(), .via = via, .uplink = uplink};

	return map_insert(&paths_v1, flow, &path, BPF_ANY) == 0;
}

/* The uplink carries it still. Only the end of a TCP connection can be seen: others end when nothing comes for long. */
static __always_inline void keep_path(struct packet *p, struct flow_path *known)
{
	__u64 now;

	if (p->ip.protocol == IPPROTO_TCP || tracing)
		return;
	now = bpf_ktime_get_ns();
	if (now - known->since_ns > PATH_TOUCH_NS)
		known->since_ns = now;
}

/* A TCP endpoint replies so to a SYN; what else it sends is of a connection that it has. */
static __always_inline bool may_reply_to_syn(struct packet *p)
{
	return p->tcp_flags & TCP_RST || (p->tcp_flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK);
}

/* The uplink carries the flow, and this packet of the pod does not reply to a SYN that the host stack has delivered. */
static __always_inline bool is_carried_by_uplink(struct packet *p, const struct flow_path *known)
{
	return known->via != PATH_HOST && (known->uplink || !may_reply_to_syn(p));
}

/*
 * A packet from the host stack does not move a flow that the uplink carries: anybody on another uplink can send it in
 * the peer's name. A SYN may begin a connection, and the pod's reply to it says so: until then the entry names no
 * uplink. Other protocols have no such packet: for them nothing must have come by the uplink for long.
 */
static __always_inline void cache_host_path(struct packet *p)
{
	struct flow_path *known;

	if (!p->has_flow || p->is_icmp_error)
		return;
	known = map_find(&paths_v1, &p->flow);
	if (known && known->via == PATH_HOST)
		return;
	if (!known || (p->ip.protocol != IPPROTO_TCP && bpf_ktime_get_ns() - known->since_ns > PATH_IN_USE_NS))
		cache_path(&p->flow, PATH_HOST, 0);
	else if ((p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && !tracing)
		known->uplink = 0;
}
