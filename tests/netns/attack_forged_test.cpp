// SPDX-License-Identifier: MIT
// A hostile pod with CAP_NET_RAW, and without any capability, beside two victim pods: no frame in another's name
// reaches them, and none changes a neighbour table or a route, theirs or the node's. Behind a bridge the same frames of
// a pod whose sources are not checked do arrive.
#include "tests/netns/forged.hpp"

namespace podlane::test {
namespace {

using namespace forged;

// Who is known where, by interface and address: MACs. What the attacker says of itself may be known, and what the host
// on the uplink says, by which no pod's frame arrives.
std::map<std::string, std::string> neighbours(const net::Namespace &of, const Pod &hostile) {
    std::map<std::string, std::string> known;
    for (const Json &one : Json::parse(must_run(of, words("ip -j neigh show nud all")))) {
        if (!one.contains("lladdr") || one.at("state").at(0) == "NOARP" || one.at("dev") == "up0")
            continue;
        const std::string addr = one.at("dst");
        const std::string mac = one.at("lladdr");
        const bool is_own = addr == hostile.text4() || addr == hostile.text6() || ip(addr) == hostile.link_local;
        if (!is_own || mac != to_string(hostile.mac))
            known[one.at("dev").get<std::string>() + " " + addr] = mac;
    }
    return known;
}

std::string routes(const net::Namespace &of) {
    std::string all;
    for (const char *command : {"ip route show table all", "ip -6 route show table all", "ip -6 route show cache"})
        all += must_run(of, words(command));
    return all;
}

class AttackForged : public LabTest {
  protected:
    // Tables that the attack must leave as they are.
    struct State {
        std::vector<std::map<std::string, std::string>> known;
        std::vector<std::string> ways;
        bool operator==(const State &) const = default;
    };
    [[nodiscard]] State state(const Roles &of) {
        State now;
        for (const net::Namespace *where : {&of.client.ns(), &of.server.ns(), &lab_->node().ns()}) {
            now.known.push_back(neighbours(*where, of.hostile));
            now.ways.push_back(routes(*where));
        }
        return now;
    }
    [[nodiscard]] std::uint64_t dropped(const Pod &of) const {
        std::uint64_t all = 0;
        for (std::size_t why = 0; why < kReasons.size(); ++why)
            if (kReasons.at(why).kind == REASON_KIND_DROP)
                all += lab_->count(of, static_cast<reason>(why));
        return all;
    }
    static bool is_forged(const Bytes &frame) { return contains(frame, pattern(kMarked)); }
    // The kernel adds routes of link-local addresses once it has found no other with them.
    static bool is_settled(const net::Namespace &where) {
        return run(where, words("ip -6 addr show tentative")).out.empty();
    }
    // They know each other, and the node knows them.
    void warm_up(const Roles &of) {
        ASSERT_TRUE(ping(of.client.ns(), of.target));
        ASSERT_TRUE(ping(of.server.ns(), of.victim));
        for (const Pod *one : {&of.client, &of.server, &of.hostile}) {
            ASSERT_TRUE(ping(one->ns(), of.node));
            ASSERT_TRUE(ping(lab_->node().ns(), addr(*one)));
            ASSERT_TRUE(wait_until([&] { return is_settled(one->ns()); }));
        }
        ASSERT_TRUE(wait_until([&] { return is_settled(lab_->node().ns()); }));
    }
    void expect_harmless(const Roles &of);
    void expect_harm(const Roles &of);
    [[nodiscard]] Roles on_bridge(const Json &keys_of_hostile);
};

void AttackForged::expect_harmless(const Roles &of) {
    const EchoServer server(of.server.ns(), ipv4(), kPort);
    warm_up(of);
    const std::vector<Forged> all = forge(of);
    const Wire target = of.server.wire();
    const Wire victim = of.client.wire();
    const State before = state(of);
    const std::uint64_t base = dropped(of.hostile);
    send_as(Privilege::net_raw, of.hostile.ns(), "eth0", all);
    const auto must_drop = static_cast<std::uint64_t>(std::ranges::count_if(all, &Forged::is_dropped));
    EXPECT_TRUE(wait_until([&] { return dropped(of.hostile) - base >= must_drop; }))
        << dropped(of.hostile) - base << " of " << must_drop;
    EXPECT_THROW(send_as(Privilege::none, of.hostile.ns(), "eth0", all), std::runtime_error) << "without capabilities";
    for (const Wire *wire : {&target, &victim})
        for (const Bytes &one : wire->arrived())
            EXPECT_FALSE(is_forged(one)) << hex(one);
    const State after = state(of);
    EXPECT_EQ(after.known, before.known);
    EXPECT_EQ(after.ways, before.ways);
    EXPECT_TRUE(server.callers().empty());
    EXPECT_EQ(ask(of.client.ns(), Transport::udp, {of.target, kPort}), 0);
    EXPECT_TRUE(ping(lab_->node().ns(), of.victim));
}

// Each frame arrives, and together they change what the victims know.
void AttackForged::expect_harm(const Roles &of) {
    warm_up(of);
    const Wire target = of.server.wire();
    const State before = state(of);
    for (const Forged &one : forge(of)) {
        if (!one.is_dropped || one.is_always_dropped)
            continue;
        send_as(Privilege::net_raw, of.hostile.ns(), "eth0", {one});
        const auto is_it = [&](const Bytes &frame) { return is_forged(frame) || frame == one.frame; };
        EXPECT_TRUE(target.until(is_it, patience())) << one.what << "\n" << hex(one.frame);
    }
    EXPECT_NE(state(of).known, before.known);
}

TEST_P(AttackForged, NothingReachesAVictim) {
    Roles of{.hostile = add_pod(), .client = add_pod(), .server = add_pod()};
    of.own = addr(of.hostile);
    of.victim = addr(of.client);
    of.target = addr(of.server);
    of.gateway = ip(ipv4() ? "169.254.1.1" : "fe80::ecee:eeff:feee:eeee");
    of.node = node_addr();
    of.via = of.hostile.gateway_mac;
    expect_harmless(of);
}

Roles AttackForged::on_bridge(const Json &keys_of_hostile) {
    const auto add = [&](const Json &keys) {
        Json bridge = {{"type", "bridge"}, {"bridge", "cni0"}, {"isDefaultGateway", true}};
        bridge["ipam"] = lab_->node().config().at("ipam");
        Json after = with_attach(keys);
        after["type"] = "podlane";
        after["bpffs"] = lab_->node().bpffs();
        return lab_->add_pod(std::vector<Json>{bridge, after});
    };
    Roles of{.hostile = add(keys_of_hostile), .client = add(Json::object()), .server = add(Json::object())};
    of.own = addr(of.hostile);
    of.victim = addr(of.client);
    of.target = addr(of.server);
    of.gateway = ip(ipv4() ? "198.18.9.1" : "2001:db8:9::1");
    of.node = node_addr();
    of.via = of.server.mac;
    // Else fragments wait there for the others.
    (void)run(lab_->node().ns(),
              words("sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0"));
    return of;
}

TEST_P(AttackForged, NothingReachesAVictimOnTheSameBridge) { expect_harmless(on_bridge(Json::object())); }
TEST_P(AttackForged, EachFrameReachesAVictimIfNobodyChecks) { expect_harm(on_bridge({{"antiSpoof", false}})); }

INSTANTIATE_TEST_SUITE_P(All, AttackForged, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
