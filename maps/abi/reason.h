/* SPDX-License-Identifier: MIT */
/*
 * The verdict on a packet and why. Every packet a program of Podlane processes is counted under exactly one
 * reason of that program's side; a packet on the fast path between two pods counts at the sender (SENT_DIRECT)
 * and at the receiver (RECEIVED_DIRECT).
 */
#pragma once

#include "types.h"

/* X(NAME, text, kind, sentence); appended to only: the number is the index into struct counters. */
#define PODLANE_REASONS(X)                                                                                             \
	X(NONE, "none", PASS, "never counted")                                                                         \
	X(SENT_DIRECT, "sent-direct", FAST, "to a pod of this node, on the fast path")                                 \
	X(RECEIVED_DIRECT, "received-direct", FAST, "from a pod of this node, on the fast path")                       \
	X(RECEIVED_HOST, "received-host", HOST, "delivered to the pod by the host stack")                              \
	X(GATEWAY_ARP, "gateway-arp", ANSWER, "ARP request for the gateway, answered")                                 \
	X(GATEWAY_ND, "gateway-nd", ANSWER, "neighbour solicitation for the gateway, answered")                        \
	X(HOST_NOT_IP, "host-not-ip", HOST, "neither IPv4 nor IPv6, and nothing the program answers: host stack")      \
	X(HOST_ARP, "host-arp", HOST, "ARP that is not for the gateway: host stack")                                   \
	X(HOST_ND, "host-nd", HOST, "neighbour discovery that is not for the gateway: host stack")                     \
	X(HOST_L2, "host-l2", HOST, "destination MAC is not the host-side veth's: host stack (or its bridge)")         \
	X(HOST_VLAN, "host-vlan", HOST, "VLAN tag: host stack")                                                        \
	X(HOST_FRAGMENT, "host-fragment", HOST, "IP fragment: host stack")                                             \
	X(HOST_OPTIONS, "host-options", HOST, "IPv4 options or IPv6 extension headers: host stack")                    \
	X(HOST_LENGTH, "host-length", HOST,                                                                            \
	  "IP length disagrees with the frame: host stack, which trims or discards it")                                \
	X(HOST_NO_FLOW, "host-no-flow", HOST, "no transport header to identify the flow by: host stack")               \
	X(HOST_NOT_LOCAL, "host-not-local", HOST,                                                                      \
	  "destination is not an endpoint of this network on this node: host stack")                                   \
	X(HOST_SELF, "host-self", HOST, "destination is the sending endpoint itself: host stack")                      \
	X(HOST_FAST_PATH_OFF, "host-fast-path-off", HOST, "fast path off at one of the two endpoints: host stack")     \
	X(HOST_TTL, "host-ttl", HOST, "TTL or hop limit about to expire: host stack, which answers")                   \
	X(HOST_MTU, "host-mtu", HOST, "larger than the receiver's MTU: host stack, which answers or fragments")        \
	X(HOST_PATH, "host-path", HOST,                                                                                \
	  "opens or closes a cached connection, or replies to what came by the host stack: host stack")                \
	X(HOST_UNKNOWN_PATH, "host-unknown-path", HOST, "established flow that is not cached: host stack")             \
	X(HOST_UNKNOWN_ENDPOINT, "host-unknown-endpoint", HOST,                                                        \
	  "not counted any more: what an interface without an endpoint receives is dropped")                           \
	X(DROP_SOURCE_MAC, "drop-source-mac", DROP, "source MAC is not the endpoint's")                                \
	X(DROP_SOURCE_ADDRESS, "drop-source-address", DROP, "source address is not the endpoint's")                    \
	X(DROP_ARP_SPOOFED, "drop-arp-spoofed", DROP, "ARP sender is not the endpoint")                                \
	X(DROP_ND_SPOOFED, "drop-nd-spoofed", DROP,                                                                    \
	  "neighbour discovery for another address or as a router; it or TCP behind more than 4 headers, "             \
	  "all but later fragments behind more than 8")                                                                \
	X(DROP_MALFORMED, "drop-malformed", DROP,                                                                      \
	  "Ethernet, ARP or IP header truncated or inconsistent, or IPv4-mapped addresses in IPv6")                    \
	X(HOST_SCOPE, "host-scope", HOST,                                                                              \
	  "address that is never forwarded (link-local, loopback, multicast): host stack")                             \
	X(HOST_CHECKSUM, "host-checksum", HOST, "wrong IPv4 header checksum: host stack, which discards it")           \
	X(SENT_UPLINK, "sent-uplink", FAST, "to another node by an uplink, on the fast path")                          \
	X(RECEIVED_UPLINK, "received-uplink", FAST, "from another node by an uplink, on the fast path")                \
	X(UPLINK_DELIVERED, "uplink-delivered", FAST, "arrived on this uplink, delivered to a pod on the fast path")   \
	X(UPLINK_SENT, "uplink-sent", FAST, "left by this uplink, on the fast path")                                   \
	X(UPLINK_SENT_HOST, "uplink-sent-host", HOST, "left by this uplink, after the host stack")                     \
	X(HOST_NO_ROUTE, "host-no-route", HOST, "the kernel's routes do not forward it: host stack, which answers")    \
	X(HOST_NO_UPLINK, "host-no-uplink", HOST,                                                                      \
	  "the route leaves by an interface that is not an uplink: host stack")                                        \
	X(HOST_SOURCE_LOCAL, "host-source-local", HOST,                                                                \
	  "arrived on an uplink with a source of this node or behind it, or of nowhere: host stack")                   \
	X(HOST_NO_NEIGHBOUR, "host-no-neighbour", HOST,                                                                \
	  "retried while the next hop is unresolved: host stack, which sends ICMP unreachable")                        \
	X(SENT_SIBLING, "sent-sibling", MOVED,                                                                         \
	  "source belongs to another interface of the container: handled as sent by that one")                         \
	X(SENT_WAY, "sent-way", FAST, "by the uplink of the pod's network, to the network's next hop")                 \
	X(UPLINK_ARP, "uplink-arp", ANSWER, "ARP request for a pod whose network is on this uplink, answered")         \
	X(UPLINK_ND, "uplink-nd", ANSWER,                                                                              \
	  "neighbour solicitation for a pod whose network is on this uplink, answered")                                \
	X(DROP_EGRESS_LIMIT, "drop-egress-limit", DROP, "exceeds the sending endpoint's bandwidth limit")              \
	X(DROP_INGRESS_LIMIT, "drop-ingress-limit", DROP, "exceeds the receiving endpoint's bandwidth limit")          \
	X(DROP_VLAN, "drop-vlan", DROP, "VLAN tag that the endpoint is not allowed to send")                           \
	X(DROP_ETHER_TYPE, "drop-ether-type", DROP, "EtherType that the endpoint is not allowed to send")              \
	X(DROP_UNKNOWN_ENDPOINT, "drop-unknown-endpoint", DROP,                                                        \
	  "sent or received by an interface without an endpoint")                                                      \
	X(HOST_UNCONFIRMED, "host-unconfirmed", HOST,                                                                  \
	  "conntrack has not seen both directions of its connection: host stack")                                      \
	X(DROP_ISOLATION, "drop-isolation", DROP,                                                                      \
	  "the receiver's isolation does not let the sender in; on an uplink: in the name of an isolated pod")         \
	X(DROP_FORGED_END, "drop-forged-end", DROP,                                                                    \
	  "end of a TCP connection, arrived on an uplink, that its receiver would not accept")                         \
	X(DROP_HIDDEN_HEADER, "drop-hidden-header", DROP,                                                              \
	  "arrived on an uplink with its TCP header in a later fragment, or behind too many headers or tags")          \
	X(HOST_IPSEC, "host-ipsec", HOST,                                                                              \
	  "the node has IPsec policies, and its own routes send by the same uplink: host stack")

enum reason_kind {
	REASON_KIND_PASS,
	REASON_KIND_FAST,   /* fast path */
	REASON_KIND_HOST,   /* slow path, through the host stack */
	REASON_KIND_ANSWER, /* answered by the program */
	REASON_KIND_DROP,
	REASON_KIND_MOVED, /* to another host-side veth, where it is counted again */
};

enum reason {
#define X(name, text, kind, sentence) REASON_##name,
	PODLANE_REASONS(X)
#undef X
		REASON_COUNT
};
