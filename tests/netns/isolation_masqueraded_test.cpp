// SPDX-License-Identifier: MIT
// Masquerading gives no way to an isolated pod: a pod of another plugin's network, or a host outside by a NodePort, has
// the node's own address on the pod's bridge or veth, which is in the ranges of the pod's network and group.
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
constexpr std::array kTransports = {Transport::tcp, Transport::udp};

enum class Main { podlane, ptp, bridge };

class IsolationMasqueraded : public LabTestOf<std::tuple<LabParameter, Main>> {
  protected:
    [[nodiscard]] const LabParameter &lab_parameter() const override { return std::get<0>(GetParam()); }
    [[nodiscard]] static Main main_plugin() { return std::get<1>(GetParam()); }
    // Of pods that have the same in common, each with the range of its pods as members.
    [[nodiscard]] static std::vector<Json> isolations() {
        const Json ranges = {Lab::kPods4, Lab::kPods6};
        return {{{"isolation", "network"}, {"clusterCIDRs", ranges}},
                {{"isolation", "group"}, {"groups", {"name:a"}}, {"groupCIDRs", {{"a", ranges}}}}};
    }
    void prepare() override {
        lab_->node().run("sysctl -qw net.ipv6.conf.default.accept_dad=0");
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        nft("add chain ip services pre { type nat hook prerouting priority -100; }\n"
            "add chain ip services post { type nat hook postrouting priority 100; }\n");
    }
    void TearDown() override {
        for (const Pod &pod : pods_)
            detach_pod(pod);
    }
    // A pod behind the main plugin that the parameter names.
    Pod add_pod(Json keys) {
        keys.update({{"firstPacket", "host"}, {"uplinks", {"up0"}}});
        if (main_plugin() == Main::podlane)
            return attach({lab_->node().config(with_attach(keys))});
        Json main = {{"type", main_plugin() == Main::ptp ? "ptp" : "bridge"}, {"ipam", lab_->node().ipam()}};
        main["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
        if (main_plugin() == Main::bridge)
            main.update({{"bridge", "cni0"}, {"isGateway", true}});
        keys["ipam"] = nullptr;
        return attach({main, lab_->node().config(with_attach(keys))});
    }
    // A pod of the same network whose packets the node routes. The ports of a bridge have no Service on it.
    Pod add_routed_pod(Json keys) {
        if (main_plugin() != Main::bridge)
            return add_pod(std::move(keys));
        keys.update({{"firstPacket", "host"}, {"uplinks", {"up0"}}, {"ipam", lab_->node().ipam()}});
        keys["ipam"]["ranges"] = {{{{"subnet", "198.18.8.0/24"}}}, {{{"subnet", "2001:db8:8::/64"}}}};
        return attach({lab_->node().config(with_attach(keys))});
    }
    // A pod of a network of the plugin `bridge` alone.
    Pod add_foreign_pod(bool masquerades) {
        const std::string third = masquerades ? "77" : "78";
        Json ipam = lab_->node().ipam();
        ipam["ranges"] = {{{{"subnet", "198.18." + third + ".0/24"}}}, {{{"subnet", "2001:db8:" + third + "::/64"}}}};
        const Json bridge = {{"type", "bridge"},
                             {"bridge", "br" + third},
                             {"isDefaultGateway", true},
                             {"ipMasq", masquerades},
                             {"ipam", ipam}};
        return attach({bridge}, "foreign" + third);
    }
    void nft(std::string rules) {
        rules = "add table ip services\n" + rules;
        if (!ipv4())
            for (std::size_t at = 0; (at = rules.find(" ip ", at)) != std::string::npos;)
                rules.replace(at, 4, " ip6 ");
        lab_->node().run("nft -f -", rules);
    }
    // A port of the node that leads to the pod.
    Endpoint node_port(const Pod &pod, bool masquerades) {
        const std::string port = std::to_string(++last_node_port_);
        const std::string to = ipv4() ? to_string(addr(pod)) : "[" + to_string(addr(pod)) + "]";
        for (const std::string transport : {"tcp", "udp"}) {
            nft("add rule ip services pre " + transport + " dport " + port + " dnat to " + to + ":" +
                std::to_string(kPort) + "\n");
            if (masquerades)
                nft("add rule ip services post meta l4proto " + transport + " ct original proto-dst " + port +
                    " masquerade\n");
        }
        return {node_addr(), last_node_port_};
    }
    void expect_refused(const net::Namespace &from, const Endpoint &to, const Pod &at, const EchoServer &server) {
        const std::size_t callers = server.callers().size();
        for (const Transport transport : kTransports) {
            const std::uint64_t before = lab_->count(at, REASON_DROP_ISOLATION);
            const Fd socket = open_socket(from, transport, ipv4());
            (void)connect_to(socket, to, std::chrono::milliseconds(0));
            EXPECT_TRUE(wait_until([&] {
                if (transport == Transport::udp)
                    (void)send_datagram(socket, to, "x");
                return lab_->count(at, REASON_DROP_ISOLATION) > before || server.callers().size() > callers;
            }));
            ASSERT_EQ(server.callers().size(), callers) << "reached by " << to_string(transport);
        }
    }
    void expect_reached(const net::Namespace &from, const Endpoint &to) {
        for (const Transport transport : kTransports)
            EXPECT_EQ(ask(from, transport, to), 0) << to_string(transport) << " " << to_string(to);
    }

  private:
    Pod attach(const std::vector<Json> &plugins, const std::string &network = "pods") {
        const auto container = lab_->node().container();
        // `ptp` and `bridge` wait for the detection of duplicate addresses.
        (void)container->run("sysctl -qw net.ipv6.conf.default.accept_dad=0");
        auto chain = std::make_shared<Chain>(lab_->node(), plugins, "1.0.0", network);
        (void)succeeded(chain->add(*container));
        Pod pod = observe(lab_->node(), container);
        pod.chain = std::move(chain);
        return pods_.emplace_back(pod);
    }

    std::vector<Pod> pods_;
    std::uint16_t last_node_port_ = 30080;
};

TEST_P(IsolationMasqueraded, LetsNobodyIn) {
    const Pod foreign = add_foreign_pod(true);
    for (const Json &isolation : isolations())
        for (const char *host : {"allow", "deny"}) {
            Json keys = isolation;
            keys["host"] = host;
            SCOPED_TRACE(keys.dump());
            const Pod pod = add_pod(keys);
            const EchoServer server(pod.ns(), ipv4(), kPort);
            {
                SCOPED_TRACE("a pod of another network");
                expect_refused(foreign.ns(), {addr(pod), kPort}, pod, server);
            }
            SCOPED_TRACE("a host outside");
            expect_refused(lab_->outside(), node_port(pod, true), pod, server);
        }
}

TEST_P(IsolationMasqueraded, LetsMembersInByTheirOwnAddresses) {
    const Pod foreign = add_foreign_pod(false);
    for (const Json &keys : isolations()) {
        SCOPED_TRACE(keys.dump());
        const Pod pod = add_pod(keys), member = add_pod(keys), routed = add_routed_pod(keys);
        const EchoServer server(pod.ns(), ipv4(), kPort);
        const Endpoint translated = node_port(pod, false);
        for (const net::Namespace *from : {&foreign.ns(), &lab_->outside()})
            for (const Endpoint &to : {Endpoint{addr(pod), kPort}, translated}) {
                SCOPED_TRACE((from == &foreign.ns() ? "a pod of another network to " : "a host outside to ") +
                             to_string(to));
                expect_refused(*from, to, pod, server);
            }
        expect_reached(member.ns(), {addr(pod), kPort});
        expect_reached(routed.ns(), {addr(pod), kPort});
        expect_reached(routed.ns(), translated);
    }
}

TEST_P(IsolationMasqueraded, LetsTheOutsideAndRepliesIn) {
    nft("add rule ip services post ip saddr " + pod_range() + " oifname \"up0\" tcp dport " + std::to_string(kPort) +
        " masquerade\n");
    const std::vector<Pod> pods = {add_foreign_pod(true), add_foreign_pod(false)};
    std::vector<std::unique_ptr<EchoServer>> servers;
    for (const net::Namespace *where : {&pods[0].ns(), &pods[1].ns(), &lab_->outside(), &lab_->node().ns()})
        servers.push_back(std::make_unique<EchoServer>(*where, ipv4(), kPort));
    for (Json keys : isolations()) {
        keys["host"] = "deny";
        SCOPED_TRACE(keys.dump());
        const Pod pod = add_pod(keys);
        for (const ip_addr &to : {addr(pods[0]), addr(pods[1]), outside_addr()}) {
            expect_reached(pod.ns(), {to, kPort});
            EXPECT_EQ(transfer(connected(pod.ns(), Transport::tcp, {to, kPort}), 1 << 20), 0) << to_string(to);
        }
        EXPECT_EQ(ask(pod.ns(), Transport::tcp, {node_addr(), kPort}), 0);
        keys["outside"] = "allow";
        const Pod open = add_pod(keys);
        const EchoServer server(open.ns(), ipv4(), kPort);
        for (const bool masquerades : {true, false})
            expect_reached(lab_->outside(), node_port(open, masquerades));
    }
}

std::string name_of(const testing::TestParamInfo<std::tuple<LabParameter, Main>> &info) {
    static const std::map<Main, std::string> kNames = {
        {Main::podlane, "Podlane"}, {Main::ptp, "Ptp"}, {Main::bridge, "Bridge"}};
    return kNames.at(std::get<1>(info.param)) + lab_parameter_text(std::get<0>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Tcx, IsolationMasqueraded,
                         testing::Combine(testing::Values(LabParameter{"tcx", true}, LabParameter{"tcx", false}),
                                          testing::Values(Main::podlane, Main::ptp, Main::bridge)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Clsact, IsolationMasqueraded,
                         testing::Combine(testing::Values(LabParameter{"clsact", true}, LabParameter{"clsact", false}),
                                          testing::Values(Main::bridge)),
                         name_of);

} // namespace
} // namespace podlane::test
