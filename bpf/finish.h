/* The one exit of every program: counts the packet under its reason and gives the verdict. */
#pragma once

#include "bpf/packet.h"

static __always_inline void count(__u32 ifindex, enum reason reason, __u32 bytes)
{
	struct counters *counters = bpf_map_lookup_elem(&counters_v1, &ifindex);

	if (!counters || (__u32)reason >= COUNTER_REASONS)
		return;
	counters->by_reason[reason].packets++;
	counters->by_reason[reason].bytes += bytes;
}

static __always_inline bool is_drop(enum reason reason)
{
	switch (reason) {
#define X(name, text, kind, sentence)                                                                                  \
	case REASON_##name:                                                                                            \
		return REASON_KIND_##kind == REASON_KIND_DROP;
		PODLANE_REASONS(X)
#undef X
	default:
		return false;
	}
}

static __always_inline int finish(struct packet *p, enum reason reason)
{
	count(reason == REASON_HOST_UNKNOWN_ENDPOINT ? 0 : p->skb->ifindex, reason, p->skb->len);
	/* What is timed is counted at the receiver by to_pod. */
	if (reason == REASON_SENT_DIRECT && p->receiver && !p->is_timed)
		count(p->receiver->ifindex, REASON_RECEIVED_DIRECT, p->skb->len);
	if (reason == REASON_UPLINK_DELIVERED && p->receiver && !p->is_timed)
		count(p->receiver->ifindex, REASON_RECEIVED_UPLINK, p->skb->len);
	return is_drop(reason) ? TC_ACT_SHOT : p->verdict;
}
