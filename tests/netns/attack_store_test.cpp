// SPDX-License-Identifier: MIT
// State that a hostile neighbour, or a hostile pod, can make the programs store: entries of the maps of paths and
// requests, and storage of sockets. It is bounded, and others lose nothing by it.
#include "tests/netns/attacker.hpp"
#include "tests/netns/datagram.hpp"
#include "tests/netns/limits.hpp"
#include "tests/netns/sources.hpp"

#include <linux/sock_diag.h>
#include <sys/resource.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 53;

class NeighbourFlood : public testing::TestWithParam<bool> {
  protected:
    static constexpr std::uint32_t kPaths = 4096;

    [[nodiscard]] bool ipv4() const { return GetParam(); }
    // eth0 behind provider 0; net1 on the link of provider 1, its network's own uplink.
    std::shared_ptr<Container> add_pod() {
        auto pod = lab_.node().container();
        lab_.add(pod, "eth0", 0, {{"maxPaths", kPaths}});
        lab_.add(pod, "net1", 1,
                 {{"maxPaths", kPaths},
                  {"uplinks", nullptr},
                  {"uplink", "up1"},
                  {"gateway", {SourceLab::on_link(1, 1, true), SourceLab::on_link(1, 1, false)}}});
        return pod;
    }
    [[nodiscard]] ip_addr own(const Container &pod) const { return SourceLab::addr(pod, "net1", ipv4()); }
    [[nodiscard]] static std::size_t entries_to(const Paths &map, std::uint32_t ifindex) {
        const auto keys = require(map.keys());
        return static_cast<std::size_t>(
            std::ranges::count_if(keys, [&](const path_key &one) { return one.ifindex == ifindex; }));
    }
    // Datagrams and SYNs by the uplink from more ports and hosts than there is room for.
    void flood_by_the_uplink(const ip_addr &to) {
        const Wire wire(lab_.provider(1).ns(), "eth0");
        const Mac gateway = Wire(lab_.node().ns(), "up1").mac();
        for (std::uint32_t i = 0; i < 3 * kPaths; ++i) {
            const std::string host = std::to_string(i % 200 + 20);
            const Ends forged{ip(ipv4() ? "198.51.100." + host : "2001:db8:bad::" + host), to,
                              static_cast<std::uint16_t>(1024 + i), kPort};
            wire.send(frame(gateway, wire.mac(), udp(forged)));
            wire.send(frame(gateway, wire.mac(), tcp(forged, tcp_syn)));
        }
    }

    SourceLab lab_;
};

// A neighbour evicts the cached paths of others: connections go on, and unbound sockets reply from the address that was
// asked.
TEST_P(NeighbourFlood, CostsNoConnectionOfOthers) {
    const auto accomplice = add_pod();
    const auto pod = add_pod();
    const std::uint32_t veth = SourceLab::host_veth(*pod, "net1");
    const std::uint32_t flooded = SourceLab::host_veth(*accomplice, "net1");
    const EchoServer outside(lab_.client(1).ns(), ipv4(), kPort);
    const Endpoint server{ip(SourceLab::client_addr(1, ipv4())), kPort};
    std::vector<Fd> sockets;
    for (const Transport transport : {Transport::tcp, Transport::udp})
        sockets.push_back(connected(pod->ns(), transport, server, {own(*pod), 20000}));
    const Fd bound = open_socket(pod->ns(), Transport::udp, ipv4(), {own(*pod), 7000});
    const Fd unbound = open_socket(pod->ns(), Transport::udp, ipv4(), {{}, 7001});
    const auto question_to = [&](const Fd &socket, std::uint16_t port) {
        Fd client = connected(lab_.client(1).ns(), Transport::udp, {own(*pod), port}, {server.addr, 30000});
        EXPECT_EQ(send_text(client, "question"), 0);
        sockaddr_storage from{};
        socklen_t size = sizeof from;
        std::array<char, 64> text{};
        EXPECT_TRUE(wait_until([&] {
            return recvfrom(socket.get(), text.data(), text.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr *>(&from),
                            &size) > 0;
        }));
        return std::tuple(std::move(client), from, size);
    };
    const auto answers = [&](const Fd &socket, const auto &asked) {
        const auto &[client, to, size] = asked;
        EXPECT_EQ(sendto(socket.get(), "answer", 6, 0, reinterpret_cast<const sockaddr *>(&to), size), 6);
        return receive(client).text == "answer";
    };
    const auto asked_unbound = question_to(unbound, 7001);
    const auto asked = question_to(bound, 7000);
    const auto paths = [&](std::uint32_t ifindex) {
        return entries_to(require(open_paths(lab_.node().bpffs(), Access::read_only)), ifindex);
    };
    const auto kept = [&](std::uint32_t ifindex) {
        const auto all = require(require(open_kept_paths(lab_.node().bpffs(), Access::read_only)).find(ifindex));
        return std::ranges::count_if(all.value().paths, [](const kept_path &one) { return one.path.since_ns != 0; });
    };
    ASSERT_GT(paths(veth), 0U);
    const auto kept_before = kept(veth);
    ASSERT_GT(kept_before, 0);

    // The least recently used go first, but on each processor on its own: once may not do.
    for (int flood = 0; flood < 10 && (flood == 0 || paths(veth) != 0); ++flood)
        flood_by_the_uplink(own(*accomplice));
    EXPECT_GT(paths(flooded), kPaths / 2) << "the flood has filled it";
    EXPECT_LE(paths(flooded) + paths(veth), kPaths);
    EXPECT_EQ(paths(veth), 0U) << "evicted";
    EXPECT_GT(kept(flooded), KEPT_PATHS / 2) << "the flood has filled its own";
    EXPECT_EQ(kept(veth), kept_before) << "nobody evicts them";

    for (const Fd &socket : sockets) {
        EXPECT_EQ(send_text(socket, "hello"), 0);
        EXPECT_EQ(receive(socket).text, "hello");
    }
    EXPECT_TRUE(answers(bound, asked));
    EXPECT_TRUE(answers(unbound, asked_unbound));
}

INSTANTIATE_TEST_SUITE_P(All, NeighbourFlood, testing::Bool(),
                         [](const auto &info) { return info.param ? "V4" : "V6"; });

// The bytes that the kernel charges to a socket for the storage that others keep with it.
std::uint32_t stored_with(const Fd &socket) {
    std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
    socklen_t size = sizeof memory;
    EXPECT_EQ(getsockopt(socket.get(), SOL_SOCKET, SO_MEMINFO, memory.data(), &size), 0);
    return memory[SK_MEMINFO_OPTMEM];
}
constexpr std::uint32_t kRoom = 512; // for one entry

class SocketFlood : public LimitTest {};

// A socket has room for one entry, whatever is sent; a pod's connections take nothing from those of another.
TEST_F(SocketFlood, StoresOneEntryWithEachSocket) {
    constexpr std::size_t kMany = 400;
    const Pod hostile = lab_.add_pod(limits(0, kRate));
    const Pod victim = lab_.add_pod(limits(kRate, kRate));
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    const EchoServer server(victim.ns(), true, 7);
    const Pod free = lab_.add_pod();
    const EchoServer other(free.ns(), true, 7);
    const Fd own = connected(victim.ns(), Transport::tcp, {free.v4, 7});
    std::vector<Fd> all;
    as_hostile(hostile.ns(), Privilege::none, [&] {
        for (std::size_t i = 0; i < kMany; ++i) {
            all.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            ASSERT_EQ(connect_to(all.back(), {victim.v4, 7}), 0);
        }
    });
    for (int round = 0; round < 3; ++round)
        for (const Fd &socket : all)
            EXPECT_EQ(send_text(socket, "x"), 0);
    for (const Fd &socket : all) {
        EXPECT_GT(stored_with(socket), 0U);
        EXPECT_LE(stored_with(socket), kRoom);
    }
    EXPECT_EQ(transfer(own, 1U << 20U), 0);
    EXPECT_NEAR(pacing_rate_of(own), kRate / 8, kRate / 16) << "it is paced as before";
}

// The pod's own setting, or what else it keeps with its sockets, leaves no room: its senders do not hear of
// the limit, which holds all the same.
TEST_F(SocketFlood, WithoutRoomTheLimitHolds) {
    const Pod hostile = lab_.add_pod(limits(0, kRate));
    const Pod neighbour = lab_.add_pod(limits(0, kRate));
    const Pod free = lab_.add_pod();
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    if (run(hostile.ns(), words("sysctl -qw net.core.optmem_max=1")).rc != 0)
        GTEST_SKIP() << "the setting is of the whole machine here";
    const EchoServer server(free.ns(), true, 8);
    const Fd socket = connected(hostile.ns(), Transport::tcp, {free.v4, 8});
    ASSERT_EQ(stored_with(socket), 0U);
    EXPECT_LT(goodput(hostile.ns(), free.v4, free.ns(), 8), 1.1 * static_cast<double>(kRate));
    EXPECT_GT(lab_.count(hostile, REASON_DROP_EGRESS_LIMIT), 0U);
    EXPECT_EQ(pacing_rate_of(socket), ~0U);
    expect_rate(goodput(neighbour.ns(), free.v4, free.ns(), 8));
}

// More sockets than any map that pods share has room for.
class UdpSocketFlood : public testing::TestWithParam<bool> {
  protected:
    static constexpr std::uint32_t kPaths = 512;
    [[nodiscard]] static std::size_t many() { return slow() ? 2 * kPaths : 10 * kPaths; }

    void SetUp() override {
        rlimit files{};
        ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
        files.rlim_cur = std::max(files.rlim_cur, rlim_t{2 * many()});
        files.rlim_max = std::max(files.rlim_max, files.rlim_cur);
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
        for (auto *pod : {&hostile_, &victim_}) {
            *pod = lab_.node().container();
            for (const int number : {0, 1})
                lab_.add(*pod, name_of(number), number, {{"maxPaths", kPaths}, {"firstPacket", "host"}});
        }
        for (const int number : {0, 1})
            addresses_[number] = SourceLab::addr(*victim_, name_of(number), ipv4());
    }
    // Of the interface behind this provider.
    static std::string name_of(int provider) { return provider == 0 ? "eth0" : "net1"; }
    [[nodiscard]] bool ipv4() const { return GetParam(); }
    [[nodiscard]] Endpoint resolver(std::uint16_t port = kPort) const {
        return {ip(SourceLab::client_addr(0, ipv4())), port};
    }
    // One after the other in the place of the oldest, unbound. Nobody answers what each sends.
    void open_sockets(std::atomic<std::size_t> &opened, const std::atomic<bool> &stop) {
        sockets_.resize(many());
        as_hostile(hostile_->ns(), Privilege::none, [&] {
            while (!stop) {
                Fd &one = sockets_.at(opened % sockets_.size());
                one = Fd(::socket(ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
                opened += send_datagram(one, resolver(9), "x") ? 1 : 0;
            }
        });
    }
    // The victim's server, of which the socket is bound to no address, and a query of the victim's own.
    void expect_served(std::uint16_t port) {
        for (const int number : {0, 1})
            EXPECT_EQ(ask(lab_.client(number).ns(), Transport::udp, {addresses_.at(number), port}), 0)
                << name_of(number);
        const Fd socket = open_socket(victim_->ns(), Transport::udp, ipv4());
        EXPECT_TRUE(send_datagram(socket, resolver(), "query"));
        const Datagram answer = awaited_datagram(socket);
        EXPECT_EQ(answer.text, "query");
        EXPECT_EQ(to_string(answer.from), to_string(resolver()));
    }
    // Of the pod, those that the kernel has not freed: it frees the storage with the socket.
    static std::size_t count_sockets(const Container &pod) {
        std::istringstream text(pod.run("cat /proc/net/sockstat"));
        std::string word;
        std::size_t used = 0;
        text >> word >> word >> used; // sockets: used 3
        return used;
    }

    SourceLab lab_;
    std::shared_ptr<Container> hostile_, victim_;
    std::map<int, ip_addr> addresses_; // of the victim
    std::vector<Fd> sockets_;
};

TEST_P(UdpSocketFlood, CostsOthersNothingAndEndsWithItsSockets) {
    const EchoServer outside(lab_.client(0).ns(), ipv4(), kPort);
    const EchoServer server(victim_->ns(), ipv4(), kPort);
    const Fd own = connected(victim_->ns(), Transport::tcp, resolver());
    const Fd called = connected(lab_.client(1).ns(), Transport::tcp, {addresses_.at(1), kPort});
    const std::size_t before = count_sockets(*hostile_);
    std::atomic<std::size_t> opened = 0;
    std::atomic<bool> stop = false;
    std::thread attack([&] { open_sockets(opened, stop); });
    const auto expect_all = [&](std::uint16_t port) {
        expect_served(port);
        for (const Fd *socket : {&own, &called})
            EXPECT_EQ(transfer(*socket, 1 << 18), 0);
    };
    EXPECT_TRUE(wait_until([&] {
        expect_all(kPort);
        return HasFailure() || opened > 2 * many();
    })) << opened;
    stop = true;
    attack.join();
    EXPECT_TRUE(wait_until([&] { // the only datagram of one may have been dropped
        for (const Fd &socket : sockets_)
            (void)send_datagram(socket, resolver(9), "x");
        return std::ranges::all_of(sockets_, [](const Fd &socket) { return stored_with(socket) > 0; });
    }));
    for (const Fd &socket : sockets_)
        ASSERT_LE(stored_with(socket), kRoom);
    {
        const EchoServer late(victim_->ns(), ipv4(), kPort + 1);
        expect_all(kPort + 1);
    }
    EXPECT_GE(count_sockets(*hostile_), many());
    sockets_.clear();
    EXPECT_TRUE(wait_until([&] { return count_sockets(*hostile_) <= before; })) << count_sockets(*hostile_);
}

INSTANTIATE_TEST_SUITE_P(All, UdpSocketFlood, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
