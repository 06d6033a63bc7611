/*
 * Why a packet ended as it did. Every packet that meets a program of ours ends in exactly one reason of that
 * program's side; what is sent from one pod to another past the host stack counts at the sender (SENT_DIRECT)
 * and at the receiver (RECEIVED_DIRECT).
 */
#pragma once

#include "types.h"

/* X(NAME, text, kind, sentence); appended to only: the number is the index into struct counters. */
#define PODLANE_REASONS(X)                                                                                             \
	X(NONE, "none", PASS, "never counted")                                                                         \
	X(SENT_DIRECT, "sent-direct", FAST, "to a pod of this node, past the host stack")                              \
	X(RECEIVED_DIRECT, "received-direct", FAST, "from a pod of this node, past the host stack")                    \
	X(RECEIVED_HOST, "received-host", HOST, "delivered to the pod over its host end")                              \
	X(GATEWAY_ARP, "gateway-arp", ANSWER, "ARP request for the gateway, answered")                                 \
	X(GATEWAY_ND, "gateway-nd", ANSWER, "neighbour solicitation for the gateway, answered")                        \
	X(HOST_NOT_IP, "host-not-ip", HOST, "neither IPv4, IPv6 nor ours to answer: host stack")                       \
	X(HOST_ARP, "host-arp", HOST, "ARP that is not for the gateway: host stack")                                   \
	X(HOST_ND, "host-nd", HOST, "neighbour discovery that is not for the gateway: host stack")                     \
	X(HOST_L2, "host-l2", HOST, "addressed to another MAC than the host end's: host stack (or its bridge)")        \
	X(HOST_VLAN, "host-vlan", HOST, "VLAN tag: host stack")                                                        \
	X(HOST_FRAGMENT, "host-fragment", HOST, "IP fragment: host stack")                                             \
	X(HOST_OPTIONS, "host-options", HOST, "IPv4 options or IPv6 extension headers: host stack")                    \
	X(HOST_LENGTH, "host-length", HOST,                                                                            \
	  "IP length disagrees with the frame: host stack, which trims or discards it")                                \
	X(HOST_NO_FLOW, "host-no-flow", HOST, "no transport header to name the flow by: host stack")                   \
	X(HOST_NOT_LOCAL, "host-not-local", HOST, "destination is no endpoint of this network here: host stack")       \
	X(HOST_SELF, "host-self", HOST, "destination is the sending endpoint itself: host stack")                      \
	X(HOST_FAST_PATH_OFF, "host-fast-path-off", HOST, "fast path off at one of both ends: host stack")             \
	X(HOST_TTL, "host-ttl", HOST, "TTL or hop limit about to expire: host stack, which answers")                   \
	X(HOST_MTU, "host-mtu", HOST, "larger than the receiver's MTU: host stack, which answers or fragments")        \
	X(HOST_PATH, "host-path", HOST, "the flow came through the host stack and returns that way")                   \
	X(HOST_UNKNOWN_PATH, "host-unknown-path", HOST, "flow already under way but not remembered: host stack")       \
	X(HOST_UNKNOWN_ENDPOINT, "host-unknown-endpoint", HOST,                                                        \
	  "received by an interface without an endpoint: host stack")                                                  \
	X(DROP_SOURCE_MAC, "drop-source-mac", DROP, "source MAC is not the endpoint's")                                \
	X(DROP_SOURCE_ADDRESS, "drop-source-address", DROP, "source address is not the endpoint's")                    \
	X(DROP_ARP_SPOOFED, "drop-arp-spoofed", DROP, "ARP sender is not the endpoint")                                \
	X(DROP_ND_SPOOFED, "drop-nd-spoofed", DROP,                                                                    \
	  "neighbour discovery in another's name, a router's, or behind more than 4 headers")                          \
	X(DROP_MALFORMED, "drop-malformed", DROP,                                                                      \
	  "Ethernet, ARP or IP header cut short, contradicting itself, or IPv6 with IPv4-mapped addresses")            \
	X(HOST_SCOPE, "host-scope", HOST,                                                                              \
	  "a source that is never forwarded (link-local, loopback, multicast): host stack")                            \
	X(HOST_CHECKSUM, "host-checksum", HOST, "wrong IPv4 header checksum: host stack, which discards it")           \
	X(SENT_UPLINK, "sent-uplink", FAST, "to another node by an uplink, past the host stack")                       \
	X(RECEIVED_UPLINK, "received-uplink", FAST, "from another node by an uplink, past the host stack")             \
	X(UPLINK_DELIVERED, "uplink-delivered", FAST, "came in by this uplink, to a pod past the host stack")          \
	X(UPLINK_SENT, "uplink-sent", FAST, "left by this uplink, past the host stack")                                \
	X(UPLINK_SENT_HOST, "uplink-sent-host", HOST, "left by this uplink after the host stack")                      \
	X(HOST_NO_ROUTE, "host-no-route", HOST,                                                                        \
	  "the kernel's routes have no way to forward it: host stack, which answers")                                  \
	X(HOST_NO_UPLINK, "host-no-uplink", HOST, "the route leaves by an interface that is no uplink: host stack")    \
	X(HOST_SOURCE_LOCAL, "host-source-local", HOST,                                                                \
	  "came in by an uplink with a source of this node, or one that it routes nowhere: host stack")                \
	X(HOST_NO_NEIGHBOUR, "host-no-neighbour", HOST,                                                                \
	  "asked again while the next hop does not answer: host stack, which tells the sender")                        \
	X(SENT_SIBLING, "sent-sibling", MOVED,                                                                         \
	  "source is another interface's of the container: goes on as if that one had sent it")                        \
	X(SENT_WAY, "sent-way", FAST, "by the uplink of the pod's network, to the network's next hop")                 \
	X(UPLINK_ARP, "uplink-arp", ANSWER, "ARP request for a pod whose network is on this uplink, answered")         \
	X(UPLINK_ND, "uplink-nd", ANSWER,                                                                              \
	  "neighbour solicitation for a pod whose network is on this uplink, answered")                                \
	X(DROP_EGRESS_LIMIT, "drop-egress-limit", DROP, "beyond the sending endpoint's bandwidth")                     \
	X(DROP_INGRESS_LIMIT, "drop-ingress-limit", DROP, "beyond the receiving endpoint's bandwidth")                 \
	X(DROP_VLAN, "drop-vlan", DROP, "VLAN tag that the endpoint is not allowed to send")                           \
	X(DROP_ETHER_TYPE, "drop-ether-type", DROP, "EtherType that the endpoint is not allowed to send")              \
	X(DROP_UNKNOWN_ENDPOINT, "drop-unknown-endpoint", DROP, "sent by an interface without an endpoint")            \
	X(HOST_UNCONFIRMED, "host-unconfirmed", HOST,                                                                  \
	  "conntrack has not seen both directions of its connection: host stack")

enum reason_kind {
	REASON_KIND_PASS,
	REASON_KIND_FAST,   /* past the host stack */
	REASON_KIND_HOST,   /* through the host stack */
	REASON_KIND_ANSWER, /* answered by the program */
	REASON_KIND_DROP,
	REASON_KIND_MOVED, /* to another host end, where it is counted again */
};

enum reason {
#define X(name, text, kind, sentence) REASON_##name,
	PODLANE_REASONS(X)
#undef X
		REASON_COUNT
};
