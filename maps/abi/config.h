/* SPDX-License-Identifier: MIT */
/* A pod's gateway: addresses and MAC. The same for every pod, so nothing has to be discovered or stored. */
#pragma once

/* MAC address of every host-side veth Podlane creates; its EUI-64 link-local address is the IPv6 gateway. */
/* clang-format off */
#define PODLANE_HOST_MAC {0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
/* clang-format on */

/*
 * The bit in skb->mark by which to_uplink distinguishes what the fast path sent from what the host stack did; it is
 * cleared there. Not one of kube-proxy's (0x4000, 0x8000), portmap's (0x2000), Cilium's (0x0f00) or Calico's
 * (0xffff0000).
 */
#define PODLANE_MARK 0x1000u

/* 169.254.1.1 (RFC 3927 link-local), host byte order. */
#define PODLANE_GATEWAY_IPV4 0xa9fe0101u

/* fe80::ecee:eeff:feee:eeee, its words in host byte order; word 1 is 0. */
#define PODLANE_GATEWAY_IPV6_0 0xfe800000u
#define PODLANE_GATEWAY_IPV6_2 0xeceeeeffu
#define PODLANE_GATEWAY_IPV6_3 0xfeeeeeeeu
