/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Takes off what every receiver of a frame takes off, and the host stack as well: a priority tag, and padding. */
#pragma once

#include "bpf/headers.h"

/* A global function: the verifier checks it once. */
__attribute__((noinline)) int take_tag_off(struct __sk_buff *skb)
{
	return bpf_skb_vlan_pop(skb) ? REASON_HOST_VLAN : 0;
}

/* The bytes that the IP header counts remain. A global function: the verifier checks it once. */
__attribute__((noinline)) int take_padding_off(struct __sk_buff *skb)
{
	__u32 end = ip_end(skb);

	return end > skb->len || bpf_skb_change_tail(skb, end, 0) ? REASON_HOST_LENGTH : 0;
}

static __always_inline bool has_priority_tag(struct packet *p)
{
	return p->skb->vlan_present && !(p->skb->vlan_tci & VLAN_ID_MASK);
}
