/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Queries conntrack for the state and the translation of a connection. */
#pragma once

#include "bpf/packet.h"

#include <bpf/bpf_core_read.h>

/* Set by the loader: false on kernels without bpf_skb_ct_lookup() (before 6.1), where every flow takes the slow path.
 */
const volatile bool has_conntrack = false;
/* Connections whose conntrack mark has this value under the mask stay on the slow path; mask 0: none. */
const volatile __u32 slow_mark = 0;
const volatile __u32 slow_mark_mask = 0;
/* An entry of the flow cache that is older is confirmed by conntrack before it is used again. Set by the loader. */
const volatile __u64 confirm_ns = 1000000000;

#define CURRENT_NETNS (-1)
#define ENOENT 2
#define CT_SEEN_REPLY (1 << 1)
#define CT_ASSURED (1 << 2)
#define CT_CONFIRMED (1 << 3)
#define CT_NAT (3 << 4) /* source, destination */
#define CT_SEQ_ADJUST (1 << 6)
#define CT_DYING (1 << 9)
#define CT_TEMPLATE (1 << 11)
#define CT_NAT_CLASH (1 << 12)
#define CT_HELPER (1 << 13)
#define CT_OFFLOADED (3 << 14) /* to a flowtable, to hardware */
#define CT_TCP_SYN_SENT 1
#define CT_TCP_SYN_RECV 2
#define CT_TCP_ESTABLISHED 3
#define CT_TCP_LAST_ACK 6
#define CT_TCP_TIME_WAIT 7
#define CT_TCP_CLOSE 8
#define CT_TCP_LIBERAL 0x08      /* a connection that conntrack has met in its middle */
#define CT_TCP_UNACKNOWLEDGED 13 /* a time-out: of a connection with data that nobody has acknowledged */
#define CT_UDP_REPLIED 1
#define XFRM_POLICIES 3         /* in, out, forward */
#define XFRM_USERPOLICY_BLOCK 1 /* Linux 5.15 */

/* The parts of the kernel's structures that are read; nf_conntrack may be a module, whose types vmlinux.h lacks. */
union nf_inet_addr___podlane {
	__u32 all[4];
} __attribute__((preserve_access_index));

struct nf_conntrack_man___podlane {
	union nf_inet_addr___podlane u3;
	union {
		__be16 all;
	} u;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple___podlane {
	struct nf_conntrack_man___podlane src;
	struct {
		union nf_inet_addr___podlane u3;
		union {
			__be16 all;
		} u;
	} dst;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash___podlane {
	struct nf_conntrack_tuple___podlane tuple;
} __attribute__((preserve_access_index));

struct nf_tcp_net___podlane {
	unsigned int timeouts[14];
	__u8 tcp_be_liberal;
} __attribute__((preserve_access_index));

struct nf_udp_net___podlane {
	unsigned int timeouts[2];
} __attribute__((preserve_access_index));

struct nf_ip_net___podlane {
	struct nf_tcp_net___podlane tcp;
	struct nf_udp_net___podlane udp;
} __attribute__((preserve_access_index));

struct netns_ct___podlane {
	struct nf_ip_net___podlane nf_ct_proto;
} __attribute__((preserve_access_index));

struct netns_xfrm___podlane {
	unsigned int policy_count[XFRM_POLICIES * 2];
	__u8 policy_default[XFRM_POLICIES];
} __attribute__((preserve_access_index));

struct net___podlane {
	struct netns_ct___podlane ct;
	struct netns_xfrm___podlane xfrm;
} __attribute__((preserve_access_index));

/* Read as a whole. */
struct ip_ct_tcp_state___podlane {
	__u32 td_end;
	__u32 td_maxend;
	__u32 td_maxwin;
	__u32 td_maxack;
	__u8 td_scale;
	__u8 flags;
};

struct nf_conn___podlane {
	__u32 timeout;
	struct nf_conntrack_tuple_hash___podlane tuplehash[2];
	unsigned long status;
	struct {
		struct net___podlane *net;
	} ct_net;
	union {
		struct {
			struct ip_ct_tcp_state___podlane seen[2];
			__u8 state;
		} tcp;
	} proto;
	__u32 mark;
} __attribute__((preserve_access_index));

extern struct nf_conn___podlane *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
						   __u32 tuple_size, struct ct_opts *opts,
						   __u32 opts_size) __ksym __weak;
extern int bpf_ct_change_timeout(struct nf_conn___podlane *ct, __u32 ms) __ksym __weak;
extern void bpf_ct_release(struct nf_conn___podlane *ct) __ksym __weak;

/* IPsec policies are applied in hooks that a redirect skips; so is "block", the default for packets without one. */
static __always_inline bool has_ipsec_policies(struct net___podlane *net)
{
	const __u8 *by_default = net->xfrm.policy_default;

	if (bpf_core_field_exists(net->xfrm.policy_default) &&
	    (by_default[0] == XFRM_USERPOLICY_BLOCK || by_default[1] == XFRM_USERPOLICY_BLOCK ||
	     by_default[2] == XFRM_USERPOLICY_BLOCK))
		return true;
	if (!bpf_core_field_exists(net->xfrm.policy_count))
		return false;
	return net->xfrm.policy_count[0] | net->xfrm.policy_count[1] | net->xfrm.policy_count[2];
}

static __always_inline bool is_opted_out(struct nf_conn___podlane *ct)
{
	return slow_mark_mask && bpf_core_field_exists(ct->mark) && (ct->mark & slow_mark_mask) == slow_mark;
}

/*
 * Both directions were let through, and nothing needs to see the payload. TCP: the windows of packets that bypass
 * conntrack are unknown to it, so it must accept the FIN that follows them.
 */
static __always_inline bool may_bypass(struct nf_conn___podlane *ct, struct net___podlane *net, __u8 protocol)
{
	const unsigned long needed = CT_SEEN_REPLY | CT_ASSURED | CT_CONFIRMED;
	const unsigned long refused = CT_DYING | CT_TEMPLATE | CT_NAT_CLASH | CT_HELPER | CT_SEQ_ADJUST;

	if ((ct->status & (needed | refused)) != needed || is_opted_out(ct) || has_ipsec_policies(net))
		return false;
	return protocol == IPPROTO_UDP ||
	       (ct->proto.tcp.state == CT_TCP_ESTABLISHED && net->ct.nf_ct_proto.tcp.tcp_be_liberal);
}

/* The kernel counts jiffies and takes milliseconds: the length of a second is read back from a time-out of 1000 s. */
static __always_inline void set_timeout(struct nf_conn___podlane *ct, __u32 now, __u32 timeout)
{
	__u32 hz;

	if (tracing || bpf_ct_change_timeout(ct, 1000 * 1000))
		return;
	hz = (ct->timeout - now + 500) / 1000;
	if (hz)
		bpf_ct_change_timeout(ct, (__u64)timeout * 1000 / hz);
}

static __always_inline void shorten_timeout(struct nf_conn___podlane *ct, __u32 most)
{
	__u32 now = bpf_jiffies64();

	if (ct->timeout - now > most)
		set_timeout(ct, now, most);
}

/*
 * Gives the entry the time-out that a packet on the slow path would have given it; `is_silent`: the peer of a TCP
 * connection acknowledges nothing.
 */
static __always_inline void renew_timeout(struct nf_conn___podlane *ct, struct net___podlane *net, __u8 protocol,
					  bool is_silent)
{
	__u32 full = protocol == IPPROTO_TCP ? net->ct.nf_ct_proto.tcp.timeouts[CT_TCP_ESTABLISHED]
					     : net->ct.nf_ct_proto.udp.timeouts[CT_UDP_REPLIED];
	__u32 unacknowledged = net->ct.nf_ct_proto.tcp.timeouts[CT_TCP_UNACKNOWLEDGED];
	__u32 now = bpf_jiffies64(), left = ct->timeout - now;

	if (is_silent && unacknowledged < full)
		full = unacknowledged;
	if (left < full - full / 8 || (is_silent && left > full))
		set_timeout(ct, now, full);
}

static __always_inline struct ip_addr ct_address(const union nf_inet_addr___podlane *from, bool is_ipv4)
{
	if (is_ipv4)
		return mapped_ipv4(from->all[0]);
	return (struct ip_addr){{from->all[0], from->all[1], from->all[2], from->all[3]}};
}

/* `other` is the tuple of the replies: reversed, it is this direction after translation. */
static __always_inline void read_translation(const struct nf_conntrack_tuple___podlane *other, bool is_ipv4,
					     struct flow *flow)
{
	flow->source = ct_address(&other->dst.u3, is_ipv4);
	flow->destination = ct_address(&other->src.u3, is_ipv4);
	flow->source_port = other->dst.u.all;
	flow->destination_port = other->src.u.all;
}

static __always_inline void make_tuple(const struct flow_key *key, bool is_ipv4, struct bpf_sock_tuple *tuple)
{
	if (is_ipv4) {
		tuple->ipv4.saddr = key->source.word[3];
		tuple->ipv4.daddr = key->destination.word[3];
		tuple->ipv4.sport = key->source_port;
		tuple->ipv4.dport = key->destination_port;
		return;
	}
	__builtin_memcpy(tuple->ipv6.saddr, &key->source, sizeof(key->source));
	__builtin_memcpy(tuple->ipv6.daddr, &key->destination, sizeof(key->destination));
	tuple->ipv6.sport = key->source_port;
	tuple->ipv6.dport = key->destination_port;
}

/* To be released. */
static __always_inline struct nf_conn___podlane *find_connection(struct __sk_buff *skb, struct flow_scratch *work,
								 const struct flow_key *key)
{
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct ct_opts *opts = &work->opts;

	__builtin_memset(opts, 0, sizeof(*opts));
	opts->netns_id = CURRENT_NETNS;
	opts->l4proto = key->protocol;
	make_tuple(key, is_ipv4, &work->tuple);
	return bpf_skb_ct_lookup(skb, &work->tuple, is_ipv4 ? sizeof(work->tuple.ipv4) : sizeof(work->tuple.ipv6), opts,
				 sizeof(*opts));
}

/*
 * A TCP endpoint that replies to a SYN sends SYN or RST. Everything else belongs to another connection with the same
 * addresses and ports, which conntrack does not know.
 */
static __always_inline bool is_of_another(struct nf_conn___podlane *ct, __u8 protocol, __u32 how)
{
	return protocol == IPPROTO_TCP && ct->proto.tcp.state == CT_TCP_SYN_SENT && !(how & (TCP_SYN | TCP_RST));
}

/*
 * Whether conntrack knows the connection in neither direction. The other direction matters if the host translates
 * another connection to the same addresses and ports.
 */
static __always_inline bool is_untracked(struct __sk_buff *skb, struct flow_scratch *work, __u32 how)
{
	struct nf_conn___podlane *ct;
	bool another;

	reverse_key(&work->key, &work->other);
	ct = find_connection(skb, work, &work->other);
	if (!ct)
		return work->opts.error == -ENOENT;
	another = is_of_another(ct, work->key.protocol, how);
	bpf_ct_release(ct);
	return another;
}

/* Fills in the flow's translation. Returns FOLLOW_CONFIRMED, FOLLOW_UNTRACKED, or 0 for the slow path. */
static __always_inline int query_conntrack(struct __sk_buff *skb, struct flow_scratch *work, __u32 how)
{
	__u8 protocol = work->key.protocol;
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct ct_opts *opts = &work->opts;
	struct nf_conn___podlane *ct = find_connection(skb, work, &work->key);
	struct net___podlane *net;
	bool good, another;

	if (!ct) {
		if (!(how & MAY_BE_UNTRACKED) || opts->error != -ENOENT)
			return 0;
		return is_untracked(skb, work, how) ? FOLLOW_UNTRACKED : 0;
	}
	/* Once: for each load of such a pointer the verifier of 6.18 searches all the kernel's types by name. */
	net = ct->ct_net.net;
	asm volatile("" : "+r"(net));
	another = how & MAY_BE_UNTRACKED && is_of_another(ct, protocol, how);
	good = may_bypass(ct, net, protocol);
	if (good && opts->dir)
		read_translation(&ct->tuplehash[0].tuple, is_ipv4, &work->flow);
	else if (good)
		read_translation(&ct->tuplehash[1].tuple, is_ipv4, &work->flow);
	if (good)
		renew_timeout(ct, net, protocol, how & PEER_IS_SILENT);
	bpf_ct_release(ct);
	if (another)
		return FOLLOW_UNTRACKED;
	return good ? FOLLOW_CONFIRMED : 0;
}
