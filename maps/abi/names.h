/* SPDX-License-Identifier: MIT */
/* Names of the pinned objects, and the fixed numbers other tools may meet on a node. */
#pragma once

/* The directory on a bpffs that holds everything of Podlane unless the configuration says otherwise. */
#define PODLANE_ROOT "/sys/fs/bpf/podlane"

/*
 * A map's name carries the version of its layout: a changed struct is a new version and a new map.
 * Kernel object names hold 15 characters (BPF_OBJ_NAME_LEN).
 */
#define PODLANE_MAP_ENDPOINTS "endpoints_v1"
#define PODLANE_MAP_INTERFACES "interfaces_v1"
#define PODLANE_MAP_ADDRESSES "addresses_v1"
#define PODLANE_MAP_NETWORKS "networks_v1"
#define PODLANE_MAP_PATHS "paths_v1"
#define PODLANE_MAP_KEPT_PATHS "kept_paths_v1"
#define PODLANE_MAP_FLOWS "flows_v2"
#define PODLANE_MAP_FORWARDED "forwarded_v2"
#define PODLANE_MAP_COUNTERS "counters_v3"
#define PODLANE_MAP_SOURCES "allowed_srcs_v1"
#define PODLANE_MAP_BANDWIDTHS "bandwidths_v1"
#define PODLANE_MAP_UPLINKS "uplinks_v2"
#define PODLANE_MAP_CIDRS "cluster_cidr_v1"
#define PODLANE_MAP_SOURCE_ROUTES "source_route_v1"
#define PODLANE_MAP_SOURCE_SLOTS "source_slots_v1"
#define PODLANE_MAP_LIMITS "limit_state_v5"
#define PODLANE_MAP_LIMIT_GROUPS "limit_groups_v1"
#define PODLANE_MAP_EXEMPT "exempt_v1"
#define PODLANE_MAP_SENDERS "senders_v1"
#define PODLANE_MAP_ISOLATION "isolation_v1"
#define PODLANE_MAP_GROUP_CIDRS "group_cidrs_v1"
#define PODLANE_MAP_WATCH "watch_v1"
#define PODLANE_MAP_EVENTS "events_v1"
#define PODLANE_MAP_HISTORY "history_v1"

/* X(name), in the order in which people read of them. */
#define PODLANE_MAPS(X)                                                                                                \
	X(PODLANE_MAP_ENDPOINTS)                                                                                       \
	X(PODLANE_MAP_INTERFACES)                                                                                      \
	X(PODLANE_MAP_ADDRESSES)                                                                                       \
	X(PODLANE_MAP_NETWORKS)                                                                                        \
	X(PODLANE_MAP_PATHS)                                                                                           \
	X(PODLANE_MAP_KEPT_PATHS)                                                                                      \
	X(PODLANE_MAP_FLOWS)                                                                                           \
	X(PODLANE_MAP_FORWARDED)                                                                                       \
	X(PODLANE_MAP_COUNTERS)                                                                                        \
	X(PODLANE_MAP_SOURCES)                                                                                         \
	X(PODLANE_MAP_BANDWIDTHS)                                                                                      \
	X(PODLANE_MAP_UPLINKS)                                                                                         \
	X(PODLANE_MAP_CIDRS)                                                                                           \
	X(PODLANE_MAP_SOURCE_ROUTES)                                                                                   \
	X(PODLANE_MAP_SOURCE_SLOTS)                                                                                    \
	X(PODLANE_MAP_LIMITS)                                                                                          \
	X(PODLANE_MAP_LIMIT_GROUPS)                                                                                    \
	X(PODLANE_MAP_EXEMPT)                                                                                          \
	X(PODLANE_MAP_SENDERS)                                                                                         \
	X(PODLANE_MAP_ISOLATION)                                                                                       \
	X(PODLANE_MAP_GROUP_CIDRS)                                                                                     \
	X(PODLANE_MAP_WATCH)                                                                                           \
	X(PODLANE_MAP_EVENTS)                                                                                          \
	X(PODLANE_MAP_HISTORY)

#define PODLANE_PROGRAM_PREFIX "pl_"
/* Program names as the kernel shows them; the prefix distinguishes ours from other agents'. */
#define PODLANE_PROGRAM_FROM_POD "pl_from_pod"
#define PODLANE_PROGRAM_TO_POD "pl_to_pod"
#define PODLANE_PROGRAM_FROM_UPLINK "pl_from_uplink"
#define PODLANE_PROGRAM_TO_UPLINK "pl_to_uplink"
#define PODLANE_PROGRAM_PACE "pl_pace"

#define PODLANE_PROGRAMS(X)                                                                                            \
	X(PODLANE_PROGRAM_FROM_POD)                                                                                    \
	X(PODLANE_PROGRAM_TO_POD)                                                                                      \
	X(PODLANE_PROGRAM_FROM_UPLINK)                                                                                 \
	X(PODLANE_PROGRAM_TO_UPLINK)                                                                                   \
	X(PODLANE_PROGRAM_PACE)

/* The pin of the link that keeps pl_pace on the cgroup v2 root; missing if there is no cgroup v2. */
#define PODLANE_PIN_PACING "pl_pace_link"

/* Podlane's clsact filters: one priority, one handle ("PL"), so that other filters are never touched. */
#define PODLANE_TC_PRIORITY 20
#define PODLANE_TC_HANDLE 0x504c
