/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* TC ingress of an uplink: handles what comes from other nodes. */
#pragma once

#include "bpf/carrier.h"
#include "bpf/fib.h"
#include "bpf/finish.h"
#include "bpf/flow_cache.h"
#include "bpf/forward.h"
#include "bpf/hidden.h"
#include "bpf/isolation.h"
#include "bpf/parse.h"
#include "bpf/path_cache.h"
#include "bpf/route.h"
#include "bpf/strip.h"
#include "bpf/tables.h"
#include "bpf/tcp_end.h"
#include "bpf/uplink_responder.h"

/*
 * A TCP header must not hide from follow_end(): the host stack puts fragments together, and strips stacked priority
 * tags. The kernel discards fragments that overlap.
 */
static __always_inline int refuse_hidden_header(struct packet *p)
{
	__be16 tag;

	if (!p->in->detour)
		return 0;
	if (p->in->is_first_fragment && p->in->is_padded &&
	    p->in->protocol == ETH_P_IPV6) /* longer than what Ethernet pads */
		return REASON_DROP_HIDDEN_HEADER;
	if (p->in->has_unread_headers)
		return may_be_tcp(find_hidden(p->skb)) ? REASON_DROP_HIDDEN_HEADER : 0;
	if (is_tcp_cut(p) || (p->in->is_first_fragment && !p->in->has_flow && is_extension(p->ip->protocol)))
		return REASON_DROP_HIDDEN_HEADER;
	if (!has_priority_tag(p) || p->in->protocol ||
	    bpf_skb_load_bytes(p->skb, sizeof(struct ethhdr), &tag, sizeof(tag)))
		return 0;
	return tag & bpf_htons(VLAN_ID_MASK) ? 0 : REASON_DROP_HIDDEN_HEADER;
}

static __always_inline int follow_arriving(struct packet *p)
{
	return is_tcp_end(p) ? follow_end(p) : follow_flow(p, TO_POD, false);
}

/* Of an IP packet for a pod: without the tag, the headers are all that chooses the packet's path. */
static __always_inline int strip_arriving(struct packet *p)
{
	if (p->in->detour != REASON_HOST_VLAN || p->skb->pkt_type != PACKET_HOST)
		return 0;
	return take_tag_off(p->skb) ?: parse(p, TO_POD);
}

static __always_inline int find_local_receiver(struct packet *p)
{
	int reason;

	if (p->in->protocol != ETH_P_IP && p->in->protocol != ETH_P_IPV6)
		return REASON_HOST_NOT_IP;
	p->receiver = find_endpoint(p, &p->ip->destination);
	if (!p->receiver)
		return REASON_HOST_NOT_LOCAL;
	if (p->in->detour && (p->follow & FOLLOW_HIDDEN || !(p->receiver->flags & INTERFACE_EGRESS_ROUTE)))
		return p->in->detour;
	reason = strip_arriving(p);
	if (reason)
		return reason;
	if (p->in->detour && !needs_no_flow(p))
		return p->in->detour;
	/* A source address of this node's pods is forged: the host stack decides about it. */
	if (find_address(p, &p->ip->source))
		return REASON_HOST_SOURCE_LOCAL;
	p->in->flow.ifindex = p->receiver->ifindex;
	if (p->in->is_padded && p->skb->pkt_type == PACKET_HOST && take_padding_off(p->skb))
		return REASON_HOST_LENGTH;
	return check_receiver(p, INTERFACE_FAST_UPLINK | INTERFACE_EGRESS_ROUTE);
}

/* Only what the host stack translates; if conntrack has no answer, by the cache. */
static __always_inline bool is_for_host(struct packet *p, const struct flow_path *known)
{
	if (knows_carrier(p))
		return query_carrier(p, TO_POD) == CARRIER_TRANSLATOR;
	return known && (known->via == PATH_HOST || (known->via == PATH_INIT && !is_init(p->skb)));
}

/* Whether a packet of the flow has come by this uplink not long ago, and its source was not refused. */
static __always_inline bool is_judged(struct packet *p, const struct flow_path *known)
{
	return !is_by_host(known) && known->uplink == p->skb->ifindex &&
	       bpf_ktime_get_ns() - known->since_ns < PATH_JUDGED_NS;
}

/*
 * On an egress route the host stack only gets replies to what it sent itself. Fragments use no cached path: only the
 * first names its flow, and all have to take one path. An error is of its sender, not of the flow that it quotes.
 */
static __always_inline int find_egress_route_path(struct packet *p)
{
	bool is_named = p->in->has_flow && !p->in->is_fragment;
	struct flow_path *known = 0;

	if (is_left_to_policies(p->skb, p->receiver->ifindex, p->skb->ifindex, p->follow))
		return REASON_HOST_IPSEC;
	if (is_named)
		known = map_find(&paths_v1, &p->in->flow);
	if (known && !p->in->is_icmp_error && is_judged(p, known))
		return 0;
	if (is_named && !known)
		known = find_path_kept(p);
	if (is_named && !(known && !is_by_host(known)) && is_for_host(p, known))
		return REASON_HOST_PATH;
	if (is_refused_source(p, false))
		return REASON_HOST_SOURCE_LOCAL;
	if (!leads_to_receiver(p))
		return REASON_HOST_NO_ROUTE;
	p->is_new_flow = is_named && !p->in->is_icmp_error;
	if (p->is_new_flow)
		cache_path(&p->in->flow, PATH_UPLINK, p->skb->ifindex, 0);
	return 0;
}

/*
 * From pods of other nodes: not of a connection that the host stack knows. Errors come from routers as well: what
 * counts is that the pod has sent what they are about. Nothing is cached.
 */
static __always_inline int find_direct_path(struct packet *p)
{
	int reply;

	if (!may_be_direct(p->receiver, p->ip->protocol) || !can_be_queried(p) ||
	    !(p->in->is_icmp_error || in_cluster(p, &p->ip->source)))
		return REASON_HOST_UNCONFIRMED;
	reply = find_reply(p->skb, p->in->is_icmp_error ? REPLY_ERROR : REPLY_NONE);
	if (reply == REPLY_CHECKED)
		return 0;
	if (reply == REPLY_ERROR && has_policies_cached(p->skb))
		return REASON_HOST_IPSEC;
	if (reply == REPLY_NONE &&
	    (p->in->is_icmp_error ||
	     !(follow(p->skb, p->in->tcp_flags | MAY_BE_UNTRACKED | READ_ONLY) & FOLLOW_UNTRACKED)))
		return REASON_HOST_UNCONFIRMED;
	if (is_refused_source(p, true))
		return REASON_HOST_SOURCE_LOCAL;
	if (!leads_to_receiver(p))
		return REASON_HOST_NO_ROUTE;
	if (reply == REPLY_UNCHECKED)
		find_reply(p->skb, REPLY_CHECKED);
	return 0;
}

/*
 * The node's routes and its reverse path filter may have changed since the host stack let the connection through. If
 * the source is not reached by this uplink, the host stack decides again, with one packet of each query. Where the
 * kernel's memory may not be read, what the host stack let through may have been a forged packet of no connection.
 */
static __always_inline int check_renewed_source(struct packet *p)
{
	const __u32 judged = can_read_kernel ? FOLLOW_RENEWED : FOLLOW_QUERIED;

	if (!(p->follow & judged) || is_reached_by_uplink(p->skb, p->follow))
		return 0;
	forget_key();
	return REASON_HOST_SOURCE_LOCAL;
}

static __always_inline int find_path_in(struct packet *p)
{
	if (p->follow & FOLLOW_CONFIRMED)
		return check_renewed_source(p) ?: check_destination(p);
	if (p->receiver->flags & INTERFACE_EGRESS_ROUTE)
		return find_egress_route_path(p);
	return find_direct_path(p);
}

/* Of UDP once a second, or, if it decides to which of a container's addresses it was sent, each time. */
static __always_inline int keep_delivered_path(struct packet *p)
{
	__u32 flags = p->receiver->flags;

	if (!(flags & INTERFACE_EGRESS_ROUTE) || !p->in->has_flow || p->in->is_fragment || p->in->is_icmp_error)
		return 0;
	if (p->in->flow.protocol != IPPROTO_TCP && (is_kept(&p->in->flow) || p->is_new_flow || flags & INTERFACE_PEERS))
		keep_path(p, PATH_UPLINK, p->skb->ifindex);
	return 0;
}

SEC("tc")
int pl_from_uplink(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT};
	int reason;

	/* clang-format off */
	reason = parse(&p, TO_POD)
	      ?: refuse_hidden_header(&p)
	      ?: notice_opening(&p, TO_POD)
	      ?: respond_on_uplink(&p)
	      ?: follow_arriving(&p)
	      ?: find_local_receiver(&p)
	      ?: find_path_in(&p)
	      ?: check_isolation_of_remote(&p)
	      ?: keep_delivered_path(&p)
	      ?: deliver(&p, REASON_UPLINK_DELIVERED);
	/* clang-format on */

	reason = hide_end(&p, reason);
	return finish(&p, p.verdict == VERDICT_NEXT ? refuse_isolated_name(skb, reason) : reason);
}
