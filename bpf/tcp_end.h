/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Judges the ends of TCP connections that arrive by an uplink. conntrack has not seen the bytes on the fast path, so it
 * believes a FIN or RST with any sequence number. An end that its receiver would not accept is kept from conntrack: on
 * the fast path, or, if the host stack has to have the packet, without its FIN. Of the node's own connections conntrack
 * sees all, but is liberal as well: there the socket judges.
 */
#pragma once

#include "bpf/flow_cache.h"
#include "bpf/tables.h"
#include "maps/abi/tcp_window.h"

#define TCP_SCALE_MAX 14     /* RFC 7323, 2.3 */
#define MAX_ACK_WINDOW 66000 /* MAXACKWINCONST of conntrack */

/* Of a connection, as far as it matters for the packet at hand. */
struct tracked_end {
	__u8 state;
	__u8 scale; /* of the receiver's window */
	__u8 sender_scale;
	bool may_bypass;
	bool is_in_window;
};

/* Whether the receiver has said that it accepts this end: a FIN, or a reset, which needs no acknowledgment. A router
 * sends resets in reply to an older packet. */
static __always_inline bool is_within(const struct tcp_window *window, const struct tracked_end *end,
				      const struct tcp_end *said)
{
	return is_in_window(window, end->scale, said->number) &&
	       (said->is_reset || acknowledges_sent(window, end->sender_scale, said->ack));
}

/* As conntrack itself judges while it is strict. Its numbers may be old ones. Resets need no acknowledgment. */
static __always_inline bool is_in_tracked_window(const struct ip_ct_tcp_state___podlane *sender,
						 const struct ip_ct_tcp_state___podlane *receiver,
						 const struct tcp_end *said)
{
	__u32 first = sender->td_end - receiver->td_maxwin;
	__u32 most_unacknowledged = sender->td_maxwin > MAX_ACK_WINDOW ? sender->td_maxwin : MAX_ACK_WINDOW;

	if (!sender->td_maxwin || !receiver->td_maxwin)
		return true;
	return said->number - first <= sender->td_maxend - first &&
	       (said->is_reset || receiver->td_end - said->ack <= most_unacknowledged);
}

/* `sender` and `receiver` are in conntrack's memory; the verifier of 6.1 takes them for the state of DCCP. */
static __always_inline void read_windows(struct flow_scratch *work, const void *sender, const void *receiver,
					 struct tracked_end *end)
{
	struct ip_ct_tcp_state___podlane *from = (void *)work->seen[0], *to = (void *)work->seen[1];

	end->scale = TCP_SCALE_MAX;
	end->sender_scale = TCP_SCALE_MAX;
	if (!can_read_kernel || bpf_probe_read_kernel(from, sizeof(*from), sender) ||
	    bpf_probe_read_kernel(to, sizeof(*to), receiver))
		return;
	if (!(to->flags & CT_TCP_LIBERAL))
		end->scale = to->td_scale;
	if (!(from->flags & CT_TCP_LIBERAL))
		end->sender_scale = from->td_scale;
	end->is_in_window = from->flags & CT_TCP_LIBERAL || is_in_tracked_window(from, to, &work->end);
}

static __always_inline void read_end(struct nf_conn___podlane *ct, struct tracked_end *end)
{
	const unsigned long not_judged = CT_DYING | CT_TEMPLATE | CT_HELPER | CT_SEQ_ADJUST | CT_OFFLOADED;
	struct net___podlane *net = read_net(&ct->ct_net.net);

	end->may_bypass = !has_ipsec_policies(net) && may_bypass(ct, net, IPPROTO_TCP, 0);
	end->state = ct->status & not_judged || !(ct->status & CT_SEEN_REPLY) ? 0 : ct->proto.tcp.state;
}

/* The end of the flow in the scratch area, whose translation is left there. False: conntrack does not know it. */
static __always_inline bool query_end(struct __sk_buff *skb, struct flow_scratch *work, struct tracked_end *end)
{
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct nf_conn___podlane *ct = find_connection(skb, work, &work->key);

	if (!ct)
		return false;
	read_end(ct, end);
	if (work->opts.dir) {
		read_translation(&ct->tuplehash[0].tuple, is_ipv4, &work->flow);
		read_windows(work, &ct->proto.tcp.seen[1], &ct->proto.tcp.seen[0], end);
	} else {
		read_translation(&ct->tuplehash[1].tuple, is_ipv4, &work->flow);
		read_windows(work, &ct->proto.tcp.seen[0], &ct->proto.tcp.seen[1], end);
	}
	bpf_ct_release(ct);
	return true;
}

enum window_result { WINDOW_UNKNOWN, WINDOW_ACCEPTS, WINDOW_REFUSES };

/* The host-side veth of the pod that receives the flow in the scratch area; 0: none. */
static __always_inline __u32 find_receiving(const struct flow_scratch *work, const struct uplink *uplink)
{
	struct address *receiver = find_in(uplink, &work->flow.destination);

	return receiver ? receiver->ifindex : find_owner_on_node(&work->flow.destination);
}

/* Whether what came by this interface is the pod's: others on an uplink can send in its name. */
static __always_inline bool is_said_by(__u32 pod, __u32 came_by)
{
	return came_by == pod || (is_behind_bridge(pod) && !map_find(&uplinks_v2, &came_by));
}

/* By what the receiver has said in packets on the fast path, and in those of the host stack. */
static __always_inline int query_windows(struct flow_scratch *work, const struct tracked_end *end, __u32 receiver)
{
	struct flow *sent = map_find(&flows_v2, find_other_key(work));
	struct forwarded *left;
	bool is_known = false;

	if (sent && sent->check == flow_check(&work->other) && sent->ifindex == receiver) {
		is_known = sent->window.sent;
		if (is_within(&sent->window, end, &work->end))
			return WINDOW_ACCEPTS;
	}
	reverse_key(&work->key, &work->other);
	left = find_forwarded(&work->other);
	if (left && !is_said_by(receiver, left->came_by))
		left = 0;
	/* A reset may reply to a SYN, which has no acknowledgment. */
	if (left && (is_within(&left->window, end, &work->end) || !(is_known || left->window.sent)))
		return WINDOW_ACCEPTS;
	return left || is_known ? WINDOW_REFUSES : WINDOW_UNKNOWN;
}

/* By RFC 5961 (3.2, 5.2), and a window below, as above. */
static __always_inline bool is_discarded(const struct tcp_sock___podlane *tcp, const struct tcp_end *said)
{
	__u32 size = tcp->rcv_wnd + 65535, first_ack = tcp->snd_una - tcp->max_window;

	if (said->number - tcp->rcv_nxt + size >= 2 * size)
		return true;
	return !said->is_reset && said->ack - first_ack > tcp->snd_nxt - first_ack;
}

#define JUDGED_STATES                                                                                                  \
	(1 << BPF_TCP_ESTABLISHED | 1 << BPF_TCP_FIN_WAIT1 | 1 << BPF_TCP_FIN_WAIT2 | 1 << BPF_TCP_CLOSE_WAIT |        \
	 1 << BPF_TCP_LAST_ACK | 1 << BPF_TCP_CLOSING)

/* The socket that receives the flow, to be released: no listener, and none that is just made or over. */
static __always_inline struct bpf_sock *find_socket(struct __sk_buff *skb, const struct flow_key *key, __u64 netns)
{
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *socket;

	make_tuple(key, is_ipv4, &tuple);
	socket = bpf_skc_lookup_tcp(skb, &tuple, is_ipv4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6), netns, 0);
	if (!socket || JUDGED_STATES & 1U << (socket->state & 31))
		return socket;
	bpf_sk_release(socket);
	return 0;
}

/*
 * Whether conntrack may see the end. It may if any of the windows that are known holds the number: an old one is not
 * easier to guess. While a connection is closed conntrack believes resets (Linux 6.2), and its windows are the host's.
 */
static __always_inline bool may_be_seen(struct flow_scratch *work, const struct tracked_end *end, __u32 receiver)
{
	int result;

	if (end->state < CT_TCP_SYN_RECV || end->state > CT_TCP_LAST_ACK || end->is_in_window)
		return true;
	if (end->state > CT_TCP_ESTABLISHED && work->end.is_reset)
		return true;
	result = query_windows(work, end, receiver);
	return result == WINDOW_ACCEPTS || (result == WINDOW_UNKNOWN && end->state > CT_TCP_ESTABLISHED);
}

/* Whether a pod of this node has the address, whatever its network: the host stack delivers to all of them. */
static __always_inline bool is_pods(const struct uplink *uplink, const struct ip_addr *addr)
{
	return find_in(uplink, addr) || find_owner_on_node(addr);
}

/*
 * Whether the flow in the scratch area is from a pod of this node to none of them. Nobody on an uplink speaks for the
 * pod, whatever number he has: the windows of the pod's peer are known by packets that he can send as well. But what a
 * pod sends by its network's own uplink may come back from a router by another one, and is judged; and a frame for
 * another host, such as a macvlan on the uplink, is none of the node's. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int is_in_pods_name(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct flow_scratch *work = find_scratch();
	struct uplink *uplink = map_find(&uplinks_v2, &ifindex);
	struct interface *owner;

	if (!work || !uplink || is_pods(uplink, &work->key.destination))
		return 0;
	if (find_in(uplink, &work->key.source))
		return 1;
	ifindex = find_owner_on_node(&work->key.source);
	owner = ifindex ? map_find(&interfaces_v1, &ifindex) : 0;
	return owner && !(owner->flags & INTERFACE_EGRESS_ROUTE) && skb->pkt_type != PACKET_OTHERHOST;
}

/* Whether a pod of this node sends or receives the flow in the scratch area. A global function: as above. */
__attribute__((noinline)) int is_of_pod(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct flow_scratch *work = find_scratch();
	struct uplink *uplink = map_find(&uplinks_v2, &ifindex);

	return work && uplink && (is_pods(uplink, &work->flow.destination) || is_pods(uplink, &work->key.source));
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

/* Of a fragment the data is not known. */
static __always_inline bool read_end_of(struct __sk_buff *skb, const struct parsed *p, struct tcp_end *end)
{
	__u32 bytes = skb->len - sizeof(struct ethhdr);
	bool is_ipv4 = p->protocol == ETH_P_IP;
	__be16 length;

	if (bpf_skb_load_bytes(skb, p->l4_offset + sizeof(struct ports), end, 2 * sizeof(__be32)) ||
	    bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + (is_ipv4 ? 2 : 4), &length, sizeof(length)))
		return false;
	if (length)
		bytes = bpf_ntohs(length) + (is_ipv4 ? 0 : sizeof(struct ipv6hdr));
	end->number = bpf_ntohl(end->number);
	end->ack = bpf_ntohl(end->ack);
	end->is_reset = p->tcp_flags & TCP_RST;
	if (!end->is_reset && !p->is_first_fragment)
		end->number += bytes - p->header_bytes;
	return true;
}

/*
 * Returns enum follow, and leaves the flow's translation in the scratch area: as follow() if conntrack may see the end,
 * FOLLOW_HIDDEN if not, with FOLLOW_CONFIRMED if the fast path may deliver it. A global function: the verifier checks
 * it once.
 */
__attribute__((noinline)) int judge_end(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct flow_scratch *work = find_scratch();
	struct uplink *uplink = map_find(&uplinks_v2, &ifindex);
	struct tracked_end end = {};
	struct flow *known;

	if (!has_conntrack || !work || !uplink)
		return 0;
	if (!read_end_of(skb, &work->parsed, &work->end))
		return leave_as_is(work, 0);
	if (!query_end(skb, work, &end))
		return follow_lost(skb, work);
	known = map_find(&flows_v2, &work->key);
	if (known && known->check != flow_check(&work->key))
		known = 0;
	if (may_be_seen(work, &end, find_receiving(work, uplink))) {
		forget_flow(work);
		return leave_as_is(work, known ? FOLLOW_FORGOTTEN : 0);
	}
	if (!end.may_bypass || !was_let_in(skb, work, known))
		return FOLLOW_HIDDEN;
	return FOLLOW_HIDDEN | FOLLOW_CONFIRMED | FOLLOW_QUERIED | FOLLOW_RENEWED |
	       (is_translated(&work->key, &work->flow) ? FOLLOW_TRANSLATED : 0) | (work->opts.dir ? FOLLOW_REPLY : 0);
}

/*
 * Whether the socket of the pod that receives the flow in the scratch area takes the end, so that conntrack may see it
 * after all. A pod that is a machine has none. A global function: the verifier checks it once. judge_end() cannot call
 * it: three frames do not fit on the stack of Linux 6.1.
 */
__attribute__((noinline)) int is_taken_by_pod(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct flow_scratch *work = find_scratch();
	struct uplink *uplink = map_find(&uplinks_v2, &ifindex);
	struct interface *interface;
	struct tcp_sock___podlane *tcp;
	struct bpf_sock *socket;
	bool is_taken;

	if (!has_conntrack || !work || !uplink)
		return 0;
	ifindex = find_receiving(work, uplink);
	interface = map_find(&interfaces_v1, &ifindex);
	if (!interface || !interface->netns_id)
		return 0;
	socket = find_socket(skb, find_translated_key(work), interface->netns_id - 1);
	if (!socket)
		return 0;
	tcp = (void *)bpf_skc_to_tcp_sock(socket);
	is_taken = tcp && !is_discarded(tcp, &work->end);
	bpf_sk_release(socket);
	if (!is_taken)
		return 0;
	forget_flow(work);
	return leave_as_is(work, 1);
}

/*
 * Whether the end of the flow in the scratch area, which is for none of the pods, is in the name of a socket of the
 * node itself, or one that it discards. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int is_refused_by_socket(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	struct tcp_sock___podlane *tcp;
	struct bpf_sock *socket;
	bool refused;

	if (!has_conntrack || !work)
		return 0;
	socket = find_socket(skb, find_translated_key(work), CURRENT_NETNS);
	if (socket) {
		tcp = (void *)bpf_skc_to_tcp_sock(socket);
		refused = tcp && is_discarded(tcp, &work->end);
		bpf_sk_release(socket);
		return refused;
	}
	reverse_key(&work->key, &work->other);
	socket = find_socket(skb, &work->other, CURRENT_NETNS);
	if (!socket)
		return 0;
	bpf_sk_release(socket);
	return 1;
}

static __always_inline bool is_tcp_end(const struct packet *p)
{
	return has_conntrack && p->in->tcp_flags & (TCP_FIN | TCP_RST) && !(p->in->tcp_flags & TCP_SYN) &&
	       p->in->has_flow && p->ip->protocol == IPPROTO_TCP;
}

static __always_inline int follow_end(struct packet *p)
{
	set_key(p->in, &p->work->key, TO_POD);
	if (is_in_pods_name(p->skb))
		return REASON_DROP_FORGED_END;
	p->follow = judge_end(p->skb);
	if (p->follow & FOLLOW_HIDDEN && is_taken_by_pod(p->skb))
		p->follow = FOLLOW_FORGOTTEN;
	return take_destination(p);
}

/* A global function: the verifier checks it once. */
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

/*
 * The host stack gets a segment without its FIN. If the peer has sent it, it sends it again, and then the host stack
 * has delivered a packet of it by this uplink: the fast path delivers the second one. Nobody sends a reset again, but
 * for the pod's next packet.
 */
static __always_inline int hide_end(struct packet *p, enum reason reason)
{
	if (!(p->follow & FOLLOW_HIDDEN) || p->verdict != VERDICT_NEXT)
		return reason;
	/* Connections of other plugins' pods are not judged: something else may keep conntrack from seeing them. */
	if (!p->receiver && !is_of_pod(p->skb))
		return is_refused_by_socket(p->skb) ? REASON_DROP_FORGED_END : reason;
	return !(p->in->tcp_flags & TCP_RST) && clear_fin(p->skb, p->in->l4_offset) ? reason : REASON_DROP_FORGED_END;
}
