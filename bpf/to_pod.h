/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* TC egress of a host-side veth: caches the flows that the host stack delivers to a pod, so that replies take it too.
 */
#pragma once

#include "bpf/edt.h"
#include "bpf/endpoint.h"
#include "bpf/finish.h"
#include "bpf/first_speaker.h"
#include "bpf/flow_cache.h"
#include "bpf/isolation.h"
#include "bpf/keep_connection.h"
#include "bpf/learned_mac.h"
#include "bpf/path_cache.h"
#include "bpf/parse.h"

/*
 * The fast path sent it through this qdisc; the host stack did not handle it. What a process of the node sends came by
 * no interface, whatever mark its socket has.
 */
static __always_inline int recognise_edt(struct packet *p)
{
	if (is_edt(p->interface->flags) && p->skb->mark & fast_mark && p->skb->ingress_ifindex) {
		p->skb->mark &= ~fast_mark;
		p->is_edt = true;
	}
	return 0;
}

static __always_inline int receive(struct packet *p)
{
	__u32 came_by = p->skb->ingress_ifindex;

	if (p->is_edt)
		return map_find(&interfaces_v1, &came_by) ? REASON_RECEIVED_DIRECT : REASON_RECEIVED_UPLINK;
	if (p->interface->flags & (INTERFACE_EGRESS_ROUTE | INTERFACE_PEERS))
		cache_host_path(p);
	if (p->interface->flags & INTERFACE_PEERS)
		note_receiving_socket(p, p->skb->ifindex);
	note_forwarded(p, TO_POD, p->interface->flags & INTERFACE_FIRST_DIRECT);
	if (p->interface->flags & INTERFACE_FAST_LOCAL)
		keep_connection(p, TO_POD);
	return REASON_RECEIVED_HOST;
}

SEC("tc")
int pl_to_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT, .is_egress = true};
	int reason;

	/* clang-format off */
	reason = find_interface(&p)
	      ?: recognise_edt(&p)
	      ?: parse(&p, TO_POD)
	      ?: notice_opening(&p, TO_POD)
	      ?: check_arriving(&p)
	      ?: limit_arriving(&p)
	      ?: write_learned_mac(&p)
	      ?: receive(&p);
	/* clang-format on */

	return finish(&p, reason);
}
