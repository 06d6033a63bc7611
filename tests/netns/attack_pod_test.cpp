// A hostile pod beside others: what its process can do without capabilities, and with CAP_NET_RAW, which pods have by
// default. The outcome is asserted on the victims.
#include "tests/netns/attacker.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

sockaddr_in6 to_sockaddr(const ip_addr &addr, std::uint16_t port) {
    sockaddr_in6 out{};
    out.sin6_family = AF_INET6;
    out.sin6_port = htons(port);
    std::memcpy(&out.sin6_addr, &addr, sizeof addr);
    return out;
}

// A datagram from any address at all (IPV6_FREEBIND needs no capability).
void send_from(const ip_addr &source, const ip_addr &destination) {
    const Fd socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    constexpr int kFreebind = 78; // IPV6_FREEBIND, which glibc 2.36 does not name
    must_not_fail(setsockopt(socket.get(), IPPROTO_IPV6, kFreebind, &on, sizeof on), "IPV6_FREEBIND");
    const sockaddr_in6 from = to_sockaddr(source, 0);
    const sockaddr_in6 to = to_sockaddr(destination, kPort);
    must_not_fail(bind(socket.get(), reinterpret_cast<const sockaddr *>(&from), sizeof from), "bind"); // NOLINT
    if (sendto(socket.get(), "x", 1, 0, reinterpret_cast<const sockaddr *>(&to), sizeof to) != 1)      // NOLINT
        throw std::runtime_error(std::string("sendto: ") + std::strerror(errno));
}

class AttackSiblings : public testing::Test {
  protected:
    void SetUp() override {
        pod_ = lab_.node().container();
        lab_.add(pod_, "eth0", 0);
        lab_.add(pod_, "net1", 1);
    }
    // Packets by reason at both host-side veths of the pod, as podlanectl prints them.
    [[nodiscard]] std::uint64_t counted(const std::string &why) const {
        const std::string command =
            std::getenv("PODLANECTL_BIN") + std::string(" --bpffs ") + lab_.node().bpffs() + " --json counter list";
        std::uint64_t packets = 0;
        for (const Json &row : Json::parse(must_run(lab_.node().ns(), words(command))))
            if (row.at("reason") == why)
                packets += row.at("packets").get<std::uint64_t>();
        return packets;
    }

    SourceLab lab_;
    std::shared_ptr<Container> pod_;
};

// Numbers of slots, written as addresses: found as sources, their packets went round between both veths for ever.
TEST_F(AttackSiblings, NoPacketGoesRoundBetweenTheInterfaces) {
    const std::uint64_t before = counted("drop-source-address");
    const std::vector<std::string> claimed = {"::100:0", "::100:0:100:0", "::200:0", "::100:0:0:0"};
    as_hostile(pod_->ns(), Privilege::none, [&] {
        for (const std::string &source : claimed)
            send_from(ip(source), ip(SourceLab::client_addr(0, false)));
    });
    EXPECT_TRUE(wait_until([&] { return counted("drop-source-address") >= before + claimed.size(); }));
    EXPECT_LE(counted("sent-sibling"), claimed.size()) << "handed over more than once";
}

} // namespace
} // namespace podlane::test
