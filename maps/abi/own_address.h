/* SPDX-License-Identifier: MIT */
/* A query of the routes that no packet makes: the node has a rule for it (loader/own_addresses.hpp). */
#pragma once

#define OWN_ADDRESS_PROTOCOL 253 /* for experiments (RFC 3692); no packet of it has ports */
#define OWN_ADDRESS_PORT 0x504c  /* source port, host byte order */
#define OWN_ADDRESS_INTERFACE 1  /* ifindex of lo, the same in every network namespace */
