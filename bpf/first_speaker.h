/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Who spoke first on a UDP socket of a container with several interfaces: a peer, then it is a server's, or the socket
 * itself, then it is a client's. Whoever forges datagrams can fake neither afterwards.
 */
#pragma once

#include "bpf/packet.h"

/* A global function: the verifier checks it once. */
__attribute__((noinline)) int mark_receiving_socket(struct __sk_buff *skb, __u32 netns)
{
	struct flow_scratch *work = find_scratch();
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	__u32 first = SPEAKER_PEER;
	struct bpf_sock *socket;

	if (!work)
		return 0;
	socket = bpf_sk_lookup_udp(skb, &work->tuple, is_ipv4 ? sizeof(work->tuple.ipv4) : sizeof(work->tuple.ipv6),
				   netns, 0);
	if (!socket)
		return 0;
	bpf_sk_storage_get(&udp_sockets, socket, &first, BPF_SK_STORAGE_GET_F_CREATE);
	bpf_sk_release(socket);
	return 1;
}

/* A datagram is delivered, translated, to the container behind the host-side veth. */
static __always_inline void note_receiving_socket(struct packet *p, __u32 ifindex)
{
	struct flow_scratch *work = find_scratch();
	struct interface *receiver;
	struct ports ports;

	if (p->ip.protocol != IPPROTO_UDP || !p->has_flow || p->is_icmp_error || tracing || !work)
		return;
	receiver = map_find(&interfaces_v1, &ifindex);
	if (!receiver || !receiver->netns_id || bpf_skb_load_bytes(p->skb, p->l4_offset, &ports, sizeof(ports)))
		return;
	if (p->protocol == ETH_P_IP) {
		work->tuple.ipv4.saddr = p->ip.source.word[3];
		work->tuple.ipv4.daddr = p->ip.destination.word[3];
		work->tuple.ipv4.sport = ports.source;
		work->tuple.ipv4.dport = ports.destination;
	} else {
		__builtin_memcpy(work->tuple.ipv6.saddr, &p->ip.source, sizeof(p->ip.source));
		__builtin_memcpy(work->tuple.ipv6.daddr, &p->ip.destination, sizeof(p->ip.destination));
		work->tuple.ipv6.sport = ports.source;
		work->tuple.ipv6.dport = ports.destination;
	}
	mark_receiving_socket(p->skb, receiver->netns_id - 1);
}

/* Of the socket that sends the packet: a veth keeps it (since Linux 4.19). */
static __always_inline bool has_received_first(struct bpf_sock *socket)
{
	__u32 first = SPEAKER_SOCKET, *known;

	known = bpf_sk_storage_get(&udp_sockets, socket, &first, tracing ? 0 : BPF_SK_STORAGE_GET_F_CREATE);
	return known && *known == SPEAKER_PEER;
}
