/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Whether the node has policies of IPsec. They are applied in hooks that a redirect skips. */
#pragma once

#include "bpf/fib.h"
#include "bpf/nf_conn.h"

#define XFRM_USERPOLICY_BLOCK 1                 /* Linux 5.15; the others are 0 and 2 */
#define OWN_ENTRY_ADDRESS bpf_htonl(0xe0000000) /* 224.0.0.0: no host forwards, or delivers, what has it as source */
#define OWN_ENTRY_PORT 9                        /* discard */
#define OWN_ENTRY_MS (3600 * 1000)

/* Set by podlanectl for a traced run, which changes nothing of the node. */
const volatile bool traced_policies = false;

/* "block" is a default for packets without a policy. */
static __always_inline bool has_ipsec_policies(struct net___podlane *net)
{
	__u8 by_default[XFRM_POLICIES] = {};
	__u32 count[XFRM_POLICIES] = {};

	if (bpf_core_field_exists(net->xfrm.policy_default))
		read_kernel(by_default, sizeof(by_default), &net->xfrm.policy_default);
	if (bpf_core_field_exists(net->xfrm.policy_count))
		read_kernel(count, sizeof(count), &net->xfrm.policy_count);
	return ((by_default[0] | by_default[1] | by_default[2]) & XFRM_USERPOLICY_BLOCK) | count[0] | count[1] |
	       count[2];
}

static __always_inline struct nf_conn___podlane *find_own_entry(struct __sk_buff *skb, struct flow_scratch *work,
								struct bpf_sock_tuple *own)
{
	struct ct_opts *opts = &work->opts;

	__builtin_memset(opts, 0, sizeof(*opts));
	opts->netns_id = CURRENT_NETNS;
	opts->l4proto = IPPROTO_UDP;
	return bpf_skb_ct_lookup(skb, own, sizeof(own->ipv4), opts, sizeof(*opts));
}

/* As one that was replied to: a full table does not evict it. The options are those of the look-up. */
static __always_inline struct nf_conn___podlane *insert_own_entry(struct __sk_buff *skb, struct flow_scratch *work,
								  struct bpf_sock_tuple *own)
{
	struct nf_conn_init___podlane *fresh =
		bpf_skb_ct_alloc(skb, own, sizeof(own->ipv4), &work->opts, sizeof(work->opts));

	if (!fresh)
		return 0;
	bpf_ct_set_status(fresh, CT_SEEN_REPLY | CT_ASSURED);
	return bpf_ct_insert_entry(fresh);
}

/*
 * Of the node. Only an entry of conntrack leads to its network namespace, and packets that conntrack has not seen have
 * none; so there is one for this query, which is gone an hour after the last. Unknown counts as yes. A global
 * function: the verifier checks it once.
 */
__attribute__((noinline)) int has_policies(struct __sk_buff *skb)
{
	struct bpf_sock_tuple own = {
		.ipv4 = {OWN_ENTRY_ADDRESS, OWN_ENTRY_ADDRESS, bpf_htons(OWN_ADDRESS_PORT), bpf_htons(OWN_ENTRY_PORT)}};
	struct flow_scratch *work = find_scratch();
	struct nf_conn___podlane *ct;
	bool has;

	if (!has_conntrack || !work)
		return 0;
	if (tracing)
		return traced_policies;
	ct = find_own_entry(skb, work, &own);
	if (!ct)
		ct = insert_own_entry(skb, work, &own);
	if (!ct) /* another CPU was first */
		ct = find_own_entry(skb, work, &own);
	if (!ct)
		return 1;
	has = has_ipsec_policies(read_net(&ct->ct_net.net));
	bpf_ct_change_timeout(ct, OWN_ENTRY_MS);
	bpf_ct_release(ct);
	return has;
}

/* As confirmed not longer than confirm_ns ago: for packets that query nothing else. */
static __always_inline bool has_policies_cached(struct __sk_buff *skb)
{
	struct flow_scratch *work = find_scratch();
	__u64 now;

	if (!has_conntrack || !work)
		return false;
	now = bpf_ktime_get_coarse_ns();
	if (!work->policies_at_ns || now - work->policies_at_ns >= confirm_ns) {
		work->has_policies = has_policies(skb);
		work->policies_at_ns = now;
	}
	return work->has_policies;
}

static __always_inline bool leads_by(long answer, const struct bpf_fib_lookup *fib, __u32 uplink)
{
	return (answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH) && fib->ifindex == uplink;
}

/*
 * Packets of an egress route have no connection that conntrack knows. While the node has policies, the host stack
 * carries what its own routes, or one of several equal ones, send from the pod by the same uplink, and the replies.
 * `pod` is its host-side veth. A global function: see resume().
 */
__attribute__((noinline)) int is_left_to_policies(struct __sk_buff *skb, __u32 pod, __u32 uplink, __u32 follow)
{
	bool is_reply = skb->ifindex == uplink, left;
	struct packet p = {.skb = skb};
	struct bpf_fib_lookup fib;

	if (!has_policies_cached(skb) || !resume(&p, follow))
		return 0;
	if (is_reply)
		swap_ends(p.ip);
	left = leads_by(query_routes_by(&p, &fib, pod, 0, 0), &fib, uplink) ||
	       leads_by(query_routes_by(&p, &fib, uplink, 0, BPF_FIB_LOOKUP_OUTPUT), &fib, uplink);
	if (is_reply)
		swap_ends(p.ip);
	return left;
}
