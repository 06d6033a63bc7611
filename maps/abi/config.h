/* What a pod sees as its gateway. The same for every pod, so nothing has to be discovered or remembered. */
#pragma once

/* MAC address of every host end Podlane creates; its EUI-64 link-local address is the IPv6 gateway. */
/* clang-format off */
#define PODLANE_HOST_MAC {0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
/* clang-format on */

/* 169.254.1.1 (RFC 3927 link-local), host byte order. */
#define PODLANE_GATEWAY_IPV4 0xa9fe0101u

/* fe80::ecee:eeff:feee:eeee, its words in host byte order; word 1 is 0. */
#define PODLANE_GATEWAY_IPV6_0 0xfe800000u
#define PODLANE_GATEWAY_IPV6_2 0xeceeeeffu
#define PODLANE_GATEWAY_IPV6_3 0xfeeeeeeeu
