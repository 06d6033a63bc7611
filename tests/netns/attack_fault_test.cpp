// SPDX-License-Identifier: MIT
// A pod forges source addresses all the time, while calls about it are made, fail or are killed: from the first to the
// last moment of its interface nothing of that leaves the node.
#include "tests/harness/repeat.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/fault.hpp"

#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/ioctl.h>

namespace podlane::test {
namespace {

constexpr std::size_t kData = 24;

// Sends forged frames by the container's interface whenever there is one, until it goes.
class Forger {
  public:
    Forger(const Container &from, const std::vector<std::string> &gateways) {
        for (const std::string &mac : gateways)
            for (const auto &[source, to] :
                 {std::pair("198.51.100.9", "203.0.113.1"), std::pair("2001:db8:77::9", "2001:db8:cafe::1")})
                frames_.push_back(frame(require(parse_mac(mac)), {}, udp({ip(source), ip(to)}, kData)));
        thread_ = std::thread([this, &from] { as_hostile(from.ns(), Privilege::net_raw, [this] { run(); }); });
    }
    ~Forger() {
        done_ = true;
        thread_.join();
    }
    Forger(const Forger &) = delete;
    Forger &operator=(const Forger &) = delete;

    // It has tried so often since.
    void expect_more(std::uint64_t rounds = 50) const {
        const std::uint64_t before = rounds_;
        EXPECT_TRUE(wait_until([&] { return rounds_ >= before + rounds; }));
    }

  private:
    void run() {
        const Fd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
        for (; !done_; ++rounds_) {
            ifreq interface {};
            std::strcpy(interface.ifr_name, "eth0");
            sockaddr_ll to{};
            to.sll_family = AF_PACKET;
            if (ioctl(socket.get(), SIOCGIFINDEX, &interface) != 0)
                continue;
            to.sll_ifindex = interface.ifr_ifindex;
            if (ioctl(socket.get(), SIOCGIFHWADDR, &interface) != 0)
                continue;
            for (Bytes &one : frames_) {
                std::copy_n(interface.ifr_hwaddr.sa_data, ETH_ALEN, one.begin() + ETH_ALEN);
                (void)sendto(socket.get(), one.data(), one.size(), 0, reinterpret_cast<const sockaddr *>(&to), // NOLINT
                             sizeof to);
            }
        }
    }
    std::vector<Bytes> frames_;
    std::atomic<bool> done_ = false;
    std::atomic<std::uint64_t> rounds_ = 0;
    std::thread thread_;
};

class AttackFault : public FaultTest {
  protected:
    [[nodiscard]] std::unique_ptr<Forger> forge() const {
        std::vector<std::string> gateways{kHostMac};
        if (!adopted_.empty())
            gateways.push_back(find(ip_json(node_.ns(), "link"), "ifname", adopted_).at("address"));
        return std::make_unique<Forger>(*container_, gateways);
    }
    // The attempts reach the programs.
    void expect_dropped() const {
        const auto record = require(require(open_endpoints(node_.bpffs(), Access::read_only))
                                        .find(require(make_endpoint_key(container_->id(), "eth0"))));
        ASSERT_TRUE(record);
        const auto dropped = [&] { return node_.counted(record->ifindex, REASON_DROP_SOURCE_ADDRESS).packets; };
        const std::uint64_t before = dropped();
        EXPECT_TRUE(wait_until([&] { return dropped() > before + 100; }));
    }
    void expect_nothing_passed() const {
        EXPECT_EQ(std::ranges::count_if(wire_.arrived(), &AttackFault::is_forged), 0);
    }
    static bool is_forged(const Bytes &frame) { return contains(frame, pattern(kData)); }
    Wire wire_{outside_->ns(), "eth0"};
};

class AttackFaultOfAdd : public AttackFault {};

TEST_P(AttackFaultOfAdd, NothingForgedPasses) {
    const auto faults = faults_of("ADD");
    must("DEL");
    for (const Fault &fault : faults) {
        SCOPED_TRACE("ADD, " + fault.text());
        const auto forger = forge();
        (void)hit("ADD", fault);
        forger->expect_more();
        expect_done("DEL");
        expect_nothing_passed();
    }
}

class AttackFaultOfDel : public AttackFault {};

TEST_P(AttackFaultOfDel, NothingForgedPasses) {
    for (const std::string command : {"DEL", "GC"}) {
        must("ADD");
        for (const Fault &fault : faults_of(command)) {
            SCOPED_TRACE(command + ", " + fault.text());
            must("ADD");
            const auto forger = forge();
            expect_dropped();
            (void)hit(command, fault);
            forger->expect_more();
            expect_done(command);
            forger->expect_more();
            expect_nothing_passed();
        }
    }
}

class AttackFaultOfRepair : public AttackFault {};

TEST_P(AttackFaultOfRepair, NothingForgedPasses) {
    must("ADD");
    const auto forger = forge();
    expect_dropped();
    for (const std::string command : {"repair", "upgrade --force", "CHECK"})
        for (const Fault &fault : faults_of(command, 3)) {
            SCOPED_TRACE(command + ", " + fault.text());
            (void)hit(command, fault);
            forger->expect_more();
            expect_done(command);
            expect_dropped();
            expect_nothing_passed();
        }
    fs::remove_all(node_.bpffs()); // a pod that lives on without its maps
    forger->expect_more();
    expect_done("repair");
    expect_dropped();
    expect_nothing_passed();
    expect_done("DEL");
    forger->expect_more();
    expect_nothing_passed();
}

class AttackAttach : public AttackFault {};

// Nobody checks what a pod that runs already sends by an interface of another main plugin, until Podlane is attached.
TEST_P(AttackAttach, NothingForgedPassesAfterIt) {
    node_.run("ip link set " + adopted_ + " up"); // as the main plugin made it
    const auto forger = forge();
    EXPECT_TRUE(wire_.until(&AttackAttach::is_forged, patience()));
    must("ADD");
    expect_dropped();
    (void)wire_.arrived();
    forger->expect_more();
    expect_nothing_passed();
}

// Nothing of a foreign host reaches an isolated pod, also if its ADD stops halfway.
class AttackFaultOfIsolated : public AttackFault {
  protected:
    static constexpr std::uint16_t kPort = 9;

    AttackFaultOfIsolated() {
        outside_->run("ip route add 198.18.9.0/24 via 203.0.113.2");
        outside_->run("ip -6 route add 2001:db8:9::/64 via 2001:db8:cafe::2");
    }
    // A datagram to every address that the pod may have.
    [[nodiscard]] static Repeat foreign_host(const net::Namespace &from, bool ipv4, std::atomic<int> &rounds) {
        auto socket = std::make_shared<Fd>(open_socket(from, Transport::udp, ipv4));
        return Repeat([socket, ipv4, &rounds] {
            for (int number = 2; number < 255; ++number)
                (void)send_datagram(
                    *socket, {ip((ipv4 ? "198.18.9." : "2001:db8:9::") + std::to_string(number)), kPort}, "let me in");
            ++rounds;
        });
    }
};

TEST_P(AttackFaultOfIsolated, NoForeignHostReachesIt) {
    const auto faults = faults_of("ADD", 8);
    must("DEL");
    for (const bool ipv4 : {true, false}) {
        const Fd receiver = open_socket(container_->ns(), Transport::udp, ipv4, {{}, kPort});
        std::atomic<int> rounds = 0;
        const Repeat sending = foreign_host(outside_->ns(), ipv4, rounds);
        for (const Fault &fault : faults) {
            SCOPED_TRACE("ADD, " + fault.text());
            (void)hit("ADD", fault);
            const int before = rounds;
            EXPECT_TRUE(wait_until([&] { return rounds > before + 1; }));
            EXPECT_EQ(recv(receiver.get(), nullptr, 0, MSG_DONTWAIT), -1);
            expect_done("DEL");
        }
    }
}

// Before a chained ADD, and after one that fails, the interface is as the main plugin made it.
INSTANTIATE_TEST_SUITE_P(Modes, AttackFaultOfAdd, testing::Values("main", "grouped", "after_ipam", "uplink"),
                         fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, AttackFaultOfDel, fault_modes(), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, AttackFaultOfRepair, fault_modes(), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, AttackAttach, testing::Values("after_main"), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, AttackFaultOfIsolated, testing::Values("grouped"), fault_mode);

} // namespace
} // namespace podlane::test
