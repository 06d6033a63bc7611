/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The kernel's memory, and of its structures the parts that are read: libbpf searches all its types for each. */
#pragma once

#include "bpf/packet.h"

#include <bpf/bpf_core_read.h>

#define XFRM_POLICIES 3 /* in, out, forward */

struct nf_tcp_net___podlane {
	unsigned int timeouts[14];
	__u8 tcp_be_liberal;
} __attribute__((preserve_access_index));

struct nf_udp_net___podlane {
	unsigned int timeouts[2];
} __attribute__((preserve_access_index));

struct net___podlane {
	struct {
		unsigned int inum;
	} ns;
	struct {
		struct {
			struct nf_tcp_net___podlane tcp;
			struct nf_udp_net___podlane udp;
		} nf_ct_proto;
	} ct;
	struct {
		unsigned int policy_count[XFRM_POLICIES * 2];
		__u8 policy_default[XFRM_POLICIES];
	} xfrm;
} __attribute__((preserve_access_index));

struct tcp_sock___podlane {
	struct {
		struct {
			struct {
				struct {
					struct {
						struct net___podlane *net;
					} skc_net;
				} __sk_common;
				unsigned long sk_max_pacing_rate;
			} sk;
		} icsk_inet;
	} inet_conn;
	__u32 rcv_nxt, rcv_wnd;
	__u32 snd_una, snd_nxt, write_seq, max_window, snd_wnd, snd_cwnd, snd_ssthresh, mss_cache, srtt_us;
	__u64 bytes_acked;
} __attribute__((preserve_access_index));

struct sk_buff___podlane {
	unsigned long _nfct; /* conntrack's entry, with the verdict in its lowest bits */
	__u8 ip_summed : 2;
	__u8 encapsulation : 1;
	__u16 csum_start;                                           /* and csum_offset */
	__u16 inner_transport_header, transport_header, mac_header; /* from the head */
	unsigned char *head;
	__u32 end; /* from the head: there struct skb_shared_info is */
} __attribute__((preserve_access_index));

struct skb_shared_info___podlane {
	__u32 gso_type;
} __attribute__((preserve_access_index));

/* Without can_read_kernel only as the fields of what the kernel has handed over. */
static __always_inline void read_kernel(void *to, __u32 size, const void *from)
{
	if (can_read_kernel)
		bpf_probe_read_kernel(to, size, from);
	else
		__builtin_memcpy(to, from, size);
}

/*
 * To be read by read_kernel(). Not loaded as a field: for each load of such a pointer the verifier of 6.18 searches all
 * the kernel's types by name, four times.
 */
static __always_inline struct net___podlane *read_net(struct net___podlane *const *from)
{
	struct net___podlane *net;

	if (!can_read_kernel)
		return *from;
	bpf_probe_read_kernel(&net, sizeof(net), from);
	return net;
}
