// SPDX-License-Identifier: MIT
#include "tests/harness/pod.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace podlane::test {

Pod observe(const Node &node, std::shared_ptr<Container> container) {
    Pod pod{.container = std::move(container)};
    const Json link = Json::parse(pod.container->run("ip -j addr show eth0")).at(0);
    pod.ifindex = link.at("link_index");
    pod.mtu = link.at("mtu");
    pod.mac = require(parse_mac(link.at("address").get<std::string>()));
    for (const Json &one : link.at("addr_info")) {
        const ip_addr addr = ip(one.at("local"));
        if (is_link_local(addr))
            pod.link_local = addr;
        else
            (is_ipv4(addr) ? pod.v4 : pod.v6) = addr;
    }
    for (const Json &one : Json::parse(node.run("ip -j link")))
        if (one.at("ifindex") == pod.ifindex) {
            pod.host_ifname = one.at("ifname");
            pod.gateway_mac = require(parse_mac(one.at("address").get<std::string>()));
        }
    return pod;
}

Pod attach_pod(const Node &node, std::shared_ptr<Container> container, const std::vector<Json> &plugins,
               const Json &arguments) {
    auto chain = std::make_shared<Chain>(node, plugins);
    chain->capability_args = arguments;
    const Reply reply = chain->add(*container);
    if (reply.rc != 0)
        throw std::runtime_error("ADD: " + reply.out + reply.err);
    Pod pod = observe(node, std::move(container));
    pod.chain = std::move(chain);
    pod.result = reply.json;
    return pod;
}

void detach_pod(const Pod &pod) {
    if (const Reply reply = pod.chain->del(*pod.container); reply.rc != 0)
        ADD_FAILURE() << "DEL: " << reply;
}

} // namespace podlane::test
