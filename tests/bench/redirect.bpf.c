// SPDX-License-Identifier: MIT
/* The least a program on these hooks can do: sends every TCP and UDP packet on, without looking at anything. */
#include "vmlinux.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define TC_ACT_UNSPEC (-1)

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} redirect_to SEC(".maps"); /* ifindex */

/* Neighbour discovery and pings go on to the host stack. */
static __always_inline __u32 target(struct __sk_buff *skb) {
    __u8 *frame = (void *)(long)skb->data;
    __u32 only = 0, *to = bpf_map_lookup_elem(&redirect_to, &only);
    __u8 protocol;

    if (!to || frame + sizeof(struct ethhdr) + sizeof(struct iphdr) > (__u8 *)(long)skb->data_end)
        return 0;
    if (skb->protocol == bpf_htons(ETH_P_IP))
        protocol = frame[sizeof(struct ethhdr) + __builtin_offsetof(struct iphdr, protocol)];
    else if (skb->protocol == bpf_htons(ETH_P_IPV6))
        protocol = frame[sizeof(struct ethhdr) + __builtin_offsetof(struct ipv6hdr, nexthdr)];
    else
        return 0;
    return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ? *to : 0;
}

SEC("tc")
int to_pod(struct __sk_buff *skb) {
    __u32 to = target(skb);

    return to ? bpf_redirect_peer(to, 0) : TC_ACT_UNSPEC;
}

/* By the kernel's routes, as a neighbour is needed. */
SEC("tc")
int to_node(struct __sk_buff *skb) {
    __u32 to = target(skb);

    return to ? bpf_redirect_neigh(to, 0, 0, 0) : TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual MIT/GPL";
