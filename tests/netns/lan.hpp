// SPDX-License-Identifier: MIT
// A LAN behind an uplink of the node, with hosts and a router, and pods that have addresses of it.
#pragma once

#include "tests/netns/sources.hpp"

namespace podlane::test {

inline constexpr std::uint16_t kPort = 7;

// The LAN is a switch with the node's lan0 (without an address), a host and a router; another host is behind the
// router. Pods have 192.168.133.200 and on, by host-local.
class Lan : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        switch_ = node().container("switch");
        (void)switch_->run("ip link add br0 type bridge");
        (void)switch_->run("ip link set br0 up");
        node().run("ip link add lan0 type veth peer name port0 netns " + switch_->path());
        node().run("ip link set lan0 up");
        node().run("sysctl -qw net.ipv4.conf.lan0.rp_filter=1");
        host_ = on_switch("host", "192.168.133.10/24", "2001:db8:133::10/64");
        router_ = on_switch("router", "192.168.133.1/24", "2001:db8:133::1/64");
        (void)switch_->run("ip link set port0 master br0 up");
        far_ = node().container("far");
        (void)router_->run("ip link add inside type veth peer name eth0 netns " + far_->path());
        (void)router_->run("ip addr add 203.0.113.201/30 dev inside");
        (void)router_->run("ip addr add 2001:db8:fa::1/64 dev inside nodad");
        (void)router_->run("ip link set inside up");
        (void)router_->run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 "
                           "net.ipv4.conf.all.rp_filter=1");
        for (const char *command :
             {"ip link set lo up", "ip addr add 203.0.113.202/30 dev eth0",
              "ip addr add 2001:db8:fa::2/64 dev eth0 nodad", "ip link set eth0 up",
              "ip route add default via 203.0.113.201", "ip -6 route add default via 2001:db8:fa::1"})
            (void)far_->run(command);
        for (const char *command :
             {"ip route add default via 192.168.133.1", "ip -6 route add default via 2001:db8:133::1"})
            (void)host_->run(command);
    }
    void TearDown() override {
        if (HasFailure())
            node().show({"counter list --reasons", "path list", "map dump source_route", "uplink list"});
    }
    [[nodiscard]] Node &node() { return lab_.node(); }
    std::shared_ptr<Container> on_switch(const std::string &name, const std::string &v4, const std::string &v6) {
        auto made = node().container(name);
        (void)switch_->run("ip link add to-" + name + " type veth peer name eth0 netns " + made->path());
        (void)switch_->run("ip link set to-" + name + " master br0 up");
        (void)made->run("ip link set lo up");
        (void)made->run("sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.default.rp_filter=1");
        (void)made->run("ip addr add " + v4 + " dev eth0");
        (void)made->run("ip addr add " + v6 + " dev eth0 nodad");
        (void)made->run("ip link set eth0 up");
        return made;
    }
    // As in the example of the documentation.
    [[nodiscard]] Attach lan(const Json &keys = Json::object()) {
        Json config = {{"uplink", "lan0"},
                       {"ipam",
                        {{"type", "host-local"},
                         {"dataDir", node().leases()},
                         {"ranges",
                          {{{{"subnet", "192.168.133.0/24"},
                             {"rangeStart", "192.168.133.200"},
                             {"rangeEnd", "192.168.133.220"},
                             {"gateway", "192.168.133.1"}}},
                           {{{"subnet", "2001:db8:133::/64"},
                             {"rangeStart", "2001:db8:133::200"},
                             {"rangeEnd", "2001:db8:133::220"},
                             {"gateway", "2001:db8:133::1"}}}}}}}};
        config.merge_patch(keys);
        return {"net1", "lan", {node().config(config)}};
    }
    // eth0 in a cluster network, net1 on the LAN.
    std::shared_ptr<Container> add_pod(const Json &keys = Json::object()) {
        auto pod = node().container();
        lab_.add(pod, "eth0", 0);
        lab_.add(pod, lan(keys));
        return pod;
    }
    [[nodiscard]] ip_addr addr(const Container &pod) const { return SourceLab::addr(pod, "net1", GetParam()); }
    [[nodiscard]] std::string next_hop(const Container &pod, const ip_addr &source) {
        for (const Json &one : node().podlanectl_json("source list " + pod.id()))
            if (one.at("address") == to_string(source))
                return one.at("next_hop");
        return {};
    }
    // Whether a host announced an address without a request.
    [[nodiscard]] static bool is_announced(const Wire &heard) {
        bool announced = false;
        for (const Bytes &frame : heard.arrived()) {
            const Bytes packet = layer3(frame);
            const bool arp = ethertype(frame) == 0x0806 && packet.at(7) == 1 &&
                             std::equal(packet.begin() + 14, packet.begin() + 18, packet.begin() + 24);
            const bool nd =
                ethertype(frame) == 0x86dd && packet.size() >= 72 && packet.at(6) == 58 && packet.at(40) == 136;
            announced = announced || (GetParam() ? arp : nd);
        }
        return announced;
    }
    [[nodiscard]] std::uint32_t uplink() { return Json::parse(node().run("ip -j link show lan0")).at(0).at("ifindex"); }
    [[nodiscard]] ip_addr host_addr() const { return ip(GetParam() ? "192.168.133.10" : "2001:db8:133::10"); }
    [[nodiscard]] ip_addr far_addr() const { return ip(GetParam() ? "203.0.113.202" : "2001:db8:fa::2"); }

    SourceLab lab_;
    std::shared_ptr<Container> switch_;
    std::shared_ptr<Container> host_;
    std::shared_ptr<Container> router_;
    std::shared_ptr<Container> far_;
};

} // namespace podlane::test
