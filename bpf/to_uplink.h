/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* TC egress of an uplink: caches the flows that leave through the host stack and its NAT, so that replies take it too.
 */
#pragma once

#include "bpf/finish.h"
#include "bpf/flow_cache.h"
#include "bpf/headers.h"
#include "bpf/keep_connection.h"
#include "bpf/path_cache.h"
#include "bpf/parse.h"
#include "bpf/tables.h"

static __always_inline int recognise_fast_path(struct packet *p)
{
	if (!(p->skb->mark & fast_mark))
		return 0;
	p->skb->mark &= ~fast_mark;
	return REASON_UPLINK_SENT;
}

/*
 * The kernel may send ARP requests with any of the node's addresses as sender, and neighbours with a reverse path
 * filter ignore requests from foreign addresses. A probe without a sender is answered by everybody (RFC 5227, 2.1.1).
 */
static __always_inline int clear_arp_sender(struct packet *p)
{
	const __u32 offset = sizeof(struct ethhdr) + __builtin_offsetof(struct arp_packet, sender);
	__u32 ifindex = p->skb->ifindex;
	struct uplink *uplink;
	struct arp_packet arp;
	__be32 nobody = 0;

	if (p->skb->protocol != bpf_htons(ETH_P_ARP))
		return 0;
	uplink = map_find(&uplinks_v2, &ifindex);
	if (!uplink || !(uplink->flags & UPLINK_UNNUMBERED))
		return 0;
	if (bpf_skb_load_bytes(p->skb, sizeof(struct ethhdr), &arp, sizeof(arp)) || arp.operation != bpf_htons(1))
		return 0;
	/* Announcements keep their sender. */
	if (arp.sender != arp.target)
		bpf_skb_store_bytes(p->skb, offset, &nobody, sizeof(nobody), 0);
	return 0;
}

/* Whether the host stack got it from a pod that uses the uplinks, whatever its source is now. */
static __always_inline bool is_from_fast_pod(struct packet *p)
{
	__u32 came_by = p->skb->ingress_ifindex;
	struct interface *sender = came_by ? map_find(&interfaces_v1, &came_by) : 0;

	return sender && sender->flags & INTERFACE_FAST_UPLINK;
}

static __always_inline int cache_sender_path(struct packet *p)
{
	struct address *sender;

	if (!p->in->has_flow)
		return REASON_UPLINK_SENT_HOST;
	sender = find_endpoint(p, &p->in->flow.local);
	note_forwarded(p, FROM_POD, sender && sender->flags & INTERFACE_FIRST_DIRECT);
	if (is_from_fast_pod(p))
		keep_connection(p, FROM_POD);
	if (sender && sender->flags & (INTERFACE_EGRESS_ROUTE | INTERFACE_PEERS)) {
		p->in->flow.ifindex = sender->ifindex;
		cache_host_path(p);
	}
	return REASON_UPLINK_SENT_HOST;
}

SEC("tc")
int pl_to_uplink(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT, .is_egress = true};
	int reason;

	/* clang-format off */
	reason = recognise_fast_path(&p)
	      ?: clear_arp_sender(&p)
	      ?: parse(&p, FROM_POD)
	      ?: notice_opening(&p, FROM_POD)
	      ?: cache_sender_path(&p);
	/* clang-format on */

	/* Packets of the host stack are never dropped. */
	return finish(&p, reason == REASON_DROP_MALFORMED ? REASON_UPLINK_SENT_HOST : reason);
}
