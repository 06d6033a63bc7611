// SPDX-License-Identifier: MIT
// The configurations of docs/examples, run plugin by plugin as a runtime does, and shown as they are in the README.
#include "maps/tables.hpp"
#include "tests/harness/chain.hpp"
#include "tests/harness/node.hpp"
#include "tests/harness/outcome.hpp"
#include "tests/harness/process.hpp"
#include "tests/harness/talk.hpp"
#include "tests/harness/environment.hpp"

namespace podlane::test {
namespace {

std::string example(const std::string &name) { return source_text("docs/examples/" + name + ".conflist"); }

// The example's name is the mode podlanectl must show.
class Examples : public testing::TestWithParam<std::string> {
  protected:
    // Only the directories are the test's.
    Chain chain(int host_port, const Json &keys) const {
        const Json list = Json::parse(example(GetParam()));
        std::vector<Json> plugins = list["plugins"];
        for (Json &plugin : plugins) {
            if (plugin["type"] == "podlane") {
                plugin["bpffs"] = node_.bpffs();
                plugin.update(keys);
            }
            if (plugin.contains("ipam"))
                plugin["ipam"]["dataDir"] = node_.leases();
        }
        Chain made(node_, plugins, list["cniVersion"], list["name"]);
        made.capability_args["portMappings"] = {{{"hostPort", host_port}, {"containerPort", 80}, {"protocol", "tcp"}}};
        return made;
    }
    std::uint64_t sent_direct(const Container &pod) const {
        for (const Json &counter : node_.podlanectl_json("counter list --container " + pod.id()))
            if (counter["reason"] == "sent-direct")
                return counter["packets"];
        return 0;
    }
    // Two pods talk; each has to count at least `fewest` packets to the other on the fast path.
    void connect_two_pods(const Json &keys, std::uint64_t fewest);

    Node node_;
};

void Examples::connect_two_pods(const Json &keys, std::uint64_t fewest) {
    const auto client = node_.container(), server = node_.container();
    Chain client_chain = chain(8081, keys), server_chain = chain(8080, keys);
    for (const auto &[pod, chain] : {std::pair(client, &client_chain), std::pair(server, &server_chain)}) {
        ASSERT_THAT(chain->add(*pod), succeeds());
        EXPECT_EQ(node_.podlanectl_json("endpoint list --container " + pod->id()).at(0).at("mode"), GetParam());
        // portmap 1.1.1 looks for its IPv4 rules among those of IPv6.
        Chain without_host_ports = *chain;
        without_host_ports.capability_args = Json::object();
        EXPECT_THAT(without_host_ports.check(*pod), succeeds());
    }
    for (const Json &ip : server_chain.result()["ips"]) {
        const std::string prefix = ip["address"];
        const std::string to = prefix.substr(0, prefix.find('/'));
        EXPECT_TRUE(ping(client->ns(), to, 3)) << prefix;
        const EchoServer echo(server->ns(), is_ipv4(require(parse_ip(to))), 7);
        EXPECT_EQ(ask(client->ns(), Transport::tcp, {require(parse_ip(to)), 7}), 0) << prefix;
    }
    for (const auto &[pod, chain] : {std::pair(client, &client_chain), std::pair(server, &server_chain)}) {
        EXPECT_GE(sent_direct(*pod), fewest);
        EXPECT_THAT(chain->del(*pod), succeeds());
    }
    EXPECT_EQ(node_.podlanectl_json("endpoint list"), Json::array());
    EXPECT_EQ(node_.run("ip -brief link show type veth"), "");
    EXPECT_EQ(node_.leased(), std::vector<std::string>{});
}

TEST_P(Examples, ConnectsTwoPods) { connect_two_pods(Json::object(), 0); }

TEST_P(Examples, ConnectsTwoPodsOnTheFastPathFromTheFirstPacketOn) { connect_two_pods({{"firstPacket", "direct"}}, 6); }

INSTANTIATE_TEST_SUITE_P(Documented, Examples, testing::Values("main", "after-ipam", "after-main"));

// Debian 12's host-local knows neither command, and answers with another error than "incompatible version".
TEST(OlderIpamPlugin, DoesNotFailStatusAndGc) {
    const Node node;
    const Json config = node.config({{"cniVersion", "1.1.0"}, {"cni.dev/valid-attachments", Json::array()}});
    for (const std::string command : {"STATUS", "GC"}) {
        EXPECT_THAT(node.cni("podlane", command, config), succeeds()) << command;
    }
}

TEST(Readme, ShowsTheExamplesAsTheyAre) {
    for (const std::string name : {"main", "after-ipam", "after-main"})
        EXPECT_NE(source_text("README.md").find("```json\n" + example(name) + "```"), std::string::npos) << name;
}

} // namespace
} // namespace podlane::test
