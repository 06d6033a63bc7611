/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* TC ingress of a host-side veth: handles what a pod sends. */
#pragma once

#include "bpf/antispoof.h"
#include "bpf/egress_route.h"
#include "bpf/endpoint.h"
#include "bpf/finish.h"
#include "bpf/flow_cache.h"
#include "bpf/forward.h"
#include "bpf/isolation.h"
#include "bpf/learn_mac.h"
#include "bpf/limit.h"
#include "bpf/parse.h"
#include "bpf/path_cache.h"
#include "bpf/peer_interface.h"
#include "bpf/responder.h"
#include "bpf/route.h"
#include "bpf/strip.h"
#include "bpf/uplink.h"

/*
 * The egress route carries what a pod that is a machine sends by a card that pads and tags. From the host stack it
 * would leave by the node's own routes: a frame that the egress route cannot carry does not get there.
 */
static __always_inline int strip_sent(struct packet *p)
{
	int reason = 0;

	if (!(p->interface->flags & INTERFACE_EGRESS_ROUTE))
		return 0;
	if (p->in->detour == REASON_HOST_VLAN && has_priority_tag(p))
		reason = !p->in->protocol || take_tag_off(p->skb) ? REASON_DROP_VLAN : parse(p, FROM_POD);
	if (!reason && p->in->detour == REASON_HOST_LENGTH)
		reason = p->skb->gso_size || take_padding_off(p->skb) ? REASON_DROP_MALFORMED : parse(p, FROM_POD);
	return reason;
}

static __always_inline int forward(struct packet *p)
{
	int reason;

	if (p->receiver)
		return deliver(p, REASON_SENT_DIRECT);
	if (p->egress_route)
		return send_by_egress_route(p);
	reason = send_to_uplink(p);
	if (reason != REASON_SENT_UPLINK && p->follow & FOLLOW_NEW)
		forget_key();
	return reason;
}

static __always_inline int confirm(struct packet *p)
{
	if (!(p->interface->flags & INTERFACE_FAST_LOCAL))
		return 0;
	return follow_flow(p, FROM_POD, p->interface->flags & INTERFACE_FIRST_DIRECT);
}

static __always_inline int choose_path(struct packet *p)
{
	if (p->egress_route && !p->receiver)
		return find_egress_path(p);
	if (!(p->follow & (FOLLOW_CONFIRMED | FOLLOW_UNTRACKED)))
		return REASON_HOST_UNCONFIRMED;
	return p->receiver ? check_destination(p) : 0;
}

SEC("tc")
int pl_from_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT};
	int reason;

	/* clang-format off */
	reason = find_interface(&p)
	      ?: recognise_handed_over(&p)
	      ?: parse(&p, FROM_POD)
	      ?: learn_mac(&p)
	      ?: check_source(&p)
	      ?: notice_opening(&p, FROM_POD)
	      ?: restore_reply_source(&p)
	      ?: respond(&p)
	      ?: limit_sender(&p)
	      ?: confirm(&p)
	      ?: strip_sent(&p)
	      ?: find_receiver(&p)
	      ?: check_isolation(&p)
	      ?: choose_path(&p)
	      ?: forward(&p);
	/* clang-format on */

	return finish(&p, reason);
}
