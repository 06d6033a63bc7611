// SPDX-License-Identifier: MIT
// Podlane behind a main plugin whose interface has no host-side veth, or is not routed by the node.
#pragma once

#include "tests/harness/outcome.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {

constexpr std::uint16_t kPort = 7;

inline bool can_make(const Node &node, const std::string &kind) {
    node.run("ip link add probe0 type veth peer name probe1");
    const bool made = run(node.ns(), words("ip link add link probe0 name probe2 type " + kind)).rc == 0;
    node.run("ip link del probe0");
    return made;
}

// eth0 of a pod is in the network behind provider 0; net1 by the plugin of the parameter on the link of provider 1. The
// bridge has that link as a port, and is no gateway.
class PodRules : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        const bool possible = has_own_link() || can_make(node(), GetParam());
        ASSERT_TRUE(possible || !slow()) << "the kernels of tests/kernels have all of them";
        if (!possible)
            GTEST_SKIP() << "this kernel has no " << GetParam() << "; tests/kernels runs this under those that have it";
        if (has_own_link())
            add_device();
        if (GetParam() != "bridge")
            return;
        node().run("ip link add br1 type bridge");
        node().run("ip link set dev1 master br1");
        node().run("ip link set br1 up");
        node().run("ip link set dev1 up");
    }
    void TearDown() override {
        if (HasFailure() && pod_)
            for (const char *what : {"ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all"})
                std::cerr << pod_->run(what);
    }
    [[nodiscard]] Node &node() { return lab_.node(); }
    [[nodiscard]] static bool has_own_link() { return GetParam() == "host-device" || GetParam() == "bridge"; }
    // A device of the node with a link of its own to provider 1.
    void add_device() {
        const Container &provider = lab_.provider(1);
        node().run("ip link add dev1 type veth peer name port1 netns " + provider.path());
        (void)provider.run("ip addr add 192.0.2.193/27 dev port1");
        (void)provider.run("ip addr add 2001:db8:e1::1/64 dev port1 nodad");
        (void)provider.run("ip link set port1 up");
        node().run("ip route add 192.0.2.192/27 via " + SourceLab::on_link(1, 1, true)); // for rp_filter
    }
    [[nodiscard]] Json main_plugin(const Json &keys = Json::object()) {
        const bool device = has_own_link();
        Json config = {{"type", GetParam()}, {"ipam", lab_.network(1).at("ipam")}};
        if (GetParam() == "bridge")
            config["bridge"] = "br1";
        else
            config[device ? "device" : "master"] = device ? "dev1" : "up1";
        Json range4 = {{"subnet", device ? "192.0.2.192/27" : "192.0.2.64/26"},
                       {"rangeStart", device ? "192.0.2.200" : "192.0.2.84"},
                       {"gateway", device ? "192.0.2.193" : SourceLab::on_link(1, 1, true)}};
        Json range6 = {{"subnet", device ? "2001:db8:e1::/64" : "2001:db8:f1::/64"},
                       {"rangeStart", device ? "2001:db8:e1::20" : "2001:db8:f1::20"},
                       {"gateway", device ? "2001:db8:e1::1" : SourceLab::on_link(1, 1, false)}};
        config["ipam"]["ranges"] = {Json::array({range4}), Json::array({range6})};
        config.update(keys);
        return config;
    }
    [[nodiscard]] Json podlane(const Json &keys = Json::object()) {
        Json config = {
            {"type", "podlane"}, {"bpffs", node().bpffs()}, {"firstPacket", "direct"}, {"log", {{"file", log_file()}}}};
        config.update(keys);
        return config;
    }
    [[nodiscard]] std::string log_file() { return node().dir() + "/podlane.log"; }
    [[nodiscard]] Chain net1_alone() {
        Chain alone(node(), {podlane()}, "1.0.0", "net1");
        alone.variables = {{"CNI_IFNAME", "net1"}};
        return alone;
    }
    [[nodiscard]] std::string logged() { return read_file(log_file()); }
    [[nodiscard]] Attach net1(const Json &keys = Json::object()) {
        return {"net1", "net1", {main_plugin(), podlane(keys)}};
    }
    void add_pod() {
        pod_ = node().container();
        lab_.add(pod_, "eth0", 0);
        before_ = routing();
        lab_.add(pod_, net1());
        settle();
    }
    // These plugins do not wait for duplicate address detection.
    void settle() {
        ASSERT_TRUE(wait_until([&] { return pod_->run("ip -6 addr show tentative").empty(); }));
    }
    [[nodiscard]] std::string routing() const {
        return pod_->run("ip rule") + pod_->run("ip -6 rule") + pod_->run("ip route show table all dev eth0") +
               pod_->run("ip -6 route show table all dev eth0");
    }
    [[nodiscard]] ip_addr addr(const std::string &ifname, bool ipv4) const {
        return SourceLab::addr(*pod_, ifname, ipv4);
    }
    [[nodiscard]] bool answers(const std::string &ifname, int provider, bool ipv4,
                               Transport transport = Transport::tcp) {
        const EchoServer server(pod_->ns(), ipv4, kPort);
        return ask(lab_.client(provider).ns(), transport, {addr(ifname, ipv4), kPort}) == 0;
    }

    [[nodiscard]] bool ping_once(bool ipv4) {
        return run(lab_.client(1).ns(), words("ping -c 1 -W 1 " + to_string(addr("net1", ipv4)))).rc == 0;
    }

    SourceLab lab_;
    std::shared_ptr<Container> pod_;
    std::string before_;
};

class NoHostVeth : public PodRules {};

inline std::string plugin_name(const testing::TestParamInfo<std::string> &info) {
    return info.param == "host-device" ? "HostDevice" : info.param;
}
inline auto without_host_veth() { return testing::Values("macvlan", "ipvlan", "host-device"); }

} // namespace podlane::test
