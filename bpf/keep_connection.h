/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Keeps conntrack from forgetting TCP connections of which it sees one direction, or a part. */
#pragma once

#include "bpf/conntrack.h"
#include "bpf/forwarded.h"

/*
 * The host stack has carried a packet of the direction whose reverse is in the scratch area. conntrack did not see what
 * took the fast path: it counts data as unacknowledged for ever, and each packet on the slow path gives the connection
 * the few minutes of one whose peer is gone. Data rightly waits for its acknowledgment, which renews the time-out when
 * it comes, here or by a query, unless its direction was confirmed just now. A reset has a number that conntrack does
 * not expect, and leaves it an established connection, for minutes in newer kernels (6.12.118); the challenge of a
 * receiver that does not accept it (RFC 5961, 3.2) renews the time-out. A packet that conntrack has not counted, with
 * invalid flags or a wrong checksum, ends and renews nothing. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int renew_connection(struct __sk_buff *skb, __u32 has_data, __u32 is_reset)
{
	const unsigned long settled = CT_SEEN_REPLY | CT_ASSURED | CT_CONFIRMED;
	struct flow_scratch *work = find_scratch();
	struct nf_conn___podlane *ct;
	struct net___podlane *net;
	const struct flow *other;
	__u32 full, closed;

	if (!has_conntrack || !work || is_of_no_connection(skb))
		return 0;
	if (has_data && !is_reset) {
		other = map_find(&flows_v2, &work->other);
		if (!other || other->check != flow_check(&work->other) ||
		    bpf_ktime_get_ns() - other->confirmed_ns >= confirm_ns)
			return 0;
	}
	ct = find_connection(skb, work, &work->other);
	if (!ct)
		return 0;
	net = read_net(&ct->ct_net.net);
	if ((ct->status & (settled | CT_DYING)) == settled && ct->proto.tcp.state == CT_TCP_ESTABLISHED) {
		read_kernel(&full, sizeof(full), &net->ct.nf_ct_proto.tcp.timeouts[CT_TCP_ESTABLISHED]);
		read_kernel(&closed, sizeof(closed), &net->ct.nf_ct_proto.tcp.timeouts[CT_TCP_CLOSE]);
		if (is_reset)
			shorten_timeout(ct, closed);
		else if (ct->timeout - (__u32)bpf_jiffies64() < full - full / 8)
			renew_timeout(ct, net, IPPROTO_TCP, false);
	}
	bpf_ct_release(ct);
	return 0;
}

/* Of a pod that uses the fast path. */
static __always_inline void keep_connection(struct packet *p, enum direction from)
{
	bool is_reset = (p->in->tcp_flags & (TCP_RST | TCP_SYN | TCP_FIN)) == TCP_RST;

	if (!has_conntrack || !p->skb->ingress_ifindex || p->in->detour || !p->in->has_flow ||
	    p->ip->protocol != IPPROTO_TCP || !(is_reset || p->in->tcp_flags == TCP_ACK))
		return;
	set_key(p->in, &p->work->key, from);
	reverse_key(&p->work->key, &p->work->other);
	renew_connection(p->skb, p->skb->len - sizeof(struct ethhdr) > p->in->header_bytes, is_reset);
}
