// SPDX-License-Identifier: MIT
// MTUs that a later plugin, or a process in the container, changes: CHECK follows them, and a LAN gets nothing that is
// larger than its link.
#include "maps/abi/config.h"
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

class MtuOnLan : public Lan {
  protected:
    // Of the host-side veth.
    [[nodiscard]] int host_mtu(const Container &pod) {
        const std::uint32_t veth = SourceLab::host_veth(pod, "net1");
        for (const Json &one : Json::parse(node().run("ip -j link show")))
            if (one.at("ifindex") == veth)
                return one.at("mtu");
        return 0;
    }
    void expect_checked(const std::shared_ptr<Container> &pod) {
        for (int i = 0; i < 2; ++i)
            for (const char *ifname : {"eth0", "net1"})
                EXPECT_THAT(lab_.check(pod, ifname), succeeds()) << ifname;
    }
};

// A raw socket says itself into which segments its packet is to be cut.
TEST_P(MtuOnLan, NoSegmentsThatAreLargerThanTheLinkLeave) {
    const auto pod = add_pod();
    const Wire sender(pod->ns(), "net1"), lan(host_->ns(), "eth0"), elsewhere(lab_.provider(0).ns(), "eth0");
    ASSERT_TRUE(ping(pod->ns(), to_string(host_addr()), 2)) << "the neighbour is known";
    const std::uint32_t veth = SourceLab::host_veth(*pod, "net1");
    const auto send = [&](std::size_t bytes) {
        Packet packet = tcp({addr(*pod), host_addr(), 40000, kPort}, tcp_ack, 60000);
        const Offload left = leave_segments(packet, bytes);
        return sender.send(frame(PODLANE_HOST_MAC, sender.mac(), packet), left);
    };
    const std::uint64_t before = lab_.count(veth, REASON_SENT_WAY);
    const std::size_t headers = 20U + (GetParam() ? 20U : 40U);
    for (const std::size_t bytes : {std::size_t{30000}, 1500 - headers + 1})
        ASSERT_TRUE(send(bytes));
    EXPECT_TRUE(wait_until([&] { return lab_.count(veth, REASON_DROP_MALFORMED) == 2; }));
    ASSERT_TRUE(send(1500 - headers));
    EXPECT_TRUE(wait_until([&] { return lab_.count(veth, REASON_SENT_WAY) == before + 1; }));
    const auto caught =
        lan.caught_until([&](const Bytes &one) { return is_from(one, addr(*pod)) && one.size() > 1000; }, patience());
    EXPECT_TRUE(caught) << "what fits arrives";
    EXPECT_EQ(frames_from(elsewhere, addr(*pod)), 0U);
}

// IPv6 packets of more than 64 KiB have a header that their segments do not have. Linux before 5.19 has none of them.
TEST_P(MtuOnLan, LargePacketsOfTheKernelArrive) {
    const auto pod = add_pod();
    (void)run(pod->ns(), {"ip", "link", "set", "net1", "gso_max_size", "131072"});
    const EchoServer server(host_->ns(), GetParam(), kPort);
    const Fd client = connected(pod->ns(), Transport::tcp, {host_addr(), kPort}, {addr(*pod), 0});
    EXPECT_EQ(transfer(client, std::size_t{64} << 20U), 0);
    EXPECT_EQ(lab_.count(SourceLab::host_veth(*pod, "net1"), REASON_DROP_MALFORMED), 0U);
}

TEST_P(MtuOnLan, APodCannotRaiseItsMtuAboveTheUplinks) {
    const auto pod = add_pod();
    ASSERT_TRUE(ping(pod->ns(), to_string(host_addr()), 2)) << "the neighbour is known";
    (void)pod->run("ip link set net1 mtu 9000");
    expect_checked(pod);
    EXPECT_EQ(host_mtu(*pod), 1500);
    const Wire lan(host_->ns(), "eth0");
    const Fd socket = open_socket(pod->ns(), Transport::udp, GetParam(), {addr(*pod), 0});
    EXPECT_TRUE(send_datagram(socket, {host_addr(), kPort}, std::string(6000, 'x')));
    EXPECT_TRUE(send_datagram(socket, {host_addr(), kPort}, "last"));
    const auto before = lan.until([&](const Bytes &one) { return contains(one, {'l', 'a', 's', 't'}); }, patience());
    ASSERT_TRUE(before);
    for (const Bytes &one : *before)
        EXPECT_FALSE(contains(one, Bytes(100, 'x'))) << one.size();
    (void)pod->run("ip link set net1 mtu 1300");
    expect_checked(pod);
    EXPECT_EQ(host_mtu(*pod), 1300);
    (void)pod->run("ip link set net1 mtu 1500");
    expect_checked(pod);
    EXPECT_EQ(host_mtu(*pod), 1500);
}

// Each interface of the container has entries for the addresses of the others.
TEST_P(MtuOnLan, TunedInterfacesPassCheck) {
    const auto pod = node().container();
    const Json tuning = {{"type", "tuning"}, {"mtu", 1300}};
    lab_.add(pod, {"eth0", "net0", {lab_.network(0), tuning}});
    Attach on_lan = lan();
    on_lan.plugins.push_back(tuning);
    lab_.add(pod, on_lan);
    expect_checked(pod);
    const Tables tables = require(Tables::open(node().bpffs()));
    for (const auto &[key, route] : require(tables.source_routes.entries()))
        EXPECT_EQ(route.mtu, 1300U) << key.ifindex << " " << to_string(key.source);
    for (const auto &[key, route] : require(tables.source_slots.entries()))
        EXPECT_EQ(route.mtu, 1300U) << key.ifindex << " " << key.number;
}

INSTANTIATE_TEST_SUITE_P(Family, MtuOnLan, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
