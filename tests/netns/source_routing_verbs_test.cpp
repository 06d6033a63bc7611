// SPDX-License-Identifier: MIT
// The life of a container's interfaces: ADD and DEL in any order, CHECK, GC, chained plugins, and what people are
// shown.
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

class SourceRoutingVerbs : public testing::Test {
  protected:
    [[nodiscard]] Node &node() { return lab_.node(); }
    void TearDown() override {
        if (HasFailure())
            node().show({"counter list", "path list", "map dump source_route"});
    }
    std::shared_ptr<Container> add_pod(const Json &keys_of_net1 = Json::object()) {
        auto pod = node().container();
        lab_.add(pod, "eth0", 0);
        lab_.add(pod, "net1", 1, keys_of_net1);
        return pod;
    }
    [[nodiscard]] std::size_t entries() {
        return require(require(open_source_routes(node().bpffs(), Access::read_only)).entries()).size() +
               require(require(open_source_slots(node().bpffs(), Access::read_only)).entries()).size();
    }
    // CHECK of both interfaces fails while an entry is missing, or names another interface.
    template <typename Table>
    void expect_every_entry_checked(const std::shared_ptr<Container> &pod, const Table &table, std::size_t expected) {
        const auto all = require(table.entries());
        ASSERT_EQ(all.size(), expected);
        for (const auto &[key, route] : all) {
            (void)require(table.remove(key));
            EXPECT_NE(lab_.check(pod, "eth0").rc, 0);
            EXPECT_NE(lab_.check(pod, "net1").rc, 0);
            source_route wrong = route;
            ++wrong.ifindex;
            ASSERT_TRUE(table.update(key, wrong));
            EXPECT_NE(lab_.check(pod, "eth0").rc, 0);
            ASSERT_TRUE(table.update(key, route));
        }
    }
    [[nodiscard]] bool answers(const Container &pod, const std::string &ifname, int provider, bool ipv4) {
        const EchoServer server(pod.ns(), ipv4, kPort);
        return ask(lab_.client(provider).ns(), Transport::tcp, {SourceLab::addr(pod, ifname, ipv4), kPort}) == 0;
    }
    void expect_answers(const Container &pod, const std::string &ifname, int provider) {
        for (const bool ipv4 : {true, false})
            EXPECT_TRUE(answers(pod, ifname, provider, ipv4)) << ifname << (ipv4 ? " v4" : " v6");
    }
    Json ctl(const std::string &command) { return node().podlanectl_json(command); }

    SourceLab lab_;
};

TEST_F(SourceRoutingVerbs, EitherInterfaceGoesAloneAndTheOtherGoesOn) {
    const auto pod = add_pod();
    EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
    EXPECT_EQ(entries(), 0U);
    expect_answers(*pod, "eth0", 0);
    EXPECT_EQ(lab_.check(pod, "eth0").rc, 0) << lab_.check(pod, "eth0");
    lab_.add(pod, "net1", 1);
    expect_answers(*pod, "net1", 1);
    EXPECT_EQ(lab_.del(pod, "eth0").rc, 0);
    EXPECT_EQ(entries(), 0U);
    EXPECT_EQ(lab_.check(pod, "net1").rc, 0) << lab_.check(pod, "net1");
}

TEST_F(SourceRoutingVerbs, OfThreeTheOthersStillFindEachOther) {
    const auto pod = add_pod();
    lab_.add(pod, "net2", 2);
    for (const char *ifname : {"eth0", "net1", "net2"})
        EXPECT_EQ(lab_.check(pod, ifname).rc, 0) << lab_.check(pod, ifname);
    EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
    for (const char *ifname : {"eth0", "net2"})
        EXPECT_EQ(lab_.check(pod, ifname).rc, 0) << lab_.check(pod, ifname);
    expect_answers(*pod, "net2", 2);
    EXPECT_EQ(entries(), 8U) << "one address of each family, by itself and in the list, at two host-side veths";
}

TEST_F(SourceRoutingVerbs, DelWithoutANamespaceIsClean) {
    const auto pod = add_pod();
    pod->remove_namespace();
    EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
    EXPECT_EQ(lab_.del(pod, "eth0").rc, 0);
    EXPECT_EQ(entries(), 0U);
}

TEST_F(SourceRoutingVerbs, CheckNoticesWhatIsMissingOrWrong) {
    const auto pod = add_pod();
    // One address of each family of each interface, by itself and in the list.
    expect_every_entry_checked(pod, require(open_source_routes(node().bpffs(), Access::read_write)), 4);
    expect_every_entry_checked(pod, require(open_source_slots(node().bpffs(), Access::read_write)), 4);
    EXPECT_EQ(lab_.check(pod, "eth0").rc, 0) << lab_.check(pod, "eth0");
}

// The DEL of the other interface removes its entries beside the ADD, and its record last.
TEST_F(SourceRoutingVerbs, AnInterfaceThatGoesMeanwhileIsNoObstacle) {
    const auto pod = node().container();
    lab_.add(pod, "eth0", 0);
    const std::uint32_t going = SourceLab::host_veth(*pod, "eth0");
    ASSERT_TRUE(require(require(open_interfaces(node().bpffs(), Access::read_write)).remove(going)));
    lab_.add(pod, "net1", 1);
    EXPECT_EQ(lab_.del(pod, "eth0").rc, 0);
    EXPECT_EQ(lab_.check(pod, "net1").rc, 0) << lab_.check(pod, "net1");
    EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
    EXPECT_EQ(entries(), 0U);
}

// An interface that comes back with another address and number leaves nothing of the old ones.
TEST_F(SourceRoutingVerbs, AddressesThatChangeAreNoLeak) {
    const auto pod = add_pod();
    const ip_addr before = SourceLab::addr(*pod, "net1", true);
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
        lab_.add(pod, "net1", 1);
        EXPECT_EQ(entries(), 8U);
    }
    EXPECT_FALSE(SourceLab::addr(*pod, "net1", true) == before);
    expect_answers(*pod, "net1", 1);
}

// DEL goes by what ADD put, whatever the interface has by now.
TEST_F(SourceRoutingVerbs, ARenumberedInterfaceLeaksNothing) {
    const auto pod = add_pod();
    (void)pod->run("ip addr flush dev net1 scope global");
    (void)pod->run("ip addr add 198.18.1.99/32 dev net1");
    EXPECT_NE(lab_.check(pod, "net1").rc, 0);
    EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
    EXPECT_EQ(entries(), 0U);
}

TEST_F(SourceRoutingVerbs, LinkLocalRoutesAndRulesOfThePodStayAsTheyAre) {
    const auto pod = node().container();
    lab_.add(pod, "eth0", 0);
    const std::string rules = pod->run("ip rule") + pod->run("ip -6 rule");
    const std::string links = pod->run("ip -6 route show fe80::/64");
    lab_.add(pod, "net1", 1);
    EXPECT_EQ(pod->run("ip rule") + pod->run("ip -6 rule"), rules);
    EXPECT_EQ(pod->run("ip -6 route show fe80::/64 dev eth0").empty(), false);
    EXPECT_EQ(pod->run("ip -6 route show fe80::/64 dev net1").empty(), false);
    EXPECT_NE(links, "");
}

TEST_F(SourceRoutingVerbs, PodsOfTheNodeSeeThePeersVerdict) {
    const auto pod = add_pod();
    const auto peer = node().container();
    lab_.add(peer, "eth0", 1); // in the network of net1
    const EchoServer server(pod->ns(), true, kPort);
    const EchoServer server6(pod->ns(), false, kPort);
    for (const bool ipv4 : {true, false})
        for (const Transport transport : {Transport::tcp, Transport::udp})
            EXPECT_EQ(ask(peer->ns(), transport, {SourceLab::addr(*pod, "net1", ipv4), kPort}), 0)
                << to_string(transport) << ipv4;
    EXPECT_GT(lab_.count(SourceLab::host_veth(*pod, "net1"), REASON_SENT_DIRECT), 6U);
    const auto foreign = node().container();
    lab_.add(foreign, "eth0", 2);
    for (const bool ipv4 : {true, false})
        EXPECT_EQ(ask(foreign->ns(), Transport::tcp, {SourceLab::addr(*pod, "net1", ipv4), kPort}), 0) << ipv4;
}

TEST_F(SourceRoutingVerbs, PathShowNamesTheEgressRoute) {
    const auto pod = add_pod();
    const std::string second = to_string(SourceLab::addr(*pod, "net1", true));
    const Json list = ctl("source list " + pod->id());
    ASSERT_EQ(list.size(), 4U);
    bool found = false;
    for (const Json &one : list)
        if (one.at("address") == second) {
            found = true;
            EXPECT_THAT(one, has_members({{"interface", "net1"}, {"network", "net1"}, {"also_from", Json({"eth0"})}}));
        }
    EXPECT_TRUE(found) << list;
    const Json ways = ctl("path show " + pod->id() + " --source " + second + " --destination 203.0.113.9");
    ASSERT_EQ(ways.size(), 2U);
    for (const Json &one : ways) {
        EXPECT_THAT(one, has_members({{"as_from", "net1"}, {"way", "route"}}));
    }
    const Json dropped = ctl("path show " + pod->id() + " --source 192.0.2.99 --destination 203.0.113.9");
    EXPECT_EQ(dropped.at(0).at("way"), "dropped");
}

// Of two pods one is gone: its entries go, at its own host-side veths; everything else stays as it is. net1 of the
// other goes on alone in the end, with a default route of its own.
TEST_F(SourceRoutingVerbs, GcRemovesTheEntriesOfWhatItRemovesAndNothingElse) {
    const auto stays = add_pod({{"defaultRoute", true}});
    const auto routes = [&] {
        std::map<std::string, std::string> all;
        const auto map = require(open_source_routes(node().bpffs(), Access::read_only));
        for (const auto &[key, route] : require(map.entries()))
            all[hex({reinterpret_cast<const std::uint8_t *>(&key), reinterpret_cast<const std::uint8_t *>(&key + 1)})] =
                hex({reinterpret_cast<const std::uint8_t *>(&route),
                     reinterpret_cast<const std::uint8_t *>(&route + 1)});
        return all;
    };
    const auto before = routes();
    const auto goes = add_pod();
    ASSERT_EQ(routes().size(), 2 * before.size());
    const auto gc = [&](int provider, const std::vector<std::pair<std::string, std::string>> &valid) {
        Json config = lab_.network(provider);
        config.update({{"cniVersion", "1.1.0"}, {"name", SourceLab::network_name(provider)}});
        config["cni.dev/valid-attachments"] = Json::array();
        for (const auto &[id, ifname] : valid)
            config["cni.dev/valid-attachments"].push_back({{"containerID", id}, {"ifname", ifname}});
        return node().cni("podlane", "GC", config);
    };
    // net1 of the second is gone: its eth0 goes on alone.
    EXPECT_EQ(gc(1, {{stays->id(), "net1"}}).rc, 0) << gc(1, {{stays->id(), "net1"}});
    EXPECT_EQ(routes(), before);
    expect_answers(*goes, "eth0", 0);
    EXPECT_EQ(lab_.check(goes, "eth0").rc, 0) << lab_.check(goes, "eth0");
    // Both of the second are gone, the first is as it was.
    EXPECT_EQ(gc(0, {{stays->id(), "eth0"}}).rc, 0);
    EXPECT_EQ(routes(), before);
    for (const char *ifname : {"eth0", "net1"})
        EXPECT_EQ(lab_.check(stays, ifname).rc, 0) << lab_.check(stays, ifname);
    expect_answers(*stays, "net1", 1);
    // One of the first is left: nothing is shared any more.
    EXPECT_EQ(gc(0, {}).rc, 0);
    EXPECT_EQ(entries(), 0U);
    expect_answers(*stays, "net1", 1);
}

// A container whose eth0 has no host-side veth, made by another plugin alone, and net1 by Podlane.
class BesideMacvlan : public SourceRoutingVerbs {
  protected:
    BesideMacvlan() {
        Json main = {{"type", "macvlan"}, {"master", "up0"}, {"ipam", lab_.network(0).at("ipam")}};
        main["ipam"]["ranges"] = {
            {{{"subnet", "192.0.2.0/26"}, {"rangeStart", "192.0.2.20"}, {"gateway", "192.0.2.1"}}},
            {{{"subnet", "2001:db8:f0::/64"}, {"rangeStart", "2001:db8:f0::20"}, {"gateway", "2001:db8:f0::1"}}}};
        main["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
        lab_.add(pod_, {"eth0", "net0", {main}});
        before_ = rules();
        lab_.add(pod_, "net1", 1);
    }
    [[nodiscard]] std::string rules() const { return pod_->run("ip rule") + pod_->run("ip -6 rule"); }
    void expect_both_answer() {
        expect_answers(*pod_, "eth0", 0);
        expect_answers(*pod_, "net1", 1);
        EXPECT_EQ(lab_.check(pod_, "net1").rc, 0) << lab_.check(pod_, "net1");
    }

    std::shared_ptr<Container> pod_ = node().container();
    std::string before_;
};

// The container's own rules do it, and go with DEL.
TEST_F(BesideMacvlan, RulesInTheContainerRouteAnswers) {
    EXPECT_EQ(lab_.check(pod_, "net1").rc, 0) << lab_.check(pod_, "net1");
    expect_answers(*pod_, "net1", 1);
    const std::string second = to_string(SourceLab::addr(*pod_, "net1", true));
    EXPECT_NE(pod_->run("ip rule").find("20556:\tfrom " + second), std::string::npos) << pod_->run("ip rule");
    (void)pod_->run("ip rule del priority 20556");
    EXPECT_NE(lab_.check(pod_, "net1").rc, 0);
    EXPECT_FALSE(answers(*pod_, "net1", 1, true)) << "the test's own foundation";
    EXPECT_EQ(lab_.del(pod_, "net1").rc, 0);
    EXPECT_EQ(rules(), before_);
}

// multus removes the default routes of the other interfaces for `default-route`, and adds one by the lease's gateway.
TEST_F(BesideMacvlan, AnswersLeaveByTheirNetworkWithTheDefaultRouteMoved) {
    for (const bool ipv4 : {true, false}) {
        const std::string family = ipv4 ? "ip " : "ip -6 ";
        (void)pod_->run(family + "route del default");
        (void)pod_->run(family + "route add default via " + (ipv4 ? "198.18.1.1" : "2001:db8:11::1") + " dev net1");
    }
    expect_both_answer();
    EXPECT_EQ(lab_.del(pod_, "net1").rc, 0);
    EXPECT_EQ(rules(), before_);
}

// sbr behind Podlane takes a table of its own, and neither takes the other's away.
TEST_F(BesideMacvlan, SbrBehindKeepsItsOwnTable) {
    EXPECT_EQ(lab_.del(pod_, "net1").rc, 0);
    lab_.add(pod_, {"net1", "net1", {lab_.network(1), {{"type", "sbr"}}}});
    expect_both_answer();
    lab_.add(pod_, {"net2", "net2", {lab_.network(0), {{"type", "sbr"}}}});
    expect_answers(*pod_, "net1", 1);
    expect_answers(*pod_, "net2", 0);
    EXPECT_EQ(lab_.check(pod_, "net2").rc, 0) << lab_.check(pod_, "net2");
    EXPECT_EQ(lab_.del(pod_, "net2").rc, 0);
    EXPECT_EQ(lab_.del(pod_, "net1").rc, 0);
    EXPECT_EQ(rules(), before_);
}

// eth0 by another plugin with Podlane behind it, net1 by Podlane: both ways round, through that plugin's host-side
// veth.
class SourceChained : public SourceRoutingVerbs, public testing::WithParamInterface<std::string> {
  protected:
    [[nodiscard]] std::vector<Json> chain(const Json &keys = Json::object()) {
        Json main = {{"type", GetParam()}};
        main["ipam"] = lab_.network(0).at("ipam");
        main["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
        if (GetParam() == "bridge")
            main.update({{"bridge", "cni0"}, {"isGateway", true}});
        Json after = lab_.network(0);
        after.erase("ipam");
        after.update(keys);
        return {main, after};
    }
};

TEST_P(SourceChained, AnswersLeaveByTheNetworkThatWasAddressed) {
    const auto pod = node().container();
    lab_.add(pod, {"eth0", "net0", chain()});
    lab_.add(pod, "net1", 1);
    const EchoServer server(pod->ns(), true, kPort);
    const EchoServer server6(pod->ns(), false, kPort);
    for (const bool ipv4 : {true, false})
        for (const int number : {0, 1}) {
            const ip_addr addr = SourceLab::addr(*pod, number == 0 ? "eth0" : "net1", ipv4);
            std::vector<Wire> wires;
            for (int provider = 0; provider < SourceLab::kProviders; ++provider)
                wires.emplace_back(lab_.provider(provider).ns(), "eth0");
            for (const Transport transport : {Transport::tcp, Transport::udp})
                for (int flow = 0; flow < 3; ++flow)
                    EXPECT_EQ(ask(lab_.client(number).ns(), transport, {addr, kPort}), 0)
                        << to_string(transport) << to_string(addr);
            EXPECT_TRUE(ping(lab_.client(number).ns(), to_string(addr), 2)) << to_string(addr);
            for (int provider = 0; provider < SourceLab::kProviders; ++provider)
                EXPECT_EQ(frames_from(wires.at(static_cast<std::size_t>(provider)), addr) > 0, provider == number)
                    << to_string(addr) << " at provider " << provider;
        }
    for (const char *ifname : {"eth0", "net1"})
        EXPECT_EQ(lab_.check(pod, ifname).rc, 0) << lab_.check(pod, ifname);
}

// The test's own foundation.
TEST_P(SourceChained, WithoutSourceRoutingAnswersAreLost) {
    const auto pod = node().container();
    lab_.add(pod, {"eth0", "net0", chain({{"sourceRouting", false}})});
    lab_.add(pod, "net1", 1, {{"sourceRouting", false}});
    for (const bool ipv4 : {true, false}) {
        const EchoServer server(pod->ns(), ipv4, kPort);
        for (const char *how : kHows)
            EXPECT_FALSE(is_answered(lab_.client(1).ns(), how, SourceLab::addr(*pod, "net1", ipv4), kPort)) << how;
    }
}
INSTANTIATE_TEST_SUITE_P(Plugins, SourceChained, testing::Values("ptp", "bridge"),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace podlane::test
