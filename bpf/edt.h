/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sets the earliest departure time of packets to a limited endpoint. The qdisc `fq` of the host-side veth delays them
 * until then. A kernel without it has a class of `htb` there, at the rate: what waits goes by that class, and is called
 * by its number as the packet's priority. veth clears that on the way into the pod. */
#pragma once

#include "bpf/limit.h"
#include "bpf/nf_conn.h"
#include "bpf/tables.h"

/*
 * A flow with nothing under way that takes a small part of the rate does not wait behind the others, as long as all
 * such frames together take no more: it cannot overtake itself. Acknowledgements keep none of their flow from that,
 * and, as in tolerance(), leave half of that part to others. They do not overtake data of their flow: what that
 * acknowledges would be too old (RFC 5961, 5.2).
 */
static __always_inline __u64 next_departure(struct limit_state *state, const struct limit *limit, __u32 bucket,
					    __u64 most, __u64 bytes, __u64 now, bool is_ack)
{
	__u64 backlog = backlog_of(state->free_at_ns, limit, now);
	bool is_sparse = bytes * 8 <= FRAME_BITS && backlog_of(state->departures[bucket], limit, now) == 0 &&
			 backlog_of(state->small_free_at_ns, limit, now) <= limit->horizon_ns >> is_ack;

	if (is_sparse)
		return now;
	return backlog <= most ? now + backlog : 0;
}

/* False if the packet is to be dropped. */
static __always_inline bool set_departure(struct __sk_buff *skb, struct limit_state *state, const struct limit *limit,
					  __u64 bytes, bool is_ack)
{
	__u64 now = bpf_ktime_get_ns(), departure, backlog = backlog_of(state->free_at_ns, limit, now), most;
	__u32 hash = bpf_get_hash_recalc(skb), bucket = hash % LIMIT_BUCKETS;
	struct unpaced_flow flow = measure_unpaced(state, limit, hash, now, backlog);
	bool overtakes;

	most = unpaced_tolerance(&flow, limit);
	departure = next_departure(state, limit, bucket, most, bytes, now, is_ack);
	if (tracing)
		return departure;
	if (!departure) {
		count_dropped(state, bytes);
		return false;
	}
	bpf_spin_lock(&state->lock);
	/* Later if other CPUs let packets through meanwhile, and so beyond the burst by those. */
	departure = next_departure(state, limit, bucket, most, bytes, now, is_ack) ?: departure;
	backlog = departure - now;
	overtakes = !backlog && backlog_of(state->free_at_ns, limit, now);
	charge(state, limit, bytes, now, false, !flow.is_surplus);
	charge_unpaced(state, limit, &flow, bytes, now);
	state->delayed += !!backlog;
	if (overtakes)
		charge_small(state, limit, bytes, now);
	if (!is_ack) /* which may be overtaken */
		state->departures[bucket] =
			departure + (backlog ? 0 : time_of(bytes * 8 * SMALL_SHARE, limit->rate_bits_per_s));
	bpf_spin_unlock(&state->lock);
	skb->tstamp = departure;
	if (!overtakes)
		skb->priority = LIMIT_CLASS;
	mark_congestion(skb, state, limit, backlog);
	return true;
}

/* As within_limit(). */
__attribute__((noinline)) int set_earliest_departure(struct __sk_buff *skb, __u32 ifindex, __u32 headers)
{
	struct limit_state *state = find_limit(ifindex, LIMIT_INGRESS);
	__u64 bytes = wire_bytes(skb, headers);

	return !state || (is_within_one_packet(state, bytes) &&
			  set_departure(skb, state, &state->limit, bytes, is_only_ack(skb, headers)));
}

/*
 * Whether the sender's socket has the receiver's address as its remote one. Not if the host has translated that. The
 * source that the host has replaced is left in work->other. A global function: the verifier checks it once.
 */
__attribute__((noinline)) int knows_receiver(struct __sk_buff *skb)
{
	const unsigned long entry = entry_of(skb);
	const bool is_reply = (entry & CTINFO_MASK) >= CTINFO_ESTABLISHED_REPLY;
	struct nf_conn___podlane *ct = (void *)(entry & ~CTINFO_MASK);
	const struct nf_conntrack_tuple___podlane *sent = &ct->tuplehash[0].tuple, *other = &ct->tuplehash[1].tuple;
	struct flow_scratch *work = find_scratch();
	union nf_inet_addr___podlane from, to, receiver;
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct ip_addr remote, local;

	if (!work || !entry)
		return 1;
	if (is_reply) {
		sent = &ct->tuplehash[1].tuple;
		other = &ct->tuplehash[0].tuple;
	}
	if (bpf_probe_read_kernel(&from, sizeof(from), &sent->src.u3) ||
	    bpf_probe_read_kernel(&to, sizeof(to), &sent->dst.u3) ||
	    bpf_probe_read_kernel(&receiver, sizeof(receiver), &other->src.u3))
		return 1;
	work->other.source = ct_address(&from, is_ipv4);
	remote = ct_address(&to, is_ipv4);
	local = ct_address(&receiver, is_ipv4);
	return same_addr(&remote, &local);
}

/*
 * Sockets of the node, and of its pods by way of the host stack, whatever their network: pl_pace finds both ends by
 * their namespaces, and the receiver by the socket's remote address. Who forges such a source gets what passes the
 * bucket, and is not held until it does.
 */
static __always_inline bool is_paced(struct packet *p)
{
	struct ip_addr *sender = &p->work->other.source;

	if (!may_be_paced(p->ip->protocol, p->interface->flags, 0))
		return false;
	*sender = p->ip->source;
	return knows_receiver(p->skb) && (tcp_sender(p->skb) || find_address(p, sender) || find_owner_on_node(sender));
}

/*
 * A sender's socket may give a packet an earliest departure time (SO_TXTIME), which the kernel keeps since Linux 6.11:
 * the qdisc would be full of packets that wait for it. TCP gives its own, which are near.
 */
static __always_inline void forget_late_departure(struct packet *p)
{
	if (p->skb->tstamp > bpf_ktime_get_ns() + AUTO_HORIZON_NS)
		p->skb->tstamp = 0;
}

/* Packets that the fast path left to this program, or that the host stack delivers. */
static __always_inline int limit_arriving(struct packet *p)
{
	__u32 flags = p->interface->flags, ifindex = p->skb->ifindex;
	bool is_own_time = is_edt(flags) && (p->is_edt || !is_paced(p));

	if (is_own_time && is_held(p, flags, ifindex, LIMIT_INGRESS, &p->ip->source))
		return set_earliest_departure(p->skb, ifindex, frame_headers(p->skb)) ? 0 : REASON_DROP_INGRESS_LIMIT;
	if (is_edt(flags))
		forget_late_departure(p);
	return is_own_time ? 0 : limit_towards(p, flags, ifindex);
}
