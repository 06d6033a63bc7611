// SPDX-License-Identifier: MIT
// What podlanectl doctor finds in the runtime's configuration of Podlane's networks.
#pragma once

#include "tests/netns/doctor.hpp"

namespace podlane::test {

// The runtime's configuration of a network, Podlane's own plugin alone.
inline void configure(const Doctor &d, Json keys, const std::string &range = "198.18.77.0/24") {
    keys.update({{"type", "podlane"}, {"ipam", {{"type", "host-local"}, {"ranges", {{{{"subnet", range}}}}}}}});
    std::ofstream(d.node_.dir() + "/10-podlane.conflist")
        << Json{{"cniVersion", "1.0.0"}, {"name", "pods"}, {"plugins", {keys}}};
}

constexpr std::array kNetworkFaults = {
    Fault{"NobodyMasquerades", "no-masquerade", "nobody masquerades 198.18.77.0/24 of network pods", false,
          [](Doctor &d) {
              configure(d, {{"ipMasq", false}});
          },
          false},
    Fault{"ServicesAmongThePods", "service-range", "198.18.0.0/15, which contains the ClusterIP 198.19.0.1", false,
          [](Doctor &d) {
              configure(d, {{"ipMasq", true}, {"clusterCIDRs", {"198.18.0.0/15"}}});
              d.on_node(
                  "nft add table ip kube-proxy; add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . "
                  "inet_service : verdict ; elements = { 198.19.0.1 . tcp . 443 : accept } ; }");
          },
          false},
    Fault{"NoRouteToOtherNodes", "cluster-route", "no route leads to other nodes' pods in 198.18.64.0/18", false,
          [](Doctor &d) {
              configure(d, {{"ipMasq", true}, {"clusterCIDRs", {"198.18.64.0/18"}}});
          },
          false},
    Fault{"NoLoopbackPlugin", "loopback", "there is no plugin loopback in ", false,
          [](Doctor &d) {
              d.node_.remove_plugin("loopback");
              d.setup_ +=
                  "mount -t tmpfs none /run && mkdir /run/containerd && : > /run/containerd/containerd.sock && ";
          }},
    Fault{"RangeOfTheNodesNetwork", "range-overlap", "203.0.113.0/25 of network pods overlaps 203.0.113.0/24 of up0",
          false,
          [](Doctor &d) {
              configure(d, {{"ipMasq", true}}, "203.0.113.0/25");
          }},
};

} // namespace podlane::test
