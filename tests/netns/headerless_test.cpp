// SPDX-License-Identifier: MIT
// Tunnels whose packets have no Ethernet header: pods reach other nodes through them by the host stack, or ADD refuses.
#include "tests/harness/cluster.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <thread>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
constexpr const char *kTunnel = "tun7";

Fd open_tunnel(const net::Namespace &where) {
    const auto inside = require(net::enter(where));
    Fd tunnel(open("/dev/net/tun", O_RDWR | O_CLOEXEC));
    ifreq request{};
    std::string(kTunnel).copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (!tunnel || ioctl(tunnel.get(), TUNSETIFF, &request) != 0)
        throw std::runtime_error("no tun device can be made");
    return tunnel;
}

// A device on each of two nodes, and what carries packets between them, as a VPN's daemon does.
class Tunnel {
  public:
    Tunnel(const net::Namespace &a, const net::Namespace &b)
        : ends_{open_tunnel(a), open_tunnel(b)}, stop_(eventfd(0, EFD_CLOEXEC)), thread_([this] { carry(); }) {}
    ~Tunnel() {
        const std::uint64_t one = 1;
        (void)!write(stop_.get(), &one, sizeof(one));
        thread_.join();
    }
    Tunnel(const Tunnel &) = delete;
    Tunnel &operator=(const Tunnel &) = delete;

  private:
    void carry() {
        std::array<pollfd, 3> waiting{
            {{ends_[0].get(), POLLIN, 0}, {ends_[1].get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
        std::array<char, 65536> packet{};
        while (poll(waiting.data(), waiting.size(), -1) > 0 && waiting[2].revents == 0)
            for (const std::size_t from : {0U, 1U})
                if (waiting.at(from).revents != 0)
                    if (const ssize_t size = read(ends_.at(from).get(), packet.data(), packet.size()); size > 0)
                        (void)!write(ends_.at(1 - from).get(), packet.data(), static_cast<std::size_t>(size));
    }

    std::array<Fd, 2> ends_;
    Fd stop_;
    std::thread thread_;
};

class Headerless : public testing::Test {
  protected:
    void SetUp() override {
        for (const int node : {1, 2})
            cluster_.node(node).run(std::string("ip link set ") + kTunnel + " up mtu 1400");
    }
    void route(int node, const std::string &to) const {
        cluster_.node(node).run("ip route replace " + to + " dev " + kTunnel);
    }
    void expect_reached(const Pod &from, const Pod &to) const {
        for (const bool ipv4 : {true, false}) {
            const EchoServer server(to.ns(), ipv4, kPort);
            for (const Transport transport : {Transport::tcp, Transport::udp})
                EXPECT_EQ(ask(from.ns(), transport, {to.addr(ipv4), kPort}), 0) << to_string(transport) << ipv4;
            EXPECT_TRUE(ping(from.ns(), to_string(to.addr(ipv4)), 2));
        }
        EXPECT_EQ(cluster_.count(from, REASON_SENT_UPLINK), 0U);
        EXPECT_EQ(cluster_.count(to, REASON_RECEIVED_UPLINK), 0U);
    }
    [[nodiscard]] Output podlanectl(const std::string &command) const {
        return cluster_.node(1).podlanectl("--json " + command);
    }
    // Names of the uplinks of node 1, and what podlanectl says beside.
    [[nodiscard]] std::pair<std::vector<std::string>, std::string> synced() const {
        const Output said = podlanectl("uplink sync");
        std::vector<std::string> names;
        for (const Json &one : Json::parse(said.out))
            names.push_back(one.at("interface"));
        return {names, said.err};
    }

    Cluster cluster_;
    Tunnel tunnel_{cluster_.node(1).ns(), cluster_.node(2).ns()};
};

TEST_F(Headerless, RoutesThroughItTakeTheHostStack) {
    const Json keys = {{"uplinks", {"up*", "tun*"}}};
    const Pod a = cluster_.add_pod(1, keys);
    const Pod b = cluster_.add_pod(2, keys);
    for (const bool ipv4 : {true, false}) {
        route(1, Cluster::pods(2, ipv4));
        route(2, Cluster::pods(1, ipv4));
    }
    expect_reached(a, b);
    EXPECT_GE(cluster_.count(a, REASON_HOST_NO_UPLINK), 4U);
    const auto [names, said] = synced();
    EXPECT_EQ(names, std::vector<std::string>{"up0"});
    EXPECT_NE(said.find("tun7 has no Ethernet header"), std::string::npos) << said;
}

// The default uplinks are the interfaces of the default routes: here there is none that could be one.
TEST_F(Headerless, DefaultRouteThroughItLeavesNoUplink) {
    for (const int node : {1, 2})
        for (const char *family : {"-4", "-6"}) {
            cluster_.node(node).run(std::string("ip ") + family + " route del default");
            cluster_.node(node).run(std::string("ip ") + family + " route add default dev " + kTunnel);
        }
    const Pod a = cluster_.add_pod(1);
    const Pod b = cluster_.add_pod(2);
    expect_reached(a, b);
    const auto [names, said] = synced();
    EXPECT_TRUE(names.empty());
    EXPECT_NE(said.find("tun7 has no Ethernet header"), std::string::npos) << said;
}

// It comes after the first pod under a name that is asked for.
TEST_F(Headerless, LateOneIsRefused) {
    cluster_.node(1).run("ip link set tun7 down");
    cluster_.node(1).run("ip link set tun7 name other");
    const Json keys = {{"uplinks", {"up0", "tun7"}}};
    const Pod a = cluster_.add_pod(1, keys);
    cluster_.node(1).run("ip link set other name tun7");
    const Output said = podlanectl("uplink sync");
    EXPECT_NE(said.rc, 0);
    EXPECT_NE((said.out + said.err).find("tun7 has no Ethernet header"), std::string::npos) << said.out << said.err;
    const Container late("late", cluster_.node(1).dir() + "/netns-late");
    const Reply reply = cluster_.node(1).cni("ADD", cluster_.config(1, keys), late);
    EXPECT_EQ(reply.code(), 7) << reply;
    EXPECT_NE(reply.message().find("tun7 has no Ethernet header"), std::string::npos) << reply;
}

} // namespace
} // namespace podlane::test
