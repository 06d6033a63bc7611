/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The maps of every program. The loader creates each once and lets all objects share it. */
#pragma once

#include "maps/abi/address.h"
#include "maps/abi/allowed_source.h"
#include "maps/abi/bandwidth.h"
#include "maps/abi/cluster_cidr.h"
#include "maps/abi/counter.h"
#include "maps/abi/endpoint.h"
#include "maps/abi/event.h"
#include "maps/abi/flow.h"
#include "maps/abi/history.h"
#include "maps/abi/interface.h"
#include "maps/abi/isolation.h"
#include "maps/abi/limit.h"
#include "maps/abi/names.h"
#include "maps/abi/network.h"
#include "maps/abi/path.h"
#include "maps/abi/sender.h"
#include "maps/abi/source_route.h"
#include "maps/abi/uplink.h"

/*
 * Sizes are defaults; the configuration of the first ADD sets others. Hashes without BPF_F_NO_PREALLOC take their
 * memory at once, the others an entry at a time.
 */

/* Attachments in words. User space only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct endpoint_key);
	__type(value, struct endpoint);
} endpoints_v1 SEC(".maps");

/* Host-side veths by ifindex. Written by ADD and DEL, read for every packet. 64 B an entry, some 80 of the kernel. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct interface);
} interfaces_v1 SEC(".maps");

/* Owners of addresses. Written by ADD (last of all) and DEL, read once or twice a packet. 44 B an entry. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct address_key);
	__type(value, struct address);
} addresses_v1 SEC(".maps");

/* Names of networks. User space only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct network);
} networks_v1 SEC(".maps");

/* Connections that conntrack has confirmed, by direction. Written and read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows_v2 SEC(".maps");

/* Flows that the host stack has forwarded. Written for packets on the slow path, read before a flow is cached. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow_key);
	__type(value, struct forwarded);
} forwarded_v2 SEC(".maps");

/* struct bpf_ct_opts as of 6.1; later kernels accept this size. */
struct ct_opts {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

/* Paths of flows whose first packets took the fast path. Written and read by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct path_key);
	__type(value, struct flow_path);
} paths_v1 SEC(".maps");

/* Paths that conntrack cannot restore, by ifindex: no other endpoint's flows evict them. An entry for each endpoint of
 * a network with an egress route, made by ADD; changed by the programs, read if paths_v1 has none. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct kept_paths);
} kept_paths_v1 SEC(".maps");

/* Counters by ifindex; entry 0 counts packets of interfaces that are no endpoint. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct counter_shares);
} counters_v3 SEC(".maps");

/* Prefixes an endpoint may send from besides its addresses. Read only for endpoints that have some. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct allowed_source_key);
	__type(value, __u32);
} allowed_srcs_v1 SEC(".maps");

/* Limits by ifindex, or by the number of a group. Written by ADD, DEL and podlanectl, read for each packet that is
 * limited. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct bandwidth);
} bandwidths_v1 SEC(".maps");

/* Uplinks by ifindex. Written by ADD, DEL and podlanectl, read for every packet on an uplink. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct uplink);
} uplinks_v2 SEC(".maps");

/* Ranges of other nodes' pods by network. Read for the first packet of a flow that leaves the node. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct cluster_cidr_key);
	__type(value, __u32);
} cluster_cidr_v1 SEC(".maps");

/* Addresses of containers with several interfaces, and egress routes of networks. Written by ADD and DEL, read
 * for packets from another interface's address and for those of networks with an uplink of their own. 72 B an entry. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct source_route_key);
	__type(value, struct source_route);
} source_route_v1 SEC(".maps");

/* The source routes of a container's interfaces by number. Written by ADD and DEL, read for UDP of containers with
 * several interfaces. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct source_slot_key);
	__type(value, struct source_route);
} source_slots_v1 SEC(".maps");

/* State of the limiter, by ifindex (or the number of a group) and direction. Made by ADD, DEL and podlanectl,
 * changed by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, struct limit_key);
	__type(value, struct limit_state);
} limit_state_v5 SEC(".maps");

/* Names of limits that pods share, by their numbers. User space only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct limit_group);
} limit_groups_v1 SEC(".maps");

/* Whether a prefix is shaped (1) or not (0). Read only for limits that make a difference. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct exempt_key);
	__type(value, __u32);
} exempt_v1 SEC(".maps");

/* Endpoints by namespace and address. Written by ADD and DEL, read by pl_pace for each connection of a pod. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 32768);
	__type(key, struct sender_key);
	__type(value, __u32);
} senders_v1 SEC(".maps");

/* Groups by ifindex. Written by ADD, DEL and podlanectl, read for packets to isolated endpoints. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct isolation);
} isolation_v1 SEC(".maps");

/* Prefixes of other nodes' pods that an isolated endpoint accepts (1) or not (0). Read for what comes from elsewhere.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct allowed_source_key);
	__type(value, __u32);
} group_cidrs_v1 SEC(".maps");

/* Whether a podlanectl watches. Written by podlanectl, read for every packet. One page. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct watch);
} watch_v1 SEC(".maps");

/* Events for podlanectl monitor and explain. Written by the programs while one of them runs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 262144);
} events_v1 SEC(".maps");

/* The plugin's last calls. User space only, by mapping it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct history);
} history_v1 SEC(".maps");
