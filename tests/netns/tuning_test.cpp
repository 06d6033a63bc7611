// SPDX-License-Identifier: MIT
// `tuning` behind Podlane gives the container's interface another MAC or MTU: no pod comes up dead by it.
#include "tests/harness/outcome.hpp"
#include "tests/harness/talk.hpp"
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

constexpr const char *kMac = "02:00:5e:00:53:17";
constexpr std::uint16_t kPort = 7;
constexpr Mac kEveryone{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

struct Mode {
    const char *name;
    std::vector<Json> (*plugins)(Node &node, const Json &keys);
    Json keys;
};

std::vector<Json> as_main(Node &node, const Json &keys) { return {node.config(keys)}; }
std::vector<Json> after_ipam(Node &node, const Json &wanted) {
    Json keys = wanted;
    keys["ipam"] = nullptr;
    return {{{"type", "host-local"}, {"ipam", node.ipam()}}, node.config(keys)};
}
std::vector<Json> after_ptp(Node &node, const Json &wanted) {
    Json keys = wanted;
    keys["ipam"] = nullptr;
    Json ipam = node.ipam();
    ipam["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
    return {{{"type", "ptp"}, {"ipam", ipam}}, node.config(keys)};
}
std::vector<Json> through_the_gateway(Node &node, const Json &keys) {
    Json own = node.config(keys);
    own["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}, {"gw", "198.18.9.1"}}, {{"dst", "::/0"}, {"gw", "2001:db8:9::1"}}};
    return {own};
}

class Tuning : public LabTestOf<std::tuple<Mode, LabParameter>> {
  protected:
    [[nodiscard]] const LabParameter &lab_parameter() const override { return std::get<LabParameter>(GetParam()); }
    [[nodiscard]] static const Mode &mode() { return std::get<Mode>(GetParam()); }
    Pod add_tuned(const Json &tuned) {
        std::vector<Json> plugins = mode().plugins(lab_->node(), with_attach(mode().keys));
        Json tuning = tuned;
        tuning["type"] = "tuning";
        plugins.push_back(tuning);
        Pod pod = lab_->add_pod(plugins);
        const Json link = Json::parse(pod.container->run("ip -j link show eth0")).at(0);
        EXPECT_EQ(link.at("address"), kMac);
        return pod;
    }
    void expect_talk(const Pod &tuned, const Pod &other, const std::string &when) {
        // The tuned pod has sent nothing of its own accord.
        const EchoServer server(tuned.ns(), ipv4(), kPort);
        const EchoServer others(other.ns(), ipv4(), kPort);
        for (const Transport transport : {Transport::tcp, Transport::udp}) {
            EXPECT_EQ(ask(lab_->node().ns(), transport, {addr(tuned), kPort}), 0) << when << ": the node asks";
            EXPECT_EQ(ask(other.ns(), transport, {addr(tuned), kPort}), 0) << when << ": a pod asks";
            EXPECT_EQ(ask(tuned.ns(), transport, {addr(other), kPort}), 0) << when << ": it asks a pod";
        }
        // Packets that the kernel sends without naming an address, before it has announced the MAC.
        EXPECT_LE(lab_->count(tuned, REASON_DROP_SOURCE_MAC), 3U) << when;
    }
    [[nodiscard]] std::string findings(const Pod &pod) {
        return lab_->node().podlanectl("doctor " + pod.container->id()).out;
    }
};

TEST_P(Tuning, ANewMacIsFollowed) {
    const Pod other = add_pod();
    const Pod tuned = add_tuned({{"mac", kMac}});
    expect_talk(tuned, other, "after ADD");
    EXPECT_THAT(findings(tuned), testing::Not(testing::HasSubstr(tuned.host_ifname)));
    EXPECT_THAT(tuned.chain->check(*tuned.container), succeeds());
    expect_talk(tuned, other, "after CHECK");
    EXPECT_THAT(tuned.chain->check(*tuned.container), succeeds());
    EXPECT_THAT(findings(tuned), testing::Not(testing::HasSubstr(tuned.host_ifname)));
    EXPECT_THAT(lab_->node().podlanectl("endpoint show " + tuned.container->id()).out, testing::HasSubstr(kMac));
    EXPECT_THAT(lab_->node().podlanectl("repair").out, testing::Not(testing::HasSubstr("no:")));
    expect_talk(tuned, other, "after a repair");
}

TEST_P(Tuning, TheNextAddWritesTheMacDown) {
    const Pod tuned = add_tuned({{"mac", kMac}});
    const Pod other = add_pod();
    EXPECT_THAT(lab_->node().podlanectl("endpoint show " + tuned.container->id()).out, testing::HasSubstr(kMac));
    if (mode().plugins != &after_ptp) { // there the kernel finds its neighbours itself
        EXPECT_THAT(lab_->node().run("ip neigh show dev " + tuned.host_ifname),
                    testing::HasSubstr(to_string(addr(tuned)) + " lladdr " + kMac));
    }
    expect_talk(tuned, other, "after another pod's ADD");
    EXPECT_THAT(tuned.chain->check(*tuned.container), succeeds());
}

const auto kModes = testing::Values(
    Mode{"Main", &as_main, Json::object()}, Mode{"MainUnchecked", &as_main, {{"antiSpoof", false}}},
    Mode{"MainSlow", &as_main, {{"fastPath", "off"}}}, Mode{"ByGateway", &through_the_gateway, Json::object()},
    Mode{"AfterIpam", &after_ipam, Json::object()}, Mode{"AfterPtp", &after_ptp, Json::object()});

INSTANTIATE_TEST_SUITE_P(
    All, Tuning, testing::Combine(kModes, testing::Values(LabParameter{"tcx", true}, LabParameter{"clsact", false})),
    [](const auto &info) {
        return std::string(std::get<Mode>(info.param).name) + lab_parameter_text(std::get<LabParameter>(info.param));
    });

class TunedPod : public LabTest {};

TEST_P(TunedPod, MtuIsFollowedByCheck) {
    const Pod pod =
        lab_->add_pod(std::vector<Json>{lab_->node().config(with_attach()), {{"type", "tuning"}, {"mtu", 1300}}});
    EXPECT_THAT(pod.chain->check(*pod.container), succeeds());
    EXPECT_THAT(lab_->node().run("ip link show " + pod.host_ifname), testing::HasSubstr("mtu 1300"));
    EXPECT_THAT(pod.chain->check(*pod.container), succeeds());
}

// A pod that may do everything with its interface and sends what it likes takes nothing of another.
TEST_P(TunedPod, ThatAnnouncesAnothersMacHarmsOnlyItself) {
    const Pod attacker = add_pod();
    const Pod victim = add_pod();
    const Pod other = add_pod();
    const Wire wire = attacker.wire();
    const Wire at_attacker = attacker.wire();
    const auto announce = [&](const ip_addr &who) {
        if (ipv4())
            wire.send(frame(kEveryone, victim.mac, 0x0806, to_bytes(Arp{1, victim.mac, who, {}, who})));
        else
            wire.send(frame(attacker.gateway_mac, victim.mac,
                            neighbour({who, ip("ff02::1")}, 136, 0x20000000, who, 2, victim.mac)));
    };
    announce(addr(victim));
    announce(addr(attacker));
    const EchoServer server(victim.ns(), ipv4(), kPort);
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(ask(other.ns(), Transport::udp, {addr(victim), kPort}, "hello" + std::string(64, 'v')), 0);
    EXPECT_EQ(ask(lab_->node().ns(), Transport::tcp, {addr(victim), kPort}), 0);
    EXPECT_FALSE(at_attacker.until([](const Bytes &one) { return contains(one, Bytes(64, 'v')); }, quiet()));
    EXPECT_THAT(lab_->node().run("ip neigh show dev " + victim.host_ifname),
                testing::HasSubstr(to_string(addr(victim)) + " lladdr " + to_string(victim.mac)));
    // From another's address it still sends nothing, by whatever MAC.
    wire.send(frame(attacker.gateway_mac, victim.mac, udp({addr(victim), addr(other)})));
    EXPECT_TRUE(wait_until([&] { return lab_->count(attacker, REASON_DROP_SOURCE_ADDRESS) >= 1; }));
}

// On a bridge the MAC decides who gets a frame: it is the one of the ADD, and CHECK and doctor say what to do.
TEST_P(TunedPod, OnABridgeKeepsTheMacOfTheAdd) {
    const Json bridge = {{"type", "bridge"}, {"bridge", "br-t"}, {"isGateway", true}, {"ipam", lab_->node().ipam()}};
    const Json podlane = lab_->node().config(with_attach({{"ipam", nullptr}}));
    const Json tuning = {{"type", "tuning"}, {"mac", kMac}};
    const Pod behind = lab_->add_pod(std::vector<Json>{bridge, podlane, tuning});
    const Pod before =
        lab_->add_pod(std::vector<Json>{bridge, {{"type", "tuning"}, {"mac", "02:00:5e:00:53:18"}}, podlane});
    // Before that it would ask by another interface's address, to which the pod has no route.
    EXPECT_TRUE(wait_until([&] { return lab_->node().run("ip -6 addr show dev br-t tentative").empty(); }));
    EXPECT_TRUE(ping(lab_->node().ns(), addr(before)));
    EXPECT_THAT(before.chain->check(*before.container), succeeds());
    EXPECT_FALSE(ping(lab_->node().ns(), addr(behind)));
    const Reply checked = behind.chain->check(*behind.container);
    EXPECT_NE(checked.rc, 0);
    EXPECT_THAT(checked.out, testing::HasSubstr("must be in front of Podlane in the list"));
    EXPECT_THAT(lab_->node().podlanectl("doctor " + behind.container->id()).out,
                testing::HasSubstr("put the plugin that sets it (tuning) in front of podlane in the list"));
}

INSTANTIATE_TEST_SUITE_P(All, TunedPod, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
