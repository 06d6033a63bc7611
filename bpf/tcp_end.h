/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Judges the ends of TCP connections that arrive by an uplink. conntrack has not seen the bytes on the fast path, so it
 * believes a FIN or RST with any sequence number. What its receiver would not accept is kept from conntrack: on the
 * fast path, or, if the host stack has to have the packet, without its FIN.
 */
#pragma once

#include "bpf/flow_cache.h"
#include "bpf/tables.h"

#define TCP_SCALE_MAX 14 /* RFC 7323, 2.3 */

/*
 * Whether the receiver has said that it accepts this number. As conntrack does while it is strict, a window below as
 * well: a FIN that is sent again, or a reset by a router, which replies to an older packet.
 */
static __always_inline bool is_within(const struct tcp_window *window, __u8 scale, __u32 number)
{
	__u32 size = (window->size + 1U) << (scale & 15);

	return window->is_known && number - window->ack + size < 2 * size;
}

/* As conntrack itself judges while it is strict, but for the acknowledgment. Its numbers may be old ones. */
static __always_inline bool is_in_tracked_window(const struct ip_ct_tcp_state___podlane *sender,
						 const struct ip_ct_tcp_state___podlane *receiver, __u32 number)
{
	__u32 first = sender->td_end - receiver->td_maxwin;

	return !sender->td_maxwin || !receiver->td_maxwin || number - first <= sender->td_maxend - first;
}

/* Of a connection, as far as it matters for the packet at hand. */
struct tracked_end {
	__u8 state;
	__u8 scale; /* of the receiver's window */
	bool may_bypass;
	bool is_in_window;
};

/* `sender` and `receiver` are in conntrack's memory; the verifier of 6.1 takes them for the state of DCCP. */
static __always_inline void read_windows(const void *sender, const void *receiver, __u32 number,
					 struct tracked_end *end)
{
	struct ip_ct_tcp_state___podlane from, to;

	end->scale = TCP_SCALE_MAX;
	if (!can_read_kernel || bpf_probe_read_kernel(&from, sizeof(from), sender) ||
	    bpf_probe_read_kernel(&to, sizeof(to), receiver))
		return;
	if (!(to.flags & CT_TCP_LIBERAL))
		end->scale = to.td_scale;
	end->is_in_window = from.flags & CT_TCP_LIBERAL || is_in_tracked_window(&from, &to, number);
}

static __always_inline void read_end(struct nf_conn___podlane *ct, struct tracked_end *end)
{
	const unsigned long not_judged = CT_DYING | CT_TEMPLATE | CT_HELPER | CT_SEQ_ADJUST | CT_OFFLOADED;
	struct net___podlane *net = ct->ct_net.net;

	asm volatile("" : "+r"(net));
	end->may_bypass = may_bypass(ct, net, IPPROTO_TCP);
	end->state = ct->status & not_judged || !(ct->status & CT_SEEN_REPLY) ? 0 : ct->proto.tcp.state;
}

/* The end of the flow in the scratch area, whose translation is left there. False: conntrack does not know it. */
static __always_inline bool query_end(struct __sk_buff *skb, struct flow_scratch *work, __u32 number,
				      struct tracked_end *end)
{
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct nf_conn___podlane *ct = find_connection(skb, work, &work->key);

	if (!ct)
		return false;
	read_end(ct, end);
	if (work->opts.dir) {
		read_translation(&ct->tuplehash[0].tuple, is_ipv4, &work->flow);
		read_windows(&ct->proto.tcp.seen[1], &ct->proto.tcp.seen[0], number, end);
	} else {
		read_translation(&ct->tuplehash[1].tuple, is_ipv4, &work->flow);
		read_windows(&ct->proto.tcp.seen[0], &ct->proto.tcp.seen[1], number, end);
	}
	bpf_ct_release(ct);
	return true;
}

enum window_result { WINDOW_UNKNOWN, WINDOW_ACCEPTS, WINDOW_REFUSES };

/* By what the receiver has said in packets on the fast path, and in those of the host stack. */
static __always_inline int query_windows(struct flow_scratch *work, __u8 scale, __u32 number)
{
	struct flow *sent = map_find(&flows_v2, find_other_key(work));
	struct forwarded *left;
	bool is_known = false;

	if (sent && sent->check == flow_check(&work->other)) {
		is_known = sent->window.is_known;
		if (is_within(&sent->window, scale, number))
			return WINDOW_ACCEPTS;
	}
	reverse_key(&work->key, &work->other);
	left = find_forwarded(&work->other);
	/* A reset may reply to a SYN, which has no acknowledgment. */
	if (left && (is_within(&left->window, scale, number) || !(is_known || left->window.is_known)))
		return WINDOW_ACCEPTS;
	return left || is_known ? WINDOW_REFUSES : WINDOW_UNKNOWN;
}

/*
 * Whether conntrack may see the end. It may if any of the windows that are known holds the number: an old one is not
 * easier to guess. While a connection is closed conntrack believes resets (Linux 6.2), and its windows are the host's.
 */
static __always_inline bool may_be_seen(struct flow_scratch *work, const struct tracked_end *end, __u32 number,
					__u32 flags)
{
	int result;

	if (end->state < CT_TCP_SYN_RECV || end->state > CT_TCP_LAST_ACK || end->is_in_window)
		return true;
	if (end->state > CT_TCP_ESTABLISHED && flags & TCP_RST)
		return true;
	result = query_windows(work, end->scale, number);
	return result == WINDOW_ACCEPTS || (result == WINDOW_UNKNOWN && end->state > CT_TCP_ESTABLISHED);
}

/* Whether the host's rules have let the pod's peer speak by this uplink. Leaves the flow's age in the scratch area. */
static __always_inline bool was_let_in(struct __sk_buff *skb, struct flow_scratch *work, const struct flow *known)
{
	struct forwarded *last;

	work->flow.since_ns = 0;
	work->flow.ifindex = 0;
	if (known && known->ifindex == skb->ifindex) {
		work->flow.since_ns = known->since_ns;
		return true;
	}
	last = find_forwarded(find_translated_key(work));
	return last && last->came_by == skb->ifindex;
}

/*
 * Returns enum follow, and leaves the flow's translation in the scratch area: as follow() if conntrack may see the end,
 * FOLLOW_HIDDEN if not, with FOLLOW_CONFIRMED if the fast path may deliver it. A global function: the verifier checks
 * it once.
 */
__attribute__((noinline)) int judge_end(struct __sk_buff *skb, __u32 number, __u32 flags)
{
	__u32 only = 0;
	struct flow_scratch *work = bpf_map_lookup_elem(&scratch, &only);
	struct tracked_end end = {};
	struct flow *known;

	if (!has_conntrack || !work)
		return 0;
	if (!query_end(skb, work, number, &end))
		return leave_as_is(work, 0);
	known = map_find(&flows_v2, &work->key);
	if (known && known->check != flow_check(&work->key))
		known = 0;
	if (may_be_seen(work, &end, number, flags)) {
		forget_flow(work);
		return leave_as_is(work, known ? FOLLOW_FORGOTTEN : 0);
	}
	if (!end.may_bypass || !was_let_in(skb, work, known))
		return FOLLOW_HIDDEN;
	return FOLLOW_HIDDEN | FOLLOW_CONFIRMED | (is_translated(&work->key, &work->flow) ? FOLLOW_TRANSLATED : 0) |
	       (work->opts.dir ? FOLLOW_REPLY : 0);
}

/* The number of the FIN, behind the segment's data, or of the reset. Of a fragment the data is not known. */
static __always_inline bool read_number(struct packet *p, __u32 *number)
{
	__u32 bytes = p->skb->len - sizeof(struct ethhdr);
	bool is_ipv4 = p->protocol == ETH_P_IP;
	__be32 sequence;
	__be16 length;

	if (bpf_skb_load_bytes(p->skb, p->l4_offset + sizeof(struct ports), &sequence, sizeof(sequence)) ||
	    bpf_skb_load_bytes(p->skb, sizeof(struct ethhdr) + (is_ipv4 ? 2 : 4), &length, sizeof(length)))
		return false;
	if (length)
		bytes = bpf_ntohs(length) + (is_ipv4 ? 0 : sizeof(struct ipv6hdr));
	*number = bpf_ntohl(sequence);
	if (!(p->tcp_flags & TCP_RST || p->is_first_fragment))
		*number += bytes - p->header_bytes;
	return true;
}

static __always_inline bool is_tcp_end(const struct packet *p)
{
	return has_conntrack && p->has_flow && p->ip.protocol == IPPROTO_TCP && p->tcp_flags & (TCP_FIN | TCP_RST) &&
	       !(p->tcp_flags & TCP_SYN);
}

static __always_inline int follow_end(struct packet *p)
{
	__u32 only = 0, number;
	struct flow_scratch *work = bpf_map_lookup_elem(&scratch, &only);

	if (!work || !read_number(p, &number))
		return 0;
	set_key(p, &work->key, TO_POD);
	p->follow = judge_end(p->skb, number, p->tcp_flags);
	p->ip.destination = work->flow.destination;
	p->new_destination_port = work->flow.destination_port;
	return p->follow & FOLLOW_FORGOTTEN ? REASON_HOST_PATH : 0;
}

/* Global functions: the verifier checks them once. */
__attribute__((noinline)) int clear_fin(struct __sk_buff *skb, __u32 l4)
{
	const __u32 flags = l4 + __builtin_offsetof(struct tcphdr, ack_seq) + sizeof(__be32);
	__be16 old, new;

	if (bpf_skb_load_bytes(skb, flags, &old, sizeof(old)))
		return 0;
	new = old & ~bpf_htons(TCP_FIN);
	return !bpf_l4_csum_replace(skb, l4 + __builtin_offsetof(struct tcphdr, check), old, new, sizeof(new)) &&
	       !bpf_skb_store_bytes(skb, flags, &new, sizeof(new), 0);
}

/* Whether a pod of this node has the source of the flow in the scratch area. */
__attribute__((noinline)) int is_in_pods_name(struct __sk_buff *skb)
{
	__u32 only = 0, ifindex = skb->ifindex;
	struct flow_scratch *work = bpf_map_lookup_elem(&scratch, &only);
	struct uplink *uplink = map_find(&uplinks_v2, &ifindex);

	if (!work || !uplink)
		return 0;
	for (int i = 0; i < UPLINK_NETWORKS && uplink->networks[i]; i++) {
		struct address_key key = {.network = uplink->networks[i], .addr = work->key.source};

		if (map_find(&addresses_v1, &key))
			return 1;
	}
	return 0;
}

/*
 * The host stack gets a segment without its FIN. If the peer has sent it, it sends it again, and then the host stack
 * has delivered a packet of it by this uplink: the fast path delivers the second one. Nobody sends a reset again, but
 * for the pod's next packet.
 */
static __always_inline int hide_end(struct packet *p, enum reason reason)
{
	if (!(p->follow & FOLLOW_HIDDEN) || p->verdict != VERDICT_NEXT)
		return reason;
	/* Connections of others are not judged: something else may keep conntrack from seeing them. */
	if (!p->receiver)
		return is_in_pods_name(p->skb) ? REASON_DROP_FORGED_END : reason;
	return !(p->tcp_flags & TCP_RST) && clear_fin(p->skb, p->l4_offset) ? reason : REASON_DROP_FORGED_END;
}
