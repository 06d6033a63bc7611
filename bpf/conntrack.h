/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Queries conntrack for the state and the translation of a connection. */
#pragma once

#include "bpf/forwarded.h"
#include "bpf/ipsec.h"

static __always_inline bool is_opted_out(struct nf_conn___podlane *ct)
{
	return slow_mark_mask && bpf_core_field_exists(ct->mark) && (ct->mark & slow_mark_mask) == slow_mark;
}

/*
 * Both directions were let through, and nothing needs to see the payload. TCP: the windows of packets that bypass
 * conntrack are unknown to it, so it must accept the FIN that follows them. If it has ceased to, connections on the
 * fast path stay there: on the slow path it would not accept their data either.
 */
static __always_inline bool may_bypass(struct nf_conn___podlane *ct, struct net___podlane *net, __u8 protocol,
				       __u32 how)
{
	const unsigned long needed = CT_SEEN_REPLY | CT_ASSURED | CT_CONFIRMED;
	/* An expected connection may have a helper without the bit that says so: H.323, SIP. */
	const unsigned long refused = CT_DYING | CT_TEMPLATE | CT_NAT_CLASH | CT_HELPER | CT_EXPECTED | CT_SEQ_ADJUST;
	__u8 is_liberal;

	if ((ct->status & (needed | refused)) != needed || is_opted_out(ct))
		return false;
	if (protocol == IPPROTO_UDP)
		return true;
	read_kernel(&is_liberal, sizeof(is_liberal), &net->ct.nf_ct_proto.tcp.tcp_be_liberal);
	return ct->proto.tcp.state == CT_TCP_ESTABLISHED && (is_liberal || how & IS_CACHED);
}

/*
 * The kernel counts jiffies and takes milliseconds: the length of a second is read back from a time-out of 1000 s. If
 * that is none of what kernels have, another CPU has set the time-out meanwhile, and after this one.
 */
static __always_inline void set_timeout(struct nf_conn___podlane *ct, __u32 now, __u32 timeout, __u32 more_ms)
{
	__u32 hz;
	__u64 ms;

	if (tracing || bpf_ct_change_timeout(ct, 1000 * 1000))
		return;
	hz = (ct->timeout - now + 500) / 1000;
	if (hz != 100 && hz != 250 && hz != 300 && hz != 500 && hz != 1000)
		return;
	ms = (__u64)timeout * 1000 / hz + more_ms;
	bpf_ct_change_timeout(ct, ms < 0x7fffffff ? ms : 0x7fffffff);
}

static __always_inline void shorten_timeout(struct nf_conn___podlane *ct, __u32 most)
{
	__u32 now = bpf_jiffies64();

	if (ct->timeout - now > most)
		set_timeout(ct, now, most, 0);
}

/*
 * Gives the entry the time-out that the last packet before the next query would give it on the slow path. `is_silent`:
 * the peer of a TCP connection acknowledges nothing.
 */
static __always_inline void renew_timeout(struct nf_conn___podlane *ct, struct net___podlane *net, __u8 protocol,
					  bool is_silent)
{
	__u32 full, unacknowledged;

	read_kernel(&full, sizeof(full),
		    protocol == IPPROTO_TCP ? &net->ct.nf_ct_proto.tcp.timeouts[CT_TCP_ESTABLISHED]
					    : &net->ct.nf_ct_proto.udp.timeouts[CT_UDP_REPLIED]);
	if (is_silent) {
		read_kernel(&unacknowledged, sizeof(unacknowledged),
			    &net->ct.nf_ct_proto.tcp.timeouts[CT_TCP_UNACKNOWLEDGED]);
		if (unacknowledged < full)
			full = unacknowledged;
	}
	set_timeout(ct, bpf_jiffies64(), full, confirm_ns / 1000000);
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
	struct ct_opts *opts = &work->opts;
	struct bpf_sock_tuple tuple;

	__builtin_memset(opts, 0, sizeof(*opts));
	opts->netns_id = CURRENT_NETNS;
	opts->l4proto = key->protocol;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		make_tuple(key, true, &tuple);
		return bpf_skb_ct_lookup(skb, &tuple, sizeof(tuple.ipv4), opts, sizeof(*opts));
	}
	make_tuple(key, false, &tuple);
	return bpf_skb_ct_lookup(skb, &tuple, sizeof(tuple.ipv6), opts, sizeof(*opts));
}

/* Whether conntrack has no entry of the flow in the scratch area: it makes none of an end, and translates none. */
static __always_inline bool is_lost(struct __sk_buff *skb, struct flow_scratch *work)
{
	struct nf_conn___podlane *ct = find_connection(skb, work, &work->key);

	if (ct)
		bpf_ct_release(ct);
	return !ct && work->opts.error == -ENOENT;
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

/*
 * Distinguishes an entry of conntrack from others of the same addresses and ports: of UDP, when it was made, of TCP,
 * that it was made by a SYN, with which the programs forget the former connection. 0: nobody knows. Read as
 * memory: the verifier of 6.1 takes it for the state of DCCP.
 */
static __always_inline __u32 origin_of(struct nf_conn___podlane *ct, struct flow_scratch *work)
{
	struct ip_ct_tcp_state___podlane *seen = (void *)work->seen;
	unsigned long made;

	if (!can_read_kernel)
		return 0;
	if (work->key.protocol == IPPROTO_UDP)
		return bpf_probe_read_kernel(&made, sizeof(made), &ct->proto.udp.stream_ts) ? 0 : made;
	return !bpf_probe_read_kernel(seen, sizeof(work->seen), &ct->proto.tcp.seen) &&
	       !((seen[0].flags | seen[1].flags) & CT_TCP_LIBERAL);
}

/* Fills in the flow's translation. Returns FOLLOW_CONFIRMED, FOLLOW_UNTRACKED, or 0 for the slow path. */
static __always_inline int query_conntrack(struct __sk_buff *skb, struct flow_scratch *work, __u32 how)
{
	__u8 protocol = work->key.protocol;
	bool is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct ct_opts *opts = &work->opts;
	struct nf_conn___podlane *ct = find_connection(skb, work, &work->key);
	struct net___podlane *net;
	int verdict;

	if (!ct) {
		if (!(how & MAY_BE_UNTRACKED) || opts->error != -ENOENT)
			return 0;
		return is_untracked(skb, work, how) && !has_policies(skb) ? FOLLOW_UNTRACKED : 0;
	}
	net = read_net(&ct->ct_net.net);
	if (has_ipsec_policies(net))
		verdict = 0;
	else if (how & MAY_BE_UNTRACKED && is_of_another(ct, protocol, how))
		verdict = FOLLOW_UNTRACKED;
	else
		verdict = may_bypass(ct, net, protocol, how) ? FOLLOW_CONFIRMED : 0;
	if (verdict == FOLLOW_CONFIRMED) {
		if (opts->dir)
			read_translation(&ct->tuplehash[0].tuple, is_ipv4, &work->flow);
		else
			read_translation(&ct->tuplehash[1].tuple, is_ipv4, &work->flow);
		work->origin = origin_of(ct, work);
		/* Nobody caches what goes to the node itself, or to pods of other plugins. */
		if (!(how & READ_ONLY) &&
		    (how & IS_CACHED || was_forwarded(find_translated_key(work), bpf_ktime_get_ns(), skb->ifindex)))
			renew_timeout(ct, net, protocol, how & PEER_IS_SILENT);
	}
	bpf_ct_release(ct);
	return verdict;
}

/*
 * Whether the host has given the packet another source, an address of its own; the former one is left in work->other.
 * A global function: the verifier checks it once.
 */
__attribute__((noinline)) int read_former_source(struct __sk_buff *skb)
{
	const unsigned long entry = entry_of(skb);
	struct nf_conn___podlane *ct = (void *)(entry & ~CTINFO_MASK);
	struct flow_scratch *work = find_scratch();
	unsigned long status;
	__u32 from[4];

	if (!work || !entry || (entry & CTINFO_MASK) >= CTINFO_ESTABLISHED_REPLY ||
	    bpf_probe_read_kernel(&status, sizeof(status), &ct->status) || !(status & CT_SOURCE_NAT) ||
	    bpf_probe_read_kernel(from, sizeof(from), &ct->tuplehash[0].tuple.src.u3))
		return 0;
	work->other.source = skb->protocol == bpf_htons(ETH_P_IP)
				     ? mapped_ipv4(from[0])
				     : (struct ip_addr){{from[0], from[1], from[2], from[3]}};
	return 1;
}
