/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Holds an endpoint to its bandwidth: charges what passes to the bucket of its limit, marks, and drops at the end. */
#pragma once

#include "bpf/exempt.h"
#include "bpf/headers.h"
#include "bpf/kernel.h"
#include "bpf/limit_group.h"
#include "maps/abi/unpaced_flow.h"

/* TCP does not pace the first 10 segments of a connection (Linux, since 4.20), and sends two at a time. */
#define UNPACED_SEGMENTS 12
/* Connections that have only just begun are forgiven, within bounds. */
#define FIRST_SEGMENTS 32
#define NO_SEGMENTS (~0U)
/* Beside the bytes of the headers: that the packet is of TCP, and its flags. */
#define OF_TCP 0x10000U
#define TCP_FLAGS_SHIFT 24
#define HEADERS 0xffffU
#define STREAM 1                    /* SOCK_STREAM */
#define SEGMENTS_BY_FRAGMENT 0xffff /* GSO_BY_FRAGS: SCTP's differ in size */

/* Bytes on the wire: each segment of a GSO packet carries the headers. */
static __always_inline __u64 wire_bytes(struct __sk_buff *skb, __u32 headers)
{
	__u32 bytes = skb->len, segment = skb->gso_size;

	headers &= HEADERS;
	if (segment == SEGMENTS_BY_FRAGMENT)
		return bytes + (__u64)(skb->gso_segs ? skb->gso_segs - 1 : 0) * headers;
	if (!segment || bytes <= headers)
		return bytes;
	return bytes + (__u64)((bytes - headers - 1) / segment) * headers;
}

/* The socket of this node that sent a packet, if it is of TCP. A raw one can claim to be, and has no such fields. */
static __always_inline struct bpf_tcp_sock *tcp_sender(struct __sk_buff *skb)
{
	struct bpf_sock *socket = skb->sk;

	socket = socket ? bpf_sk_fullsock(socket) : 0;
	return socket && socket->type == STREAM ? bpf_tcp_sock(socket) : 0;
}

/* Data segments that the connection of this packet has sent, if it is by a socket of this node. */
static __always_inline __u32 segments_sent(struct __sk_buff *skb)
{
	struct bpf_tcp_sock *tcp = tcp_sender(skb);

	return tcp ? tcp->data_segs_out : NO_SEGMENTS;
}

/*
 * pl_pace finds a receiver by the remote address of the sender's socket: that of a Service is none's. The packet that
 * is translated is of the flow in the scratch area.
 */
static __always_inline bool is_to_service(bool is_translated)
{
	struct flow_scratch *work = is_translated ? find_scratch() : 0;

	return work && !same_addr(&work->flow.destination, &work->key.destination);
}

/*
 * A rate was announced to the sender for this limit: it sends no faster, and hears of the backlog without a loss. The
 * application itself may have set another one since.
 */
static __always_inline bool is_paced_socket(struct __sk_buff *skb, __u32 direction)
{
	struct bpf_sock *socket = skb->sk;
	struct tcp_sock___podlane *tcp = socket ? (void *)bpf_skc_to_tcp_sock(socket) : 0;
	struct announced *announced;
	unsigned long rate;

	announced = tcp ? bpf_sk_storage_get(&paced_sockets, tcp, 0, 0) : 0;
	if (!announced || !announced->flows[direction & 1].rate)
		return false;
	rate = tcp->inet_conn.icsk_inet.sk.sk_max_pacing_rate;
	return rate && rate <= announced->rate;
}

/*
 * Nobody paces acknowledgements, and each of them replaces those before it: they take what the rest leaves. Up to this
 * backlog they pass; it is less than paced senders are steered to, so these are announced more until they have it all.
 */
static __always_inline __u64 left_to_acks(const struct limit *limit)
{
	return limit->target_ns / 2;
}

/*
 * The backlog at which this packet is dropped. A flow that has only just begun, and small frames that are a small part
 * of all, pass when large ones are dropped already: a request does not wait for a bulk transfer to be slowed down.
 */
static __always_inline __u64 tolerance(struct __sk_buff *skb, const struct limit_state *state,
				       const struct limit *limit, __u64 now, __u64 bytes, __u32 segments,
				       __u32 direction, bool is_ack)
{
	__u64 usual = limit->horizon_ns, longest = usual < LONGEST_HORIZON_NS ? LONGEST_HORIZON_NS : usual;

	if (is_ack) /* a small part of all, but half of the burst is left to pings and others */
		return backlog_of(state->small_free_at_ns, limit, now) <= usual / 2 ? longest : left_to_acks(limit);
	if (backlog_of(state->free_at_ns, limit, now) <= usual)
		return usual;
	if (bytes <= SMALL_FRAME && backlog_of(state->small_free_at_ns, limit, now) <= usual)
		return longest;
	if (segments <= UNPACED_SEGMENTS) /* those of one connection at least, however low the rate */
		return longest + UNPACED_SEGMENTS * limit->frame_ns;
	if (segments <= FIRST_SEGMENTS || (segments != NO_SEGMENTS && is_paced_socket(skb, direction)))
		return longest;
	if (segments != NO_SEGMENTS) /* it cannot react to the backlog sooner */
		usual += hearing_delay(state, limit);
	return usual < longest ? usual : longest;
}

/* Not under the lock: what is beyond a limit does not hold up what is within it. */
static __always_inline void count_dropped(struct limit_state *state, __u64 bytes)
{
	__sync_fetch_and_add(&state->dropped, 1);
	__sync_fetch_and_add(&state->dropped_bytes, bytes);
}

/* Charged as a whole, it would hold up all others for long. */
static __always_inline bool is_within_one_packet(struct limit_state *state, __u64 bytes)
{
	bool is_within = bytes * 8 <= MOST_FRAMES * FRAME_BITS;

	if (!is_within && !tracing)
		count_dropped(state, bytes);
	return is_within;
}

/* From two targets on, before anything is dropped. */
static __always_inline void mark_congestion(struct __sk_buff *skb, struct limit_state *state, const struct limit *limit,
					    __u64 backlog)
{
	if (backlog > 2 * limit->target_ns && bpf_skb_ecn_set_ce(skb))
		__sync_fetch_and_add(&state->marked, 1);
}

/* It acknowledges, and has no data. A global function: the verifier checks it once. */
__attribute__((noinline)) int is_only_ack(struct __sk_buff *skb, __u32 headers)
{
	return headers & OF_TCP && headers >> TCP_FLAGS_SHIFT == TCP_ACK && skb->len == (headers & HEADERS) &&
	       skb->len <= SMALL_FRAME; /* IPv6 can have any number of headers */
}

/* Whether the packet is let through. */
static __always_inline bool pass(struct __sk_buff *skb, struct limit_state *state, const struct limit *limit,
				 __u64 bytes, __u32 direction, __u32 headers)
{
	bool is_ack = is_only_ack(skb, headers);
	__u32 segments = segments_sent(skb);
	__u64 now = bpf_ktime_get_ns(), most = tolerance(skb, state, limit, now, bytes, segments, direction, is_ack);
	__u64 backlog = backlog_of(state->free_at_ns, limit, now);
	bool is_unpaced = segments == NO_SEGMENTS && !is_ack && backlog > limit->target_ns;
	struct unpaced_flow flow;

	if (is_unpaced) {
		flow = measure_unpaced(state, limit, bpf_get_hash_recalc(skb), now, backlog);
		most = larger(most, unpaced_tolerance(&flow, limit));
	}
	if (tracing)
		return backlog <= most;
	if (backlog > most) {
		count_dropped(state, bytes);
		return false;
	}
	/* Other CPUs let through at most a packet each meanwhile, and charge it. */
	bpf_spin_lock(&state->lock);
	if (is_unpaced)
		charge_unpaced(state, limit, &flow, bytes, now);
	charge(state, limit, bytes, now, segments <= UNPACED_SEGMENTS, !(headers & OF_TCP));
	if (bytes <= SMALL_FRAME && backlog > (is_ack ? left_to_acks(limit) : limit->horizon_ns))
		charge_small(state, limit, bytes, now);
	bpf_spin_unlock(&state->lock);
	mark_congestion(skb, state, limit, backlog);
	return true;
}

/* The state of a limit, and the limit in it; none if there is no limit. */
static __always_inline struct limit_state *find_limit(__u32 ifindex, __u32 direction)
{
	struct limit_key key = {.ifindex = ifindex, .direction = direction};
	/* The ifindex within the key: the stack that Linux 6.1 allows has no room for another. */
	struct bandwidth *given = map_find(&bandwidths_v1, &key.ifindex);
	struct limit_state *state;
	__u64 rate, burst;

	if (!given)
		return 0;
	rate = rate_in(given, direction);
	burst = burst_in(given, direction);
	/* Not traced: an entry with a lock cannot be copied. */
	state = rate ? bpf_map_lookup_elem(&limit_state_v5, &key) : 0;
	if (state)
		load_limit(state, rate, burst);
	return state;
}

/*
 * 1 if the packet is let through, 0 if it is dropped. A function of its own, which the verifier checks once: inlined
 * in a program, it would be checked for each branch that leads there.
 */
__attribute__((noinline)) int within_limit(struct __sk_buff *skb, __u32 ifindex, __u32 direction, __u32 headers)
{
	struct limit_state *state = find_limit(ifindex, direction);
	__u64 bytes = wire_bytes(skb, headers);

	return !state ||
	       (is_within_one_packet(state, bytes) && pass(skb, state, &state->limit, bytes, direction, headers));
}

#define CUT_AS_TCP (1 << 0 | 1 << 4) /* SKB_GSO_TCPV4, SKB_GSO_TCPV6 */
#define TCP_DATA_OFFSET 12
#define TCP_HEADER_MOST 60
#define NOT_SET 0xffff

/*
 * Bytes before the data of each segment of a GSO packet, where the kernel knows more than was read here: behind tags,
 * fragments, and many headers, and in a tunnel, whose inner headers are among them. 0 if it does not. A global
 * function: the verifier checks it once.
 */
__attribute__((noinline)) int cut_headers(struct __sk_buff *skb, __u32 is_read)
{
	struct sk_buff___podlane *kernel = (void *)skb;
	struct skb_shared_info___podlane *shared;
	__u32 at, frame;
	bool is_tunnel;
	__u8 words;

	if (!can_read_kernel)
		return 0;
	is_tunnel = BPF_CORE_READ_BITFIELD_PROBED(kernel, encapsulation);
	if (is_read && !is_tunnel)
		return 0;
	at = is_tunnel ? BPF_CORE_READ(kernel, inner_transport_header) : BPF_CORE_READ(kernel, transport_header);
	frame = BPF_CORE_READ(kernel, mac_header);
	if (at == NOT_SET || at <= frame)
		return 0;
	at -= frame;
	shared = (void *)BPF_CORE_READ(kernel, head) + BPF_CORE_READ(kernel, end);
	if (!(BPF_CORE_READ(shared, gso_type) & CUT_AS_TCP))
		return at + sizeof(struct udphdr);
	if (bpf_skb_load_bytes(skb, at + TCP_DATA_OFFSET, &words, sizeof(words)))
		return 0;
	return words >> 4 < sizeof(struct tcphdr) / 4 ? 0 : at + (words >> 4) * 4;
}

/*
 * Of each segment. If nobody knows them, the most that TCP has: what is not read saves nothing. A global function: the
 * verifier checks it once.
 */
__attribute__((noinline)) int frame_headers(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	const struct parsed *p;
	__u32 ip, bytes, cut;

	if (!work)
		return 0;
	p = &work->parsed;
	ip = p->l4_offset ?: sizeof(struct ethhdr) + sizeof(struct ipv6hdr);
	bytes = p->header_bytes ? sizeof(struct ethhdr) + p->header_bytes : ip + TCP_HEADER_MOST;
	cut = skb->gso_size ? cut_headers(skb, p->header_bytes) : 0;
	return (cut ?: bytes) | (p->ip.protocol == IPPROTO_TCP ? OF_TCP : 0) | (__u32)p->tcp_flags << TCP_FLAGS_SHIFT;
}

/* Whether the limit applies to what goes to or comes from `other`. If so, the endpoint's group hears of it. */
static __always_inline bool is_held(struct packet *p, __u32 flags, __u32 ifindex, enum limit_direction direction,
				    const struct ip_addr *other)
{
	if (is_ip(p) && is_exempt(flags, ifindex, direction, other))
		return false;
	report_if_in_group(flags, ifindex, direction);
	return true;
}

static __always_inline int limit_sender(struct packet *p)
{
	__u32 flags = p->interface->flags, ifindex = p->skb->ifindex;

	if (!(flags & INTERFACE_LIMIT_EGRESS) || !is_held(p, flags, ifindex, LIMIT_EGRESS, &p->ip->destination))
		return 0;
	return within_limit(p->skb, ifindex, LIMIT_EGRESS, frame_headers(p->skb)) ? 0 : REASON_DROP_EGRESS_LIMIT;
}

static __always_inline int limit_towards(struct packet *p, __u32 flags, __u32 ifindex)
{
	if (!(flags & INTERFACE_LIMIT_INGRESS) || !is_held(p, flags, ifindex, LIMIT_INGRESS, &p->ip->source))
		return 0;
	return within_limit(p->skb, ifindex, LIMIT_INGRESS, frame_headers(p->skb)) ? 0 : REASON_DROP_INGRESS_LIMIT;
}

/*
 * Whether pl_pace paces the sender, as far as its protocol, its remote address and the receiver's limit go. A global
 * function: the verifier checks it once.
 */
__attribute__((noinline)) int may_be_paced(__u32 protocol, __u32 flags, __u32 follow)
{
	return protocol == IPPROTO_TCP && !(flags & INTERFACE_LIMIT_UNPACED_INGRESS) &&
	       !is_to_service(follow & FOLLOW_TRANSLATED);
}

static __always_inline bool is_edt(__u32 flags)
{
	return (flags & (INTERFACE_LIMIT_INGRESS | INTERFACE_LIMIT_EDT)) ==
	       (INTERFACE_LIMIT_INGRESS | INTERFACE_LIMIT_EDT);
}

/* Packets on the fast path: limited here, or at the host-side veth, where to_pod sets the earliest departure time.
 */
static __always_inline int limit_receiver(struct packet *p)
{
	__u32 flags = p->receiver->flags;

	p->is_edt = is_edt(flags) && !(p->interface && may_be_paced(p->ip->protocol, flags, p->follow));
	return p->is_edt ? 0 : limit_towards(p, flags, p->receiver->ifindex);
}
