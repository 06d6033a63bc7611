/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Who spoke first on a UDP socket of a container with several interfaces: a peer, then it is a server's, or the socket
 * itself, then it is a client's. Whoever forges datagrams can fake neither afterwards.
 */
#pragma once

#include "bpf/packet.h"

/*
 * A datagram, translated, is delivered to the container behind the host-side veth. A global function: the verifier
 * checks it once.
 */
__attribute__((noinline)) int mark_receiving_socket(struct __sk_buff *skb, __u32 ifindex)
{
	struct interface *receiver = map_find(&interfaces_v1, &ifindex);
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct bpf_sock_tuple tuple = {};
	__u32 first = SPEAKER_PEER;
	struct packet p = {};
	struct bpf_sock *socket;
	struct ports ports;

	if (!find_parsed(&p) || !receiver || !receiver->netns_id ||
	    bpf_skb_load_bytes(skb, p.in->l4_offset, &ports, sizeof(ports)))
		return 0;
	if (is_ipv4) {
		tuple.ipv4.saddr = p.ip->source.word[3];
		tuple.ipv4.daddr = p.ip->destination.word[3];
		tuple.ipv4.sport = ports.source;
		tuple.ipv4.dport = ports.destination;
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, &p.ip->source, sizeof(p.ip->source));
		__builtin_memcpy(tuple.ipv6.daddr, &p.ip->destination, sizeof(p.ip->destination));
		tuple.ipv6.sport = ports.source;
		tuple.ipv6.dport = ports.destination;
	}
	socket = bpf_sk_lookup_udp(skb, &tuple, is_ipv4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6),
				   receiver->netns_id - 1, 0);
	if (!socket)
		return 0;
	bpf_sk_storage_get(&udp_sockets, socket, &first, BPF_SK_STORAGE_GET_F_CREATE);
	bpf_sk_release(socket);
	return 1;
}

static __always_inline void note_receiving_socket(struct packet *p, __u32 ifindex)
{
	if (p->ip->protocol == IPPROTO_UDP && p->in->has_flow && !p->in->is_icmp_error && !tracing)
		mark_receiving_socket(p->skb, ifindex);
}

/* Of the socket that sends the packet: a veth keeps it (since Linux 4.19). */
static __always_inline bool has_received_first(struct bpf_sock *socket)
{
	__u32 first = SPEAKER_SOCKET, *known;

	known = bpf_sk_storage_get(&udp_sockets, socket, &first, tracing ? 0 : BPF_SK_STORAGE_GET_F_CREATE);
	return known && *known == SPEAKER_PEER;
}
