/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Delivers a packet to a pod of this node, as the kernel's forwarding would. */
#pragma once

#include "bpf/first_speaker.h"
#include "bpf/limit.h"
#include "bpf/rewrite.h"
#include "bpf/translate.h"

static __always_inline int deliver(struct packet *p, enum reason reason)
{
	struct ethhdr *ethernet;
	int refused;

	if (p->follow & FOLLOW_TRANSLATED)
		set_translated_source(p);
	refused = limit_receiver(p);
	if (refused)
		return refused;
	if ((p->follow & FOLLOW_TRANSLATED) && !translate(p->skb))
		return REASON_HOST_UNKNOWN_PATH;
	if (p->receiver->flags & INTERFACE_PEERS)
		note_receiving_socket(p, p->receiver->ifindex);
	ethernet = decrement_hop_limit(p);
	if (!ethernet)
		return REASON_HOST_UNKNOWN_PATH;
	__builtin_memcpy(ethernet->h_dest, p->receiver->pod_mac, 6);
	__builtin_memcpy(ethernet->h_source, p->receiver->host_mac, 6);
	if (p->is_edt) {
		p->skb->mark |= fast_mark;
		p->verdict = bpf_redirect(p->receiver->ifindex, 0);
	} else {
		p->skb->mark = 0; /* as veth does between namespaces */
		p->verdict = bpf_redirect_peer(p->receiver->ifindex, 0);
	}
	return reason;
}
