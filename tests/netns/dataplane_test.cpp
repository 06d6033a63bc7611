// SPDX-License-Identifier: MIT
// Two pods of one node, by both kinds of hook and both families: what takes the fast path, and what does not.
#include "tests/netns/lab.hpp"

#include "loader/net/link.hpp"
#include "loader/net/message.hpp"

#include <netinet/tcp.h>
#include <netinet/udp.h>

namespace podlane::test {
namespace {

class Dataplane : public PairTest {
  protected:
    // Packets that the host stack forwarded, by its own count.
    void count_forwarded() { lab_->node().run(iptables() + " -A FORWARD -j ACCEPT"); }
    std::uint64_t forwarded() {
        std::istringstream rules(lab_->node().run(iptables() + " -L FORWARD -vxn"));
        std::string line;
        for (int i = 0; i < 3; ++i)
            std::getline(rules, line);
        return std::stoull(line);
    }
    // As `ip link set NAME gso_ipv4_max_size BYTES` does (Linux 6.3).
    static void let_exceed_64k(const net::Namespace &where, const std::string &name) {
        constexpr std::uint16_t kGsoIpv4MaxSize = 63; // IFLA_GSO_IPV4_MAX_SIZE
        constexpr std::uint32_t kBytes = 200'000;
        net::Netlink netlink = require(net::Netlink::open_in(where));
        ifinfomsg header{};
        header.ifi_index = static_cast<int>(require(net::find_link(netlink, name))->ifindex);
        net::Message message(RTM_SETLINK, net::kChange, header);
        message.put(IFLA_GSO_MAX_SIZE, kBytes).put(kGsoIpv4MaxSize, kBytes);
        ASSERT_TRUE(net::request(netlink, std::move(message)).ok());
    }
};

TEST_P(Dataplane, PodToPodPassesByTheHostStack) {
    start();
    count_forwarded();
    const auto sent = lab_->count(a_, REASON_SENT_DIRECT);
    const auto received = lab_->count(b_, REASON_RECEIVED_DIRECT);

    EXPECT_EQ(ask(a_.ns(), Transport::tcp, server()), 0);
    EXPECT_EQ(ask(a_.ns(), Transport::udp, server()), 0);

    // SYN, ACK, data, FIN at least; a datagram.
    EXPECT_GE(lab_->count(a_, REASON_SENT_DIRECT) - sent, 5U);
    EXPECT_GE(lab_->count(b_, REASON_RECEIVED_DIRECT) - received, 5U);
    EXPECT_EQ(lab_->count(b_, REASON_SENT_DIRECT), lab_->count(a_, REASON_RECEIVED_DIRECT));
    EXPECT_EQ(forwarded(), 0U);

    EXPECT_TRUE(ping(a_.ns(), addr(b_)));
    EXPECT_GT(forwarded(), 0U) << "conntrack cannot be queried about ICMP";
}

TEST_P(Dataplane, FastPathOffAtEitherEndGoesThroughTheHostStack) {
    const Pod a = add_pod({{"fastPath", "off"}});
    const Pod b = add_pod();
    const Pod c = add_pod({{"fastPath", "off"}});
    count_forwarded();
    const std::array<std::pair<const Pod *, const Pod *>, 3> all{{{&a, &b}, {&b, &a}, {&a, &c}}};
    for (const auto &[from, to] : all) {
        const EchoServer server(to->ns(), ipv4(), 7);
        const auto before = forwarded();
        EXPECT_EQ(ask(from->ns(), Transport::tcp, {addr(*to), 7}), 0);
        EXPECT_EQ(ask(from->ns(), Transport::udp, {addr(*to), 7}), 0);
        EXPECT_GT(forwarded(), before);
    }
    for (const Pod *pod : {&a, &b, &c})
        EXPECT_EQ(lab_->count(*pod, REASON_SENT_DIRECT), 0U);
    EXPECT_GT(lab_->count(a, REASON_HOST_FAST_PATH_OFF), 0U);
}

TEST_P(Dataplane, BigTransferStaysWholeAndSegmentedLate) {
    start();
    const Fd socket = call();

    EXPECT_EQ(transfer(socket, big()), 0);

    const count sent = lab_->counted(a_, REASON_SENT_DIRECT);
    EXPECT_GE(sent.bytes, big());
    EXPECT_GT(sent.bytes / sent.packets, 4 * a_.mtu) << "packets were cut to the MTU on the way";
}

// Their header has a length of 0.
TEST_P(Dataplane, PacketsOfMoreThan64KiBTakeTheFastPath) {
    if (!ipv4())
        GTEST_SKIP() << "the host stack finds the extension header that IPv6 has then too big for the MTU";
    if (read_file("/sys/kernel/btf/vmlinux").find("gso_ipv4_max_size") == std::string::npos)
        GTEST_SKIP() << "this kernel has no IPv4 packets of more than 64 KiB";
    start();
    for (const Pod *pod : {&a_, &b_}) {
        let_exceed_64k(pod->ns(), "eth0");
        let_exceed_64k(lab_->node().ns(), pod->host_ifname);
    }
    const Fd socket = call();
    EXPECT_EQ(transfer(socket, big()), 0); // a new connection's window is smaller than such a packet
    const count before = lab_->counted(a_, REASON_SENT_DIRECT);

    EXPECT_EQ(transfer(socket, 4 * big()), 0);

    const count sent = lab_->counted(a_, REASON_SENT_DIRECT);
    EXPECT_GE(sent.bytes - before.bytes, 4 * big());
    EXPECT_GT((sent.bytes - before.bytes) / (sent.packets - before.packets), 0x10000U);
}

TEST_P(Dataplane, BigTransferToASmallerMtuStaysWhole) {
    start({{"mtu", 1500}}, {{"mtu", 1300}});
    const Fd socket = call();
    EXPECT_EQ(transfer(socket, big() / 4), 0);
}

TEST_P(Dataplane, SegmentedDatagramsArriveOneByOne) {
    constexpr int kSegment = 1000;
    constexpr std::size_t kSegments = 20;
    start();
    const Fd socket = call(Transport::udp);
    ASSERT_EQ(set_option(socket, IPPROTO_UDP, UDP_SEGMENT, kSegment), 0);

    ASSERT_EQ(send_text(socket, std::string(kSegment * kSegments, 's')), 0);

    for (std::size_t i = 0; i < kSegments; ++i)
        ASSERT_EQ(receive(socket).text.size(), std::size_t{kSegment}) << "segment " << i;
    EXPECT_EQ(lab_->count(a_, REASON_SENT_DIRECT), 1U) << "one packet for all segments";
}

TEST_P(Dataplane, DatagramBeyondTheReceiversMtuIsAnErrorAtTheSender) {
    start({{"mtu", 1500}}, {{"mtu", 1300}});
    const Fd socket = call(Transport::udp);
    ASSERT_EQ(set_option(socket, ipv4() ? IPPROTO_IP : IPPROTO_IPV6, ipv4() ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
                         IP_PMTUDISC_DO),
              0);
    ASSERT_EQ(send_text(socket, std::string(1400, 'x')), 0);
    EXPECT_EQ(receive(socket).error, EMSGSIZE);
    EXPECT_EQ(lab_->count(a_, REASON_HOST_MTU), 1U);
}

TEST_P(Dataplane, FragmentsArriveAsOneDatagram) {
    start();
    EXPECT_EQ(ask(a_.ns(), Transport::udp, server(), std::string(6000, 'f')), 0);
    EXPECT_GE(lab_->count(a_, REASON_HOST_FRAGMENT), 4U);
}

TEST_P(Dataplane, PortUnreachableOfADirectFlowComesBack) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const Fd socket = connected(a.ns(), Transport::udp, {addr(b), 9});
    ASSERT_EQ(send_text(socket, "anyone?"), 0);
    EXPECT_EQ(receive(socket).error, ECONNREFUSED);
}

TEST_P(Dataplane, TransferOutlivesALossOfAllFlows) {
    start();
    const Fd socket = call();
    ASSERT_GT(lab_->path_count(), 0U);

    EXPECT_EQ(transfer(socket, big(), [&] { lab_->erase_paths(); }), 0);

    EXPECT_EQ(lab_->count(b_, REASON_HOST_UNCONFIRMED), 0U) << "a lost entry costs a query";
}

TEST_P(Dataplane, HostReachesPodsAndPodsReachTheHost) {
    const Pod a = add_pod();
    const EchoServer in_pod(a.ns(), ipv4(), 7);
    const EchoServer on_host(lab_->node().ns(), ipv4(), 9);
    for (const Transport transport : {Transport::tcp, Transport::udp}) {
        EXPECT_EQ(ask(lab_->node().ns(), transport, {addr(a), 7}), 0);
        EXPECT_EQ(ask(a.ns(), transport, {node_addr(), 9}), 0);
    }
    EXPECT_TRUE(ping(a.ns(), node_addr()));
}

INSTANTIATE_TEST_SUITE_P(All, Dataplane, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
