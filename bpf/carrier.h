/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* By conntrack: who carries a flow of a network with an egress route, the host stack or the network's uplink. */
#pragma once

#include "bpf/conntrack.h"
#include "bpf/forwarded.h"
#include "bpf/path_cache.h"

#define CONNECTED 1 /* state of a socket of UDP, as of TCP that is established */

/* Who carries a flow, as conntrack says. */
enum carrier {
	CARRIER_UNKNOWN = 0, /* conntrack does not know the flow, or cannot be queried */
	CARRIER_UNANSWERED,  /* nobody has replied to what the host stack delivered */
	CARRIER_HOST,
	CARRIER_TRANSLATOR, /* the host stack, which translates it */
};

/*
 * Of the flow in the scratch area. A packet that opens a TCP connection is no reply, and what follows a SYN that was
 * delivered is one only if it is what a TCP endpoint replies to a SYN: all else belongs to a connection that conntrack
 * does not know. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int find_carrier(struct __sk_buff *skb, __u32 how)
{
	struct flow_scratch *work = find_scratch();
	struct nf_conn___podlane *ct;
	unsigned long status;
	bool is_reply, is_tcp;
	__u8 state;

	if (!has_conntrack || !work)
		return CARRIER_UNKNOWN;
	ct = find_connection(skb, work, &work->key);
	if (!ct)
		return CARRIER_UNKNOWN;
	is_tcp = work->key.protocol == IPPROTO_TCP;
	is_reply = work->opts.dir;
	status = ct->status;
	state = ct->proto.tcp.state;
	bpf_ct_release(ct);
	if (status & CT_NAT)
		return CARRIER_TRANSLATOR;
	if (is_tcp && (how & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return CARRIER_UNANSWERED;
	if (is_tcp && status & CT_SEEN_REPLY)
		return state >= CT_TCP_SYN_RECV && state <= CT_TCP_TIME_WAIT ? CARRIER_HOST : CARRIER_UNANSWERED;
	if (is_tcp)
		return is_reply && state == CT_TCP_SYN_SENT && how & (TCP_SYN | TCP_RST) ? CARRIER_HOST
											 : CARRIER_UNANSWERED;
	return is_reply || status & CT_SEEN_REPLY ? CARRIER_HOST : CARRIER_UNANSWERED;
}

static __always_inline bool knows_carrier(struct packet *p)
{
	return has_conntrack && (p->in->flow.protocol == IPPROTO_TCP || p->in->flow.protocol == IPPROTO_UDP);
}

static __always_inline int query_carrier(struct packet *p, enum direction from)
{
	set_key(p->in, &p->work->key, from);
	/* An error may be the reply to a SYN. */
	return find_carrier(p->skb, p->in->is_icmp_error ? TCP_RST : p->in->tcp_flags);
}

/* A connected socket of UDP has chosen its peer: what it sends is no reply to what anybody may have forged. */
static __always_inline bool has_connected_socket(struct packet *p)
{
	struct bpf_sock *socket = p->skb->sk;

	if (p->ip->protocol != IPPROTO_UDP || !socket)
		return false;
	socket = bpf_sk_fullsock(socket);
	return socket && socket->state == CONNECTED;
}

/*
 * Whether what a pod sends is of a flow that the host stack carries; `known` is what is cached of it, if anything. If
 * conntrack knows the flow, the cache is not read: an entry that is evicted costs nothing.
 */
static __always_inline bool is_carried_by_host(struct packet *p, const struct flow_path *known)
{
	bool opens = (p->in->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;

	if (!knows_carrier(p))
		return known && !is_init(p->skb);
	switch (query_carrier(p, FROM_POD)) {
	case CARRIER_TRANSLATOR:
		return true;
	case CARRIER_HOST:
		return !has_connected_socket(p);
	case CARRIER_UNKNOWN: /* such a node may track nothing */
		return known && p->interface->flags & INTERFACE_FIRST_DIRECT && !opens && !has_connected_socket(p);
	default:
		return false;
	}
}
