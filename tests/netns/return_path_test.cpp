// SPDX-License-Identifier: MIT
// A foreign host's packets that come in by the second of two uplinks: strict rp_filter, the default route by the first.
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
std::string provider4(int number) { return number == 0 ? "192.0.2" : "198.51.100"; }
std::string provider6(int number) { return "2001:db8:f" + std::to_string(number) + ":"; }

// Both providers know the way to the pods; the client is a customer of the second, and the node prefers the first.
class ReturnPath : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        for (const int number : {0, 1}) {
            const std::string up = "up" + std::to_string(number);
            auto &provider = providers_.at(static_cast<std::size_t>(number));
            provider = node_.container("provider" + std::to_string(number));
            node_.run("ip link add " + up + " type veth peer name eth0 netns " + provider->path());
            node_.run("ip addr add " + provider4(number) + ".2/24 dev " + up);
            node_.run("ip addr add " + provider6(number) + ":2/64 dev " + up + " nodad");
            node_.run("ip link set " + up + " up");
            in(number, "ip addr add " + provider4(number) + ".1/24 dev eth0");
            in(number, "ip addr add " + provider6(number) + ":1/64 dev eth0 nodad");
            in(number, "ip link set eth0 up");
            in(number, "ip link set lo up");
            in(number, "ip route add 198.18.9.0/24 via " + provider4(number) + ".2");
            in(number, "ip route add 2001:db8:9::/64 via " + provider6(number) + ":2");
            node_.run("ip route add default via " + provider4(number) + ".1 metric " + std::to_string(100 + number));
        }
        add_client();
        node_.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=1 "
                  "net.ipv4.conf.default.rp_filter=1 net.ipv4.conf.up0.rp_filter=1 net.ipv4.conf.up1.rp_filter=1");
    }
    void TearDown() override {
        if (HasFailure())
            node_.show({"counter list", "uplink list", "path list"});
        if (chain_) {
            EXPECT_EQ(chain_->del(*pod_).rc, 0);
        }
    }
    void add_pod(const Json &keys) {
        pod_ = node_.container();
        Json all = {{"uplinks", {"up0", "up1"}}, {"clusterCIDRs", {"198.18.0.0/16", "2001:db8:9::/48"}}};
        all.merge_patch(keys);
        chain_.emplace(node_, std::vector<Json>{node_.config(all)});
        const Reply reply = chain_->add(*pod_);
        ASSERT_EQ(reply.rc, 0) << reply;
        for (const Json &one : reply.json.at("ips")) {
            const std::string text = one.at("address");
            const ip_addr addr = ip(text.substr(0, text.find('/')));
            if (is_ipv4(addr) == GetParam())
                addr_ = addr;
        }
    }
    // Asked from BPF for a route by an interface, IPv6 looks among those of the best metric only.
    void add_ipv6_default_routes(bool same_metric) const {
        for (const int number : {0, 1})
            node_.run("ip -6 route append default via " + provider6(number) + ":1 metric " +
                      std::to_string(same_metric ? 100 : 100 + number));
    }
    // Behind the second provider, which is a router: it asks for neighbours in its own name.
    void add_client() {
        client_ = node_.container("client");
        in(1, "ip link add customer type veth peer name eth0 netns " + client_->path());
        in(1, "ip addr add 203.0.113.1/24 dev customer");
        in(1, "ip addr add 2001:db8:cafe::1/64 dev customer nodad");
        in(1, "ip link set customer up");
        in(1, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        for (const char *command :
             {"ip addr add 203.0.113.9/24 dev eth0", "ip addr add 2001:db8:cafe::9/64 dev eth0 nodad",
              "ip link set eth0 up", "ip route add default via 203.0.113.1",
              "ip -6 route add default via 2001:db8:cafe::1"})
            (void)client_->run(command);
    }
    void in(int provider, const std::string &command) const {
        (void)providers_.at(static_cast<std::size_t>(provider))->run(command);
    }
    [[nodiscard]] const net::Namespace &provider(int number) const {
        return providers_.at(static_cast<std::size_t>(number))->ns();
    }

    Node node_;
    std::array<std::shared_ptr<Container>, 2> providers_;
    // A datagram of the client to the pod; its socket, for the answer.
    [[nodiscard]] Fd greet_pod() const {
        Fd socket = open_socket(client_->ns(), Transport::udp, GetParam());
        EXPECT_EQ(connect_to(socket, {addr_, kPort}), 0);
        EXPECT_EQ(send_text(socket, "hello"), 0);
        return socket;
    }

    std::shared_ptr<Container> client_;
    std::shared_ptr<Container> pod_;
    std::optional<Chain> chain_;
    ip_addr addr_{};
};

// Not even with firstPacket: direct: the node's reverse path filter and rules decide, and nothing is cached.
TEST_P(ReturnPath, ForeignSourcesNeverGoDirect) {
    add_ipv6_default_routes(true);
    add_pod(Json::object());
    const EchoServer server(pod_->ns(), GetParam(), kPort);
    const Fd socket = greet_pod();
    if (GetParam()) { // IPv6 has no rp_filter: the host stack lets it in
        EXPECT_FALSE(wait_until([&] { return !server.callers().empty(); }, quiet()));
    } else {
        EXPECT_TRUE(wait_until([&] { return !server.callers().empty(); }));
    }
    for (const auto &[key, value] : require(require(open_flows(node_.bpffs(), Access::read_only)).entries()))
        EXPECT_NE(to_string(key.source), to_string(ip(GetParam() ? "203.0.113.9" : "2001:db8:cafe::9")));
}

// Connections that a pod opens follow the routes.
TEST_P(ReturnPath, ConnectionsOfThePodFollowTheRoutes) {
    add_ipv6_default_routes(true);
    add_pod(Json::object());
    const EchoServer first(provider(0), GetParam(), kPort);
    const Wire by_second(provider(1), "eth0");
    EXPECT_EQ(ask(pod_->ns(), Transport::tcp, {ip(GetParam() ? "192.0.2.1" : "2001:db8:f0::1"), kPort}), 0);
    EXPECT_EQ(frames_from(by_second, addr_), 0U);
}

// The test's own foundation: the host stack alone loses such connections.
TEST_P(ReturnPath, WithoutTheFastPathTheyAreLost) {
    add_ipv6_default_routes(false);
    add_pod({{"fastPath", "off"}});
    const EchoServer server(pod_->ns(), GetParam(), kPort);
    const Wire by_second(provider(1), "eth0");
    const Fd socket = greet_pod();
    if (!GetParam()) { // IPv6 has no rp_filter: there the question arrives, and the answer goes astray
        EXPECT_TRUE(wait_until([&] { return !server.callers().empty(); }));
    }
    EXPECT_FALSE(wait_until([&] { return frames_from(by_second, addr_) > 0; }, quiet()));
}

INSTANTIATE_TEST_SUITE_P(Family, ReturnPath, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
