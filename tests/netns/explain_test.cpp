// SPDX-License-Identifier: MIT
// podlanectl explain: questions in words, their answers, and what it refuses to answer.
#include "tests/netns/explain.hpp"

#include "loader/attach.hpp"

namespace podlane::test {
namespace {

class ExplainTest : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "tcx" && !kernel_can_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
        lab_.emplace();
        a_ = lab_->add_pod(Json{{"attach", GetParam()}, {"clusterCIDRs", {"198.18.0.0/16", "2001:db8:9::/48"}}});
        b_ = lab_->add_pod(
            Json{{"attach", GetParam()}, {"mtu", 1300}, {"clusterCIDRs", {"198.18.0.0/16", "2001:db8:9::/48"}}});
        (void)must_run(lab_->outside(), words("ip route add 198.18.9.0/24 via 203.0.113.2"));
    }
    [[nodiscard]] Output ctl(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), "explain");
        return Asker(lab_->node()).ctl(arguments);
    }
    [[nodiscard]] Json ask(const std::vector<std::string> &arguments) { return Asker(lab_->node()).explain(arguments); }

    [[nodiscard]] static Json decision_in(const Json &answer, const std::string &map) {
        for (const Json &one : answer.at("decisions"))
            if (one.at("map") == map)
                return one;
        return answer;
    }

    std::optional<Lab> lab_;
    Pod a_;
    Pod b_;
};

TEST_P(ExplainTest, BuildsThePacketForTheQuestion) {
    const Json answer = ask({"--from", to_string(a_.v4), "--to", to_string(b_.v4) + ":80"}).at(0);
    EXPECT_THAT(answer, has_members({{"reason", "sent-direct"},
                                     {"verdict", "redirected"},
                                     {"packet", "tcp " + to_string(a_.v4) + ":49152 > " + to_string(b_.v4) + ":80"}}));
    std::vector<std::string> decisions;
    for (const Json &decision : answer.at("decisions"))
        decisions.push_back(decision.at("decision"));
    EXPECT_EQ(decisions, (std::vector<std::string>{"endpoint", "source", "source check", "receiver", "flow cache",
                                                   "would write", "receiver", "route"}));
    EXPECT_THAT(ctl({"--from", to_string(a_.v4), "--to", to_string(b_.v4) + ":80"}), prints(0, {"anti-spoofing"}));
    EXPECT_EQ(answer.at("decisions").at(3).at("map"), PODLANE_MAP_ADDRESSES);
    EXPECT_EQ(answer.at("decisions").at(5).at("answer"), "direct: conntrack does not know it");
    EXPECT_EQ(ask({"--from", a_.host_ifname, "--to", to_string(b_.v6)}).at(0).at("reason"), "host-unconfirmed");
    EXPECT_EQ(ask({"--from", a_.host_ifname, "--to", to_string(b_.v6), "--proto", "udp"}).at(0).at("reason"),
              "sent-direct");
    EXPECT_EQ(ask({"--from", a_.host_ifname, "--to", to_string(b_.v4), "--size", "1400"}).at(0).at("reason"),
              "host-mtu");
    EXPECT_EQ(ask({"--from", a_.host_ifname, "--to", Lab::kOutside4, "--source", to_string(b_.v4)}).at(0).at("reason"),
              "drop-source-address");
    EXPECT_EQ(ask({"--from", a_.host_ifname, "--out", "--source", Lab::kOutside4, "--to", to_string(a_.v4) + ":80"})
                  .at(0)
                  .at("reason"),
              "received-host");
    EXPECT_EQ(ask({"--from", "up0", "--out", "--source", Lab::kNode4, "--to", Lab::kOutside4}).at(0).at("reason"),
              "uplink-sent-host");
    const Output text = ctl({"--from", a_.host_ifname, "--to", to_string(b_.v4) + ":80", "--proto", "udp"});
    EXPECT_THAT(text.out, HasSubstr("verdict  redirected (sent-direct): to a pod of this node"));
    EXPECT_THAT(ctl({"--from", a_.host_ifname}).err, HasSubstr("explain needs --from and either --to or --frame"));
    EXPECT_THAT(ctl({"--from", "nobody", "--to", "192.0.2.1"}).err, HasSubstr("nobody"));
}

// The way another reader of the tables would say who sends.
TEST_P(ExplainTest, WhoSendsMayBeSaidByASelection) {
    for (const std::vector<std::string> &who : {std::vector<std::string>{"--address", to_string(a_.v4)},
                                                {"--interface", a_.host_ifname},
                                                {"--container", a_.container->id(), "--network", "pods"}}) {
        std::vector<std::string> arguments = who;
        arguments.insert(arguments.end(), {"--to", to_string(b_.v4) + ":80"});
        EXPECT_EQ(ask(arguments).at(0).at("interface"), a_.host_ifname);
    }
    EXPECT_THAT(ctl({"--network", "pods", "--to", to_string(b_.v4)}).err, HasSubstr("--network pods are 2 endpoints"));
    EXPECT_THAT(ctl({"--to", to_string(b_.v4)}).err, HasSubstr("explain needs the sender"));
}

TEST_P(ExplainTest, NamesWhatIsolationAndExemptPrefixesDecide) {
    const Pod closed = lab_->add_pod(Json{
        {"attach", GetParam()},
        {"groups", {"name:db"}},
        {"isolation", "group"},
        {"clusterCIDRs", {"198.18.0.0/16", "2001:db8:9::/48"}},
        {"bandwidth", {{"egressRate", 8000000}, {"egressBurst", 8000000}, {"unshapedSubnets", {"203.0.113.0/24"}}}}});
    const Json refused = ask({"--from", a_.host_ifname, "--to", to_string(closed.v4) + ":80"}).at(0);
    EXPECT_EQ(refused.at("reason"), "drop-isolation");
    std::vector<std::string> groups;
    for (const Json &one : refused.at("decisions"))
        if (one.at("decision") == "groups")
            groups.push_back(one.at("answer"));
    EXPECT_THAT(groups, testing::ElementsAre("none", "in 1 group, accepts 1 group, the host"));
    const Json exempt = ask({"--from", closed.host_ifname, "--to", Lab::kOutside4}).at(0);
    EXPECT_THAT(decision_in(exempt, PODLANE_MAP_EXEMPT),
                has_members({{"decision", "exempt"}, {"answer", "in an exempt prefix: the limit does not apply"}}));
}

TEST_P(ExplainTest, AsksAboutAnEstablishedConnectionByFlags) {
    const Json keys = {{"attach", GetParam()}, {"firstPacket", "host"}};
    const Pod client = lab_->add_pod(keys), server = lab_->add_pod(keys);
    for (const bool ipv4 : {true, false}) {
        const Endpoint to{ipv4 ? server.v4 : server.v6, 7};
        const EchoServer echo(server.ns(), ipv4, to.port);
        const Fd socket = connected(client.ns(), Transport::tcp, to);
        const auto reason_of = [&](const std::string &flags, std::uint16_t port) {
            std::vector<std::string> arguments{"--from",   client.host_ifname,
                                               "--to",     to_string(to),
                                               "--source", to_string(Endpoint{ipv4 ? client.v4 : client.v6, port})};
            if (!flags.empty())
                arguments.insert(arguments.end(), {"--flags", flags});
            return ask(arguments).at(0).at("reason").get<std::string>();
        };
        const std::uint16_t port = local_of(socket).port;
        ASSERT_TRUE(wait_until([&] {
            EXPECT_EQ(transfer(socket, 1 << 20), 0);
            return reason_of("ack", port) == "sent-direct";
        }));
        for (const std::string flags : {"", "syn", "fin", "rst"})
            EXPECT_EQ(reason_of(flags, port), "host-path") << flags;
        EXPECT_EQ(reason_of("ack", 1), "host-unconfirmed");
        EXPECT_EQ(reason_of("ack", port), "sent-direct") << "a question has removed what is cached";
    }
    const std::vector<std::string> question{"--from", client.host_ifname, "--to", to_string(server.v4)};
    const auto refused = [&](const std::vector<std::string> &more) {
        std::vector<std::string> arguments = question;
        arguments.insert(arguments.end(), more.begin(), more.end());
        return ctl(arguments).err;
    };
    EXPECT_THAT(refused({"--proto", "tcp", "--flags", "psh"}),
                AllOf(HasSubstr("unknown flags \"psh\""), HasSubstr("syn, ack, fin or rst")));
    EXPECT_THAT(refused({"--flags", "ack"}), HasSubstr("only TCP packets have --flags"));
}

TEST_P(ExplainTest, AnAddressHasOneFamily) {
    EXPECT_THAT(ctl({"--from", a_.host_ifname, "--to", "[::ffff:192.0.2.1]:80"}).err,
                HasSubstr("hint: write the IPv4 address, 192.0.2.1"));
    EXPECT_THAT(ctl({"--from", a_.host_ifname, "--source", to_string(a_.v4), "--to", to_string(b_.v6)}).err,
                HasSubstr("source " + to_string(a_.v4) + " and destination " + to_string(b_.v6) +
                          " are of different families\nhint: "));
}

TEST_P(ExplainTest, NamesTheValueThatItRefuses) {
    const std::vector<std::string> question{"explain", "--from", a_.host_ifname};
    const auto refused = [&](const std::vector<std::string> &more) {
        std::vector<std::string> arguments = question;
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Output output = lab_->node().podlanectl(arguments);
        EXPECT_EQ(output.rc, 2) << output.err;
        return output.err;
    };
    EXPECT_THAT(refused({"--frame", "zz"}), HasSubstr("--frame \"zz\": write a frame in hexadecimal digits"));
    EXPECT_THAT(refused({"--frame", "0102"}), HasSubstr("--frame \"0102\": a frame has at least 14 bytes"));
    EXPECT_THAT(refused({"--to", to_string(b_.v4), "--size", "big"}),
                HasSubstr("--size \"big\" is not a number of bytes"));
    EXPECT_THAT(refused({"--to", to_string(b_.v4), "--size", "5"}), HasSubstr("--size \"5\": a packet of this kind"));
}

// It goes on with the program that the packet meets next.
TEST_P(ExplainTest, FollowsAPacketToTheUplink) {
    lab_->node().run("ip route add 198.18.77.0/24 dev up0");
    lab_->node().run("ip neigh replace 198.18.77.7 lladdr 02:00:00:00:00:ee dev up0");
    const Json answer = ask({"--from", a_.host_ifname, "--to", "198.18.77.7", "--proto", "udp"});
    ASSERT_EQ(answer.size(), 2U) << answer.dump(1);
    EXPECT_EQ(answer.at(0).at("reason"), "sent-uplink");
    EXPECT_THAT(answer.at(1),
                has_members({{"interface", "up0"}, {"program", PODLANE_PROGRAM_TO_UPLINK}, {"reason", "uplink-sent"}}));
}

// An answer for another program than the one on the hook would be worth nothing.
TEST_P(ExplainTest, RefusesToAnswerForAnotherProgram) {
    const auto inside = require(net::enter(lab_->node().ns()));
    ASSERT_TRUE(require(detach(a_.ifindex, Hook::ingress)));
    EXPECT_THAT(ctl({"--from", a_.host_ifname, "--to", to_string(b_.v4)}).err,
                HasSubstr("no program of Podlane is on ingress of " + a_.host_ifname));
}

INSTANTIATE_TEST_SUITE_P(Hooks, ExplainTest, both_ways_to_attach(), way_to_attach);

} // namespace
} // namespace podlane::test
