/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The state that the stages of a program share: the packet, what was parsed from it and what was decided. */
#pragma once

#include "vmlinux.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/maps.h"
#include "bpf/trace.h"
#include "maps/abi/config.h"

/* Constants that BTF does not carry. */
#define AF_INET 2
#define AF_INET6 10
#define ETH_P_IP 0x0800
#define ETH_P_ARP 0x0806
#define ETH_P_8021Q 0x8100
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021AD 0x88a8
#define ETH_P_802_2 0x0004 /* skb->protocol of an 802.3 frame */
#define ETH_P_MPLS_UC 0x8847
#define ETH_P_MPLS_MC 0x8848
#define ETH_P_PPP_DISC 0x8863
#define ETH_P_PPP_SES 0x8864
#define ETH_P_LLDP 0x88cc
#define VLAN_ID_MASK 0x0fff
#define PACKET_HOST 0
#define PACKET_OTHERHOST 3
#define TC_ACT_SHOT 2
#define TC_ACT_REDIRECT 7
/* Continue with foreign programs: TCX_NEXT, and TC_ACT_UNSPEC on clsact. */
#define VERDICT_NEXT (-1)
#define IPPROTO_ICMPV6 58
#define NEXTHDR_HOP 0
#define NEXTHDR_ROUTING 43
#define NEXTHDR_FRAGMENT 44
#define NEXTHDR_AUTH 51
#define NEXTHDR_DEST 60

/* The build of Podlane that the program belongs to. Set by the loader; podlanectl reads it back from the kernel. */
const volatile __u64 podlane_build = 0;
/* One bit of skb->mark that marks packets sent by the fast path. Set by the loader. */
const volatile __u32 fast_mark = PODLANE_MARK;
/* Set by the loader: false on kernels that are locked down in mode confidentiality, where no packet is a reply. */
const volatile bool can_read_kernel = false;
/* The node's own network namespace, by which its sockets and its endpoints' addresses are known. Set by the loader. */
const volatile __u32 node_netns = 0;

/* The part of the transport header that identifies a flow. */
struct ports {
	__be16 source;
	__be16 destination;
};

struct ip_ends {
	struct ip_addr source;
	struct ip_addr destination;
	__u8 protocol; /* behind extension headers */
};

/* The source of a packet from a pod is the flow's local side, that of a packet to a pod the peer's. */
enum direction { FROM_POD, TO_POD };

/* The answer of conntrack about the connection. */
enum follow {
	FOLLOW_CONFIRMED = 1,  /* both directions were let through */
	FOLLOW_TRANSLATED = 2, /* and the host translates it */
	FOLLOW_FORGOTTEN = 4,  /* it was confirmed and changes its state */
	FOLLOW_UNTRACKED = 8,  /* the host stack has not seen it */
	FOLLOW_NEW = 16,       /* and it was not cached */
	FOLLOW_REPLY = 32,     /* the receiver opened the connection */
	FOLLOW_ALLOWED = 64,   /* isolation let the flow through, and nothing has changed since */
	FOLLOW_HIDDEN = 128,   /* conntrack must not see that the packet ends a connection */
	FOLLOW_QUERIED = 256,  /* conntrack has confirmed it now */
	FOLLOW_RENEWED = 512,  /* and it was cached */
};

/* Properties of a packet that the flow cache needs: its TCP flags, and more. */
#define TCP_FIN 0x01U
#define TCP_SYN 0x02U
#define TCP_RST 0x04U
#define TCP_ACK 0x10U
#define MAY_BE_UNTRACKED 0x40U /* the packet can take the fast path if the host stack has not seen its connection */
#define READ_ONLY 0x80U        /* the packet caches nothing */
#define PEER_IS_SILENT 0x100U  /* it acknowledges nothing */
#define IS_CACHED 0x200U       /* its flow is on the fast path */

/* A frame's headers, as parse() has read them. */
struct parsed {
	struct ip_ends ip;    /* of the packet itself */
	struct path_key flow; /* as the pod on this interface sees it; of the packet quoted in an ICMP error */
	__u16 protocol;       /* ethertype, host order */
	__u16 l4_offset;      /* bytes from the Ethernet header to the transport header */
	__be32 traffic_class; /* TOS of IPv4; class and flow label of IPv6 in network byte order */
	__be32 fragment;      /* identification of the packet that the fragment is of */
	int detour;           /* why it must take the slow path if its source is allowed */
	__u16 header_bytes;   /* IP and transport headers together, 0 if unknown */
	bool is_icmp_error;
	bool is_icmpv6;          /* and no error */
	bool has_flow;           /* flow is complete */
	bool has_unread_headers; /* more IPv6 extension headers than are parsed */
	bool is_fragment;
	bool is_first_fragment;
	bool is_from_link; /* no router forwards its source */
	bool is_padded;    /* more bytes follow than the IP header counts */
	__u8 tcp_flags;    /* TCP_SYN, TCP_FIN, TCP_RST, TCP_ACK */
	__u8 icmp_type;
	__u8 hop_limit;           /* TTL of IPv4 */
	struct tcp_window window; /* of TCP with ACK: what the sender accepts */
};

/*
 * A stage returns 0 to continue, or the reason (enum reason) that ends the packet. A stage that redirects the packet
 * stores the kernel's return value in verdict.
 */
struct packet {
	struct __sk_buff *skb;
	struct flow_scratch *work;         /* the scratch area */
	struct parsed *in;                 /* there */
	struct ip_ends *ip;                /* there: as the packet leaves, as far as it is known */
	struct interface *interface;       /* the host-side veth the packet is on */
	struct address *receiver;          /* the local endpoint it is delivered to, once found */
	struct source_route *egress_route; /* of the endpoint's network, if it has one of its own */
	__u32 network;                     /* of the endpoint that sends or is to receive it */
	int verdict;
	__be16 new_destination_port;
	__u16 follow;        /* enum follow */
	bool is_egress;      /* leaving the interface */
	bool is_handed_over; /* by the host-side veth of the container's other interface */
	bool is_new_flow;    /* no path was known for it */
	bool is_edt;         /* goes by the qdisc of the receiver's host-side veth */
};

/* The numbers of a FIN or RST. */
struct tcp_end {
	__u32 number; /* of the FIN, behind the segment's data, or of the reset */
	__u32 ack;    /* compared if it is a FIN */
	__u32 is_reset;
};

struct flow_scratch {
	struct flow_key key;
	struct flow_key other;
	struct flow flow;
	struct ct_opts opts;
	union {
		struct {
			struct tcp_end end;
			__u32 seen[2][5]; /* struct ip_ct_tcp_state___podlane of its sender and its receiver */
		};
		struct path_key kept; /* see find_kept_slot(): of other protocols, or of what a pod sends */
	};
	__u32 origin;         /* of conntrack's entry: see origin_of() */
	__u64 policies_at_ns; /* when has_policies was queried, 0: never */
	__u32 has_policies;   /* of IPsec */
	struct ip_ends ip;    /* see struct packet */
	struct parsed parsed;
};

/* The packet at hand, as far as known: too large for the stack, and a global function of 5.10 takes no pointers. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_scratch);
} scratch SEC(".maps");

/* Who spoke first on a UDP socket of a container with several interfaces. An upgrade keeps it, as struct announced. */
enum first_speaker {
	SPEAKER_SOCKET = 1,
	SPEAKER_PEER = 2,
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} udp_sockets SEC(".maps");

/* The last announcement to a socket. An upgrade keeps it if the size is the same: with another layout of that size
 * the map needs another name. */
struct announced {
	__u32 rate;                 /* bytes per second */
	__u32 clamp;                /* segments */
	__u32 own_rate;             /* SO_MAX_PACING_RATE of the application; UNPACED if it set none */
	__u16 is_expecting;         /* a limit was announced to it that is not enforced yet */
	__u16 is_known;             /* own_rate is known */
	__u64 passed_ns;            /* when a packet of it was on its way to its remote address: see note_passage() */
	struct flow_share flows[2]; /* by direction */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct announced);
} paced_sockets SEC(".maps");

static __always_inline struct flow_scratch *find_scratch(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&scratch, &only);
}

/* The parsed headers. Copied to the stack, each path of a program would leave other constants to the verifier. */
static __always_inline bool find_parsed(struct packet *p)
{
	struct flow_scratch *work = find_scratch();

	if (!work)
		return false;
	p->work = work;
	p->in = &work->parsed;
	p->ip = &work->ip;
	return true;
}

static __always_inline struct watch *find_watch(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&watch_v1, &only);
}

static __always_inline bool same_addr(const struct ip_addr *a, const struct ip_addr *b)
{
	return a->word[3] == b->word[3] && a->word[2] == b->word[2] && a->word[1] == b->word[1] &&
	       a->word[0] == b->word[0];
}

static __always_inline void reverse_key(const struct flow_key *key, struct flow_key *other)
{
	other->source = key->destination;
	other->destination = key->source;
	other->source_port = key->destination_port;
	other->destination_port = key->source_port;
	other->protocol = key->protocol;
}

static __always_inline bool is_unspecified(const struct ip_addr *addr)
{
	return !(addr->word[0] | addr->word[1] | addr->word[2] | addr->word[3]);
}

static __always_inline bool is_mapped_ipv4(const struct ip_addr *addr)
{
	return !(addr->word[0] | addr->word[1]) && addr->word[2] == bpf_htonl(0x0000ffff);
}

/* The value of a trie of prefixes for the address: enum prefix_value, 0 if nothing is of its family. */
static __always_inline __u32 prefix_value_for(const __u32 *found, const struct ip_addr *addr)
{
	return found && !(*found & PREFIX_IPV6 && is_mapped_ipv4(addr)) ? *found : 0;
}

/* Both are 2-byte aligned. */
static __always_inline bool same_mac(const __u8 *a, const __u8 *b)
{
	const __u16 *left = (const __u16 *)a, *right = (const __u16 *)b;

	return left[0] == right[0] && left[1] == right[1] && left[2] == right[2];
}

/* Of several the compiler would make one load at a computed place: the verifier refuses that of a context or socket. */
#define LOAD_FIELD(from, field)                                                                                        \
	({                                                                                                             \
		__u32 loaded;                                                                                          \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                                                                  \
			     : "=r"(loaded)                                                                            \
			     : "r"(from), "i"(__builtin_offsetof(typeof(*(from)), field)));                            \
		loaded;                                                                                                \
	})

/* Copies part of the frame; without a helper call if it is at a constant offset in the packet's linear part. */
static __always_inline int load(struct __sk_buff *skb, __u32 offset, void *to, __u32 size)
{
	void *from = (void *)(long)skb->data + offset;

	if (__builtin_constant_p(offset) && from + size <= (void *)(long)skb->data_end) {
		__builtin_memcpy(to, from, size);
		return 0;
	}
	return bpf_skb_load_bytes(skb, offset, to, size);
}

static __always_inline struct ip_addr mapped_ipv4(__be32 addr)
{
	struct ip_addr mapped = {{0, 0, bpf_htonl(0x0000ffff), addr}};

	return mapped;
}

static __always_inline bool is_extension(__u8 protocol)
{
	return protocol == NEXTHDR_HOP || protocol == NEXTHDR_ROUTING || protocol == NEXTHDR_DEST ||
	       protocol == NEXTHDR_FRAGMENT || protocol == NEXTHDR_AUTH;
}

/* The first reason for the slow path is the one that is counted. */
static __always_inline void detour(struct parsed *p, enum reason reason)
{
	if (!p->detour)
		p->detour = reason;
}
