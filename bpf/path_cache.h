/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The path cache of networks with an egress route and of containers with several interfaces. */
#pragma once

#include "bpf/tables.h"

static __always_inline bool cache_path(const struct path_key *flow, enum path_via via, __u32 uplink)
{
	struct flow_path path = {.since_ns = bpf_ktime_get_ns(), .via = via, .uplink = uplink};

	return map_insert(&paths_v1, flow, &path, BPF_ANY) == 0;
}

/* The replies of a flow that the host stack carried must take the host stack too. */
static __always_inline void cache_host_path(struct packet *p)
{
	struct flow_path *known;

	if (!p->has_flow || p->is_icmp_error)
		return;
	known = map_find(&paths_v1, &p->flow);
	if (!known || known->via != PATH_HOST)
		cache_path(&p->flow, PATH_HOST, 0);
}
