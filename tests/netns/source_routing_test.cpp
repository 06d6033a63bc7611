// SPDX-License-Identifier: MIT
// A pod with several interfaces answers by the network that was addressed: captures on every uplink, strict rp_filter.
// The configurations of docs/SOURCE-ROUTING.md, read out of it and run.
#include "tests/netns/sources.hpp"
#include "tests/harness/environment.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

struct Case {
    bool ipv4 = true;
    bool shared = false; // both networks are parts of the same subnet
    int interfaces = 2;
};

std::string case_name(const testing::TestParamInfo<Case> &info) {
    return std::string(info.param.ipv4 ? "V4" : "V6") + (info.param.shared ? "SameSubnet" : "OwnSubnets") +
           std::to_string(info.param.interfaces);
}
void PrintTo(const Case &of, std::ostream *out) { *out << case_name({of, 0}); }

// The pod's interface N is in the network behind provider N; its default route is by the first.
class Source : public testing::TestWithParam<Case> {
  protected:
    void SetUp() override { lab_.emplace(GetParam().shared); }
    void TearDown() override {
        if (HasFailure())
            lab_->node().show({"counter list --reasons", "path list", "map dump source_route"});
    }
    void add_pod(const Json &keys = Json::object()) {
        pod_ = lab_->node().container();
        for (int number = 0; number < GetParam().interfaces; ++number)
            lab_->add(pod_, ifname(number), number, keys);
    }
    static std::string ifname(int number) { return number == 0 ? "eth0" : "net" + std::to_string(number); }
    [[nodiscard]] bool ipv4() const { return GetParam().ipv4; }
    [[nodiscard]] ip_addr addr(int number) const { return SourceLab::addr(*pod_, ifname(number), ipv4()); }
    [[nodiscard]] Wire capture(int number) const { return {lab_->provider(number).ns(), "eth0"}; }
    // The traffic of the pod's interface N is seen at provider N and nowhere else.
    void expect_only_at(int number, const std::vector<Wire> &wires, const char *what,
                        std::optional<ip_addr> source = {}) const {
        for (int other = 0; other < SourceLab::kProviders; ++other) {
            const std::size_t seen =
                frames_from(wires.at(static_cast<std::size_t>(other)), source ? *source : addr(number));
            if (other == number)
                EXPECT_GT(seen, 0U) << what << " by interface " << number;
            else
                EXPECT_EQ(seen, 0U) << what << " by interface " << number << " at provider " << other;
        }
    }
    [[nodiscard]] std::vector<Wire> captures() const {
        std::vector<Wire> wires;
        for (int number = 0; number < SourceLab::kProviders; ++number)
            wires.push_back(capture(number));
        return wires;
    }

    std::optional<SourceLab> lab_;
    std::shared_ptr<Container> pod_;
};

TEST_P(Source, AnswersLeaveByTheNetworkThatWasAddressed) {
    add_pod();
    const EchoServer server(pod_->ns(), ipv4(), kPort);
    const std::vector<Wire> wires = captures();
    for (int number = 0; number < GetParam().interfaces; ++number) {
        const net::Namespace &client = lab_->client(number).ns();
        for (const Transport transport : {Transport::tcp, Transport::udp}) {
            for (int flow = 0; flow < 3; ++flow)
                EXPECT_EQ(ask(client, transport, {addr(number), kPort}), 0) << to_string(transport) << " " << number;
            expect_only_at(number, wires, to_string(transport).c_str());
        }
        EXPECT_TRUE(ping(client, to_string(addr(number)), 2));
        expect_only_at(number, wires, "echo");
        const Fd socket = open_socket(client, Transport::tcp, ipv4());
        ASSERT_EQ(connect_to(socket, {addr(number), kPort}), 0);
        EXPECT_EQ(transfer(socket, std::size_t{1} << 20U), 0);
        expect_only_at(number, wires, "transfer");
    }
}

// A server that binds its address, and answers more than one datagram from it.
TEST_P(Source, BoundSocketsReplyByTheSameInterface) {
    add_pod();
    const std::vector<Wire> wires = captures();
    for (int number = 0; number < GetParam().interfaces; ++number) {
        const Fd server = open_socket(pod_->ns(), Transport::udp, ipv4(), {addr(number), kPort});
        const Fd client = open_socket(lab_->client(number).ns(), Transport::udp, ipv4(),
                                      {ip(SourceLab::client_addr(number, ipv4())), 40000});
        ASSERT_EQ(connect_to(client, {addr(number), kPort}), 0);
        ASSERT_EQ(send_text(client, "question"), 0);
        ASSERT_EQ(receive(server).text, "question");
        ASSERT_EQ(connect_to(server, {ip(SourceLab::client_addr(number, ipv4())), 40000}), 0);
        ASSERT_EQ(send_text(server, "answer"), 0);
        EXPECT_EQ(receive(client).text, "answer");
        expect_only_at(number, wires, "bound udp");
    }
}

// Datagrams of a flow that conntrack has confirmed skip pl_to_pod.
TEST_P(Source, AServerThatStartsAgainRepliesFromTheAddressThatIsAsked) {
    add_pod({{"firstPacket", "host"}});
    const std::uint32_t veth = SourceLab::host_veth(*pod_, "net1");
    const auto fast = [&] { return lab_->count(veth, REASON_RECEIVED_UPLINK); };
    const Fd client = connected(lab_->client(1).ns(), Transport::udp, {addr(1), kPort});
    const auto is_answered = [&] { return send_text(client, "question") == 0 && receive(client).text == "question"; };
    {
        const EchoServer server(pod_->ns(), ipv4(), kPort);
        ASSERT_TRUE(wait_until([&] {
            const std::uint64_t before = fast();
            return is_answered() && fast() > before;
        })) << "never on the fast path";
    }
    const EchoServer again(pod_->ns(), ipv4(), kPort);
    const std::uint64_t before = fast();
    EXPECT_TRUE(is_answered());
    EXPECT_GT(fast(), before) << "this test's own way";
}

// The test's own foundation: without source routing a second interface is not answered by, whatever is asked.
TEST_P(Source, WithoutSourceRoutingAnswersAreLost) {
    add_pod({{"sourceRouting", false}});
    const EchoServer server(pod_->ns(), ipv4(), kPort);
    const std::uint32_t first = SourceLab::host_veth(*pod_, "eth0");
    for (int number = 1; number < GetParam().interfaces; ++number) {
        const Wire wire = capture(number);
        const std::uint64_t dropped = lab_->count(first, REASON_DROP_SOURCE_ADDRESS);
        for (const char *how : kHows)
            EXPECT_FALSE(is_answered(lab_->client(number).ns(), how, addr(number), kPort)) << how << number;
        EXPECT_TRUE(wait_until([&] { return lab_->count(first, REASON_DROP_SOURCE_ADDRESS) > dropped; }));
        EXPECT_EQ(frames_from(wire, addr(number)), 0U);
    }
}

TEST_P(Source, EachOfSeveralAddressesIsHandedOver) {
    pod_ = lab_->node().container();
    for (int number = 0; number < GetParam().interfaces; ++number) {
        Json network = lab_->network(number);
        Json &ranges = network["ipam"]["ranges"];
        const Json one = ranges.at(ipv4() ? 0 : 1).at(0);
        Json low = one;
        Json high = one;
        const std::string start = one.value("rangeStart", "");
        const std::string base = start.empty() ? SourceLab::range(number, ipv4(), false) : start;
        const std::string net = base.substr(0, base.rfind(ipv4() ? '.' : ':') + 1);
        const int from = start.empty() ? 20 : SourceLab::first_of_shared(number, ipv4());
        low.update({{"rangeStart", net + std::to_string(from)}, {"rangeEnd", net + std::to_string(from + 5)}});
        high.update({{"rangeStart", net + std::to_string(from + 6)}, {"rangeEnd", net + std::to_string(from + 9)}});
        ranges = {Json::array({low}), Json::array({high})};
        lab_->add(pod_, {ifname(number), SourceLab::network_name(number), {network}});
    }
    const EchoServer server(pod_->ns(), ipv4(), kPort);
    const std::vector<Wire> wires = captures();
    for (int number = 0; number < GetParam().interfaces; ++number) {
        const auto own = SourceLab::addrs(*pod_, ifname(number), ipv4());
        ASSERT_EQ(own.size(), 2U);
        for (const ip_addr &one : own)
            for (const char *how : kHows) {
                EXPECT_TRUE(gets_answer(lab_->client(number).ns(), how, one, kPort)) << how << to_string(one);
                expect_only_at(number, wires, how, one);
            }
        EXPECT_EQ(lab_->check(pod_, ifname(number)).rc, 0) << lab_->check(pod_, ifname(number));
    }
}

// The premises of the other tests.
TEST_P(Source, TheNodeAndItsPeersCheckTheWayBackStrictly) {
    add_pod();
    const auto strict = [](const net::Namespace &where, const std::string &ifname) {
        const auto value = [&](const std::string &name) {
            return must_run(where, {"sysctl", "-n", "net.ipv4.conf." + name + ".rp_filter"}).at(0);
        };
        return value("all") == '1' && value(ifname) != '2';
    };
    for (int number = 0; number < SourceLab::kProviders; ++number) {
        EXPECT_TRUE(strict(lab_->node().ns(), "up" + std::to_string(number)));
        EXPECT_TRUE(strict(lab_->provider(number).ns(), "eth0"));
        EXPECT_TRUE(strict(lab_->provider(number).ns(), "customer"));
    }
    for (const Json &link : Json::parse(lab_->node().run("ip -j link show type veth")))
        EXPECT_TRUE(strict(lab_->node().ns(), link.at("ifname"))) << link.at("ifname");
}

INSTANTIATE_TEST_SUITE_P(Networks, Source,
                         testing::Values(Case{true, false, 2}, Case{false, false, 2}, Case{true, true, 2},
                                         Case{false, true, 2}, Case{true, false, 3}, Case{false, false, 3}),
                         case_name);

// The fenced blocks of a kind between this heading and the next.
std::vector<std::string> blocks(const std::string &heading, const std::string &kind) {
    std::ifstream file(source_path("docs/SOURCE-ROUTING.md"));
    std::vector<std::string> found;
    bool here = false;
    bool inside = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("## "))
            here = line.starts_with("## " + heading);
        else if (here && !inside && line == "```" + kind) {
            inside = true;
            found.emplace_back();
        } else if (line.starts_with("```"))
            inside = false;
        else if (inside)
            found.back() += line + "\n";
    }
    return found;
}

std::vector<Json> conflists(const std::string &heading) {
    std::vector<Json> lists;
    for (const std::string &block : blocks(heading, "json"))
        lists.push_back(Json::parse(block));
    return lists;
}

// The configuration of a NetworkAttachmentDefinition as multus hands it on.
Json multus_config(const std::string &yaml) {
    const std::string key = "  config: |\n";
    return Json::parse(yaml.substr(yaml.find(key) + key.size()));
}

class SourceRoutingDoc : public testing::Test {
  protected:
    // As long as the link to the router is there.
    void TearDown() override { lab_->del_all(); }
    void start(bool shared = false) {
        lab_.emplace(shared);
        pod_ = lab_->node().container();
    }
    // Only the directories are the test's.
    void add(const std::string &ifname, const Json &list) {
        std::vector<Json> plugins = list.at("plugins");
        for (Json &plugin : plugins) {
            if (plugin.at("type") == "podlane")
                plugin["bpffs"] = lab_->node().bpffs();
            if (plugin.contains("ipam"))
                plugin["ipam"]["dataDir"] = lab_->node().leases();
        }
        lab_->add(pod_, {ifname, list.at("name"), plugins});
    }
    void expect_answers(const std::string &ifname, const net::Namespace &client, bool ipv4) {
        const EchoServer server(pod_->ns(), ipv4, kPort);
        const ip_addr addr = SourceLab::addr(*pod_, ifname, ipv4);
        EXPECT_TRUE(ping(client, to_string(addr), 2)) << ifname << to_string(addr);
        EXPECT_EQ(ask(client, Transport::tcp, {addr, kPort}), 0) << ifname << to_string(addr);
    }
    void expect_both_answer() {
        for (const bool ipv4 : {true, false}) {
            expect_answers("eth0", lab_->client(0).ns(), ipv4);
            expect_answers("net1", lab_->client(1).ns(), ipv4);
        }
        for (const char *ifname : {"eth0", "net1"})
            EXPECT_EQ(lab_->check(pod_, ifname).rc, 0) << lab_->check(pod_, ifname);
    }
    // The two networks of a section of the documentation.
    void expect_section(const std::string &section, bool shared) {
        const auto lists = conflists(section);
        ASSERT_EQ(lists.size(), 2U);
        start(shared);
        add("eth0", lists[0]);
        add("net1", lists[1]);
        expect_both_answer();
    }
    // A LAN behind lan0: its router, and a host behind that one, for which net1's answers need source routing.
    void make_lan() {
        router_ = lab_->node().container("router");
        beyond_ = lab_->node().container("beyond");
        lab_->node().run("ip link add lan0 type veth peer name eth0 netns " + router_->path());
        lab_->node().run("ip link set lan0 up");
        (void)router_->run("ip link add inside type veth peer name eth0 netns " + beyond_->path());
        for (const char *command :
             {"ip addr add 192.168.133.1/24 dev eth0", "ip addr add 2001:db8:133::1/64 dev eth0 nodad",
              "ip addr add 203.0.113.201/30 dev inside", "ip addr add 2001:db8:fa::1/64 dev inside nodad",
              "ip link set eth0 up", "ip link set inside up",
              "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"})
            (void)router_->run(command);
        for (const char *command :
             {"ip addr add 203.0.113.202/30 dev eth0", "ip addr add 2001:db8:fa::2/64 dev eth0 nodad",
              "ip link set eth0 up", "ip route add default via 203.0.113.201",
              "ip -6 route add default via 2001:db8:fa::1"})
            (void)beyond_->run(command);
    }

    std::optional<SourceLab> lab_;
    std::shared_ptr<Container> pod_;
    std::shared_ptr<Container> router_;
    std::shared_ptr<Container> beyond_;
};

TEST_F(SourceRoutingDoc, TwoNetworksAnswerByTheirTwoUplinks) { expect_section("1.", false); }
TEST_F(SourceRoutingDoc, TwoNetworksThatShareASubnetBothAnswer) { expect_section("2.", true); }

TEST_F(SourceRoutingDoc, AddressesOfALanAnswerWithinItAndBeyond) {
    const auto lists = conflists("3.");
    ASSERT_EQ(lists.size(), 1U);
    start();
    make_lan();
    add("eth0", conflists("1.").at(0));
    add("net1", lists[0]);
    for (const bool ipv4 : {true, false})
        for (const Container *client : {router_.get(), beyond_.get()})
            expect_answers("net1", client->ns(), ipv4);
}

TEST_F(SourceRoutingDoc, ANetworkAttachmentDefinitionReplacesIpvlanAndSbr) {
    const auto definitions = blocks("3.", "yaml");
    ASSERT_EQ(definitions.size(), 2U);
    Json was = multus_config(definitions[0]);
    const Json is = multus_config(definitions[1]);
    EXPECT_EQ(was.at("plugins").at(0).at("type"), "ipvlan");
    EXPECT_EQ(was.at("plugins").at(1).at("type"), "sbr");
    was["plugins"].erase(1);
    was["plugins"][0]["type"] = "podlane";
    was["plugins"][0]["uplink"] = was["plugins"][0]["master"];
    was["plugins"][0].erase("master");
    EXPECT_EQ(was, is) << "line by line";
    start();
    make_lan();
    add("eth0", conflists("1.").at(0));
    add("net1", is);
    for (const Container *client : {router_.get(), beyond_.get()})
        expect_answers("net1", client->ns(), true);
}

TEST_F(SourceRoutingDoc, AnInterfaceMadeByAnotherPluginAnswers) {
    const auto lists = conflists("4.");
    ASSERT_EQ(lists.size(), 2U);
    start();
    add("eth0", lists[0]);
    add("net1", conflists("1.").at(1));
    expect_both_answer();
}

TEST_F(SourceRoutingDoc, AnInterfaceWithoutAHostVethAnswers) {
    start();
    make_lan();
    add("eth0", conflists("1.").at(0));
    add("net1", conflists("4.").at(1));
    for (const Container *client : {router_.get(), beyond_.get()})
        expect_answers("net1", client->ns(), true);
    expect_answers("eth0", lab_->client(0).ns(), true);
    EXPECT_EQ(lab_->check(pod_, "net1").rc, 0) << lab_->check(pod_, "net1");
}

} // namespace
} // namespace podlane::test
