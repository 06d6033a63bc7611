/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* firstPacket: direct. Which flows may take the fast path from their first packet on, and which replies. */
#pragma once

#include "bpf/nf_conn.h"
#include "bpf/packet.h"
#include "bpf/tables.h"

/* Above the flags of an untracked flow: ifindex of the uplink by which its replies have come, 0: none yet. */
#define FLOW_UPLINK_SHIFT 8

enum reply {
	REPLY_NONE = 0,
	REPLY_UNCHECKED, /* nothing has shown yet that the source is reached by this uplink */
	REPLY_CHECKED,
	REPLY_ERROR, /* about what the pod has sent not long ago */
};

/* So long conntrack would know a datagram without a reply (udp_timeout). */
#define REPLY_ERROR_NS 30000000000ULL

/*
 * Whether the pod has sent packets of this flow, whose key is in the scratch area, on the fast path: they are cached.
 * REPLY_CHECKED notes that replies may come by this uplink, until conntrack is queried again. The entry goes when the
 * host stack forwards a packet of the flow.
 */
__attribute__((noinline)) int find_reply(struct __sk_buff *skb, __u32 kind)
{
	const __u32 by_uplink = FLOW_UNTRACKED | skb->ifindex << FLOW_UPLINK_SHIFT;
	struct flow_scratch *work = find_scratch();
	struct flow *sent;
	__u64 age_ns;

	if (!work)
		return REPLY_NONE;
	reverse_key(&work->key, &work->other);
	sent = map_find(&flows_v2, &work->other);
	if (!sent || sent->check != flow_check(&work->other) || !(sent->flags & FLOW_UNTRACKED))
		return REPLY_NONE;
	age_ns = bpf_ktime_get_ns() - sent->confirmed_ns;
	if (kind == REPLY_ERROR)
		return age_ns < confirm_ns + REPLY_ERROR_NS ? REPLY_ERROR : REPLY_NONE;
	if (age_ns >= confirm_ns)
		return REPLY_NONE;
	if (kind == REPLY_CHECKED && !tracing)
		sent->flags = by_uplink;
	return sent->flags == by_uplink ? REPLY_CHECKED : REPLY_UNCHECKED;
}

/*
 * Whether first packets from or to the pod may be direct. UDP of containers with several interfaces goes through the
 * host stack: pl_to_pod caches which address a request is for, and the reply of an unbound socket leaves from it.
 */
static __always_inline bool may_be_direct(const struct address *pod, __u8 protocol)
{
	return pod->flags & INTERFACE_FIRST_DIRECT && !(protocol == IPPROTO_UDP && pod->flags & INTERFACE_PEERS);
}

/*
 * firstPacket: direct. MAY_BE_UNTRACKED if the flow in the scratch area is between two pods that want it, from the
 * sender's own address. Other nodes' pods are known by the cluster's ranges. A global function: the verifier checks it
 * once.
 */
__attribute__((noinline)) int may_be_untracked(struct __sk_buff *skb, __u32 network)
{
	struct address_key key = {.network = network};
	struct cluster_cidr_key range = {.prefixlen = 160, .network = bpf_htonl(network)};
	struct flow_scratch *work = find_scratch();
	struct address *owner;

	if (!work)
		return 0;
	key.addr = work->key.source;
	owner = map_find(&addresses_v1, &key);
	if (!owner || owner->ifindex != skb->ifindex || !may_be_direct(owner, work->key.protocol))
		return 0;
	key.addr = work->key.destination;
	owner = map_find(&addresses_v1, &key);
	if (owner)
		return may_be_direct(owner, work->key.protocol) ? MAY_BE_UNTRACKED : 0;
	range.addr = work->key.destination;
	return prefix_value_for(map_find(&cluster_cidr_v1, &range), &range.addr) ? MAY_BE_UNTRACKED : 0;
}
