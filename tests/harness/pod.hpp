// SPDX-License-Identifier: MIT
// A pod, whichever node and plugins it is of, as the kernel shows it once it is attached.
#pragma once

#include "tests/harness/chain.hpp"
#include "tests/harness/wire.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace podlane::test {

using podlane::to_string;

struct Pod {
    int node = 1; // of a cluster
    std::shared_ptr<Container> container{};
    std::shared_ptr<Chain> chain{}; // that attached it; none if the test called the plugin itself
    Json result{};                  // of the ADD
    std::string host_ifname{};
    std::uint32_t ifindex = 0; // of the host-side veth
    std::uint32_t mtu = 0;
    Mac mac{};
    Mac gateway_mac{};
    ip_addr v4{};
    ip_addr v6{};
    ip_addr link_local{};

    [[nodiscard]] const net::Namespace &ns() const { return container->ns(); }
    [[nodiscard]] Wire wire() const { return {ns(), "eth0"}; }
    [[nodiscard]] const ip_addr &addr(bool ipv4) const { return ipv4 ? v4 : v6; }
    // Empty if it has no address of the family.
    [[nodiscard]] std::string text4() const { return v4 == ip_addr{} ? "" : to_string(v4); }
    [[nodiscard]] std::string text6() const { return v6 == ip_addr{} ? "" : to_string(v6); }
};

// Reads everything but `node`, `chain` and `result` from eth0 and its host-side veth.
Pod observe(const Node &node, std::shared_ptr<Container> container);
// An ADD of all plugins that must succeed. `arguments`: runtimeConfig for those that declare the capability.
Pod attach_pod(const Node &node, std::shared_ptr<Container> container, const std::vector<Json> &plugins,
               const Json &arguments = Json::object());
// A DEL that must succeed.
void detach_pod(const Pod &pod);

} // namespace podlane::test
