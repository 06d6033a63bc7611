/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The kernel's connections: the parts of its structures that are read, and its functions. */
#pragma once

#include "bpf/kernel.h"

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
#define CT_EXPECTED (1 << 0)
#define CT_SEEN_REPLY (1 << 1)
#define CT_ASSURED (1 << 2)
#define CT_CONFIRMED (1 << 3)
#define CT_SOURCE_NAT (1 << 4)
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
		__u8 protonum;
	} dst;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash___podlane {
	struct nf_conntrack_tuple___podlane tuple;
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
	struct {
		__u16 id;
	} zone; /* with CONFIG_NF_CONNTRACK_ZONES */
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
		struct {
			unsigned long stream_ts; /* jiffies, 2 s after the entry was made */
		} udp;
	} proto;
	__u32 mark;
} __attribute__((preserve_access_index));

/* An entry that is not inserted yet: the kernel's nf_conn___init. */
struct nf_conn_init___podlane {
	struct nf_conn___podlane ct;
};

extern struct nf_conn___podlane *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
						   __u32 tuple_size, struct ct_opts *opts,
						   __u32 opts_size) __ksym __weak;
extern struct nf_conn_init___podlane *bpf_skb_ct_alloc(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
						       __u32 tuple_size, struct ct_opts *opts,
						       __u32 opts_size) __ksym __weak;
extern int bpf_ct_set_status(const struct nf_conn_init___podlane *ct, __u32 status) __ksym __weak;
extern struct nf_conn___podlane *bpf_ct_insert_entry(struct nf_conn_init___podlane *ct) __ksym __weak;
extern int bpf_ct_change_timeout(struct nf_conn___podlane *ct, __u32 ms) __ksym __weak;
extern void bpf_ct_release(struct nf_conn___podlane *ct) __ksym __weak;

/* enum ip_conntrack_info, in the lowest bits of sk_buff._nfct. */
#define CTINFO_MASK 7UL
#define CTINFO_ESTABLISHED 0
#define CTINFO_NEW 2 /* of the side that spoke first; nobody has replied */
#define CTINFO_ESTABLISHED_REPLY 3
#define CTINFO_RELATED_REPLY 4
#define CTINFO_NONE 8 /* the packet has no conntrack entry */

/* Of a packet on its way through the host stack: conntrack's entry, with the verdict in its lowest bits. 0: none. */
static __always_inline unsigned long entry_of(struct __sk_buff *skb)
{
	unsigned long entry = 0;
	void *field = (void *)skb + bpf_core_field_offset(struct sk_buff___podlane, _nfct);

	if (!can_read_kernel || !bpf_core_field_exists(struct sk_buff___podlane, _nfct) ||
	    bpf_probe_read_kernel(&entry, sizeof(entry), field) || !(entry & ~CTINFO_MASK))
		return 0;
	return entry;
}

/* Of such an entry; 0 is the default one, in which flows are queried. */
static __always_inline __u16 zone_of(unsigned long entry)
{
	struct nf_conn___podlane *ct = (void *)(entry & ~CTINFO_MASK);
	__u16 zone = 0;

	if (bpf_core_field_exists(ct->zone))
		read_kernel(&zone, sizeof(zone), &ct->zone.id);
	return zone;
}

static __always_inline __u32 ctinfo_of(struct __sk_buff *skb)
{
	unsigned long entry = entry_of(skb);

	return entry ? entry & CTINFO_MASK : CTINFO_NONE;
}
