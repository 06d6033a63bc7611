/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The only exit of every program: counts the packet under its reason and returns the verdict. */
#pragma once

#include "bpf/packet.h"

/* There are more CPUs than shares of counters. */
const volatile bool has_shared_counters = false;

static __always_inline void count(__u32 ifindex, enum reason reason, __u32 bytes)
{
	__u64 number = (__u32)reason;
	__u64 share = bpf_get_smp_processor_id() % COUNTER_SHARES;
	struct counter_shares *counters;
	struct count *count;

	if (tracing)
		return trace_count(ifindex, reason);
	counters = map_find(&counters_v3, &ifindex);
	/* The number that is compared is the one that is used: the verifier of 6.1 loses the bound of a copy. */
	asm volatile("" : "+r"(number));
	if (!counters || number >= COUNTER_REASONS)
		return;
	count = &counters->shares[share].by_reason[number];
	if (has_shared_counters) {
		__sync_fetch_and_add(&count->packets, 1);
		__sync_fetch_and_add(&count->bytes, bytes);
	} else {
		count->packets++;
		count->bytes += bytes;
	}
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

static __always_inline bool is_wanted(struct watch *watch, enum reason reason)
{
	if (is_drop(reason))
		return true;
	return watch->mode == WATCH_ALL && (watch->one_in < 2 || bpf_get_prandom_u32() % watch->one_in == 0);
}

/* Not inlined: the verifier checks it once, and it stays out of the path of unwatched packets. */
__attribute__((noinline)) int notify_watcher(struct __sk_buff *skb, __u32 reason, __u32 is_egress)
{
	struct watch *watch = find_watch();
	__u32 bytes = skb->len;
	struct event *event;

	if (!watch || !is_wanted(watch, reason))
		return 0;
	if (watch->until_ns < bpf_ktime_get_ns()) {
		watch->mode = WATCH_NOTHING;
		return 0;
	}
	event = bpf_ringbuf_reserve(&events_v1, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&watch->lost, 1);
		return 0;
	}
	event->time_ns = bpf_ktime_get_ns();
	event->ifindex = skb->ifindex;
	event->reason = reason;
	event->frame_size = bytes;
	event->is_egress = is_egress;
	event->captured = 0;
	if (bytes > EVENT_FRAME_BYTES)
		bytes = EVENT_FRAME_BYTES;
	/* 1 to EVENT_FRAME_BYTES, in a form that the verifiers of 5.10 and 6.1 can bound. An empty frame fails to load.
	 */
	asm volatile("" : "+r"(bytes));
	bytes = ((bytes - 1) & (EVENT_FRAME_BYTES - 1)) + 1;
	if (!bpf_skb_load_bytes(skb, 0, event->frame, bytes))
		event->captured = bytes;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

static __always_inline bool has_remote(struct bpf_sock *socket, const struct ip_addr *addr)
{
	struct ip_addr remote = mapped_ipv4(LOAD_FIELD(socket, dst_ip4));

	if (LOAD_FIELD(socket, family) != AF_INET) {
		remote.word[0] = LOAD_FIELD(socket, dst_ip6[0]);
		remote.word[1] = LOAD_FIELD(socket, dst_ip6[1]);
		remote.word[2] = LOAD_FIELD(socket, dst_ip6[2]);
		remote.word[3] = LOAD_FIELD(socket, dst_ip6[3]);
	}
	return same_addr(&remote, addr);
}

/*
 * A connection that pl_pace announces a rate to has sent this packet to its remote address, so that is not an address
 * within its pod. Here, because the host stack takes packets from their sockets, and because the verifier checks it
 * once.
 */
static __always_inline void note_passage(struct __sk_buff *skb)
{
	struct bpf_sock *socket = skb->sk;
	struct announced *announced;
	struct flow_scratch *work;

	socket = socket ? bpf_sk_fullsock(socket) : 0;
	announced = socket ? bpf_sk_storage_get(&paced_sockets, socket, 0, 0) : 0;
	work = announced ? find_scratch() : 0;
	if (work && work->parsed.hop_limit > 1 && has_remote(socket, &work->parsed.ip.destination))
		announced->passed_ns = bpf_ktime_get_ns();
}

/*
 * Counts the packet, and notifies a watcher. Returns whether it is dropped. Not inlined: the verifier checks it once,
 * and not for each reason.
 */
__attribute__((noinline)) int report_end(struct __sk_buff *skb, __u32 reason, __u32 is_egress, __u32 received_by,
					 __u32 receiver_flags)
{
	bool is_dropped = is_drop(reason);
	struct watch *watch;

	if (!is_egress && receiver_flags & INTERFACE_LIMIT_INGRESS && !is_dropped && !tracing)
		note_passage(skb);
	count(reason == REASON_DROP_UNKNOWN_ENDPOINT ? 0 : skb->ifindex, reason, skb->len);
	if (received_by && reason == REASON_SENT_DIRECT)
		count(received_by, REASON_RECEIVED_DIRECT, skb->len);
	if (received_by && reason == REASON_UPLINK_DELIVERED)
		count(received_by, REASON_RECEIVED_UPLINK, skb->len);
	watch = find_watch();
	if (watch && watch->mode != WATCH_NOTHING && !tracing)
		notify_watcher(skb, reason, is_egress);
	return is_dropped;
}

static __always_inline int finish(struct packet *p, enum reason reason)
{
	/* Packets with an EDT are counted by to_pod when they leave the qdisc. */
	__u32 received_by = p->receiver && !p->is_edt ? p->receiver->ifindex : 0;

	/* If it is not known here, it may be limited. */
	__u32 receiver_flags = p->receiver ? p->receiver->flags : INTERFACE_LIMIT_INGRESS;

	return report_end(p->skb, reason, p->is_egress, received_by, receiver_flags) ? TC_ACT_SHOT : p->verdict;
}
