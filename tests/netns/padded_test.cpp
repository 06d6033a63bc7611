// SPDX-License-Identifier: MIT
// Short packets from a real link, whose frames Ethernet pads to 60 bytes (a veth pads nothing), and frames with a
// priority tag: they take the path of all others.
#include "maps/abi/config.h"
#include "tests/harness/frame.hpp"
#include "tests/netns/lab.hpp"
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

using frames::Tag;
using frames::tagged;

Bytes padded(Bytes frame) {
    frame.resize(std::max<std::size_t>(frame.size(), 60), 0xa5);
    return frame;
}

class PaddedOnLan : public Lan {
  protected:
    // From the switch's port, as if the host had sent it: a bridge with br_netfilter takes padding off.
    void send(const Packet &packet) { send(padded(from_host(packet))); }
    void send(const Bytes &bytes) { Wire(switch_->ns(), "port0").send(bytes); }
    [[nodiscard]] Bytes from_host(const Packet &packet) {
        return frame(Wire(node().ns(), "lan0").mac(), Wire(host_->ns(), "eth0").mac(), packet);
    }
};

// No rule of the node forwards them, and the reply leaves by the LAN.
TEST_P(PaddedOnLan, ShortPacketsReachThePodAndAreReplied) {
    node().run(GetParam() ? "iptables -P FORWARD DROP" : "ip6tables -P FORWARD DROP");
    const auto pod = add_pod();
    const EchoServer server(pod->ns(), GetParam(), kPort);
    const Wire elsewhere(lab_.provider(0).ns(), "eth0");
    const Ends ends{host_addr(), addr(*pod), 40000, kPort};
    const Fd client = open_socket(host_->ns(), Transport::udp, GetParam(), {host_addr(), 40000});
    ASSERT_EQ(ask(host_->ns(), Transport::udp, {addr(*pod), kPort}), 0) << "the pod knows its neighbour";
    send(udp(ends, 4));
    EXPECT_EQ(receive(client, 4, patience()).text.size(), 4U);
    EXPECT_EQ(frames_from(elsewhere, addr(*pod)), 0U);
}

// All fragments take one path: the last one is often short.
TEST_P(PaddedOnLan, AShortLastFragmentIsNotLost) {
    if (!GetParam())
        GTEST_SKIP() << "the headers of a fragment of IPv6 have 62 bytes with Ethernet's: nothing pads it";
    const auto pod = add_pod();
    const EchoServer server(pod->ns(), true, kPort);
    const Fd client = open_socket(host_->ns(), Transport::udp, true, {host_addr(), 40000});
    ASSERT_EQ(ask(host_->ns(), Transport::udp, {addr(*pod), kPort}), 0) << "the pod knows its neighbour";
    constexpr std::size_t kFirst = 1480, kBytes = kFirst; // 8 bytes of the data are in the last one
    Packet first = udp({host_addr(), addr(*pod), 40000, kPort}, kBytes);
    Packet last = first;
    last.payload.erase(last.payload.begin(), last.payload.begin() + kFirst);
    last.fragment = kFirst / 8;
    first.payload.resize(kFirst);
    first.fragment = 0x2000;
    send(first);
    send(last);
    EXPECT_EQ(receive(client, kBytes, patience()).text.size(), kBytes);
}

// A reverse path filter of the node would drop them, and their replies would leave by the default route.
TEST_P(PaddedOnLan, FramesWithAPriorityTagReachThePodAndAreReplied) {
    const auto pod = add_pod();
    const EchoServer server(pod->ns(), GetParam(), kPort);
    const Wire elsewhere(lab_.provider(0).ns(), "eth0");
    ASSERT_EQ(ask(host_->ns(), Transport::udp, {addr(*pod), kPort}), 0) << "the pod knows its neighbour";
    std::uint16_t port = 40000;
    for (const std::size_t data : {4U, 400U}) {
        const Fd client = open_socket(host_->ns(), Transport::udp, GetParam(), {host_addr(), ++port});
        send(tagged(padded(from_host(udp({host_addr(), addr(*pod), port, kPort}, data))), {Tag{}}));
        EXPECT_EQ(receive(client, data, patience()).text.size(), data);
    }
    EXPECT_EQ(frames_from(elsewhere, addr(*pod)), 0U);
}

// A pod that is a machine has a card that pads and tags. Nobody else gets what it sends, nor what follows.
TEST_P(PaddedOnLan, WhatThePodPadsAndTagsLeavesByTheLan) {
    const auto pod = add_pod();
    const EchoServer server(far_->ns(), GetParam(), kPort);
    const Wire sender(pod->ns(), "net1"), elsewhere(lab_.provider(0).ns(), "eth0");
    const std::uint32_t veth = SourceLab::host_veth(*pod, "net1");
    ASSERT_EQ(ask(pod->ns(), Transport::udp, {far_addr(), kPort}, "hello", {addr(*pod), 0}), 0)
        << "the router is known";
    std::uint16_t port = 40000;
    const auto sent = [&](std::size_t padding, const std::vector<Tag> &tags) {
        Bytes bytes = frame(PODLANE_HOST_MAC, sender.mac(), udp({addr(*pod), far_addr(), ++port, kPort}, 4));
        bytes.resize(bytes.size() + padding, 0xa5);
        return tagged(bytes, tags);
    };
    for (const auto &[padding, tags] :
         std::vector<std::pair<std::size_t, std::vector<Tag>>>{{1, {}}, {20, {}}, {0, {Tag{}}}, {14, {Tag{}}}}) {
        SCOPED_TRACE(std::to_string(padding) + " bytes and " + std::to_string(tags.size()) + " tags");
        const Bytes bytes = sent(padding, tags);
        const Fd socket = open_socket(pod->ns(), Transport::udp, GetParam(), {addr(*pod), port});
        sender.send(bytes);
        EXPECT_EQ(receive(socket, 4, patience()).text.size(), 4U);
        EXPECT_TRUE(send_datagram(socket, {far_addr(), kPort}, "after"));
        EXPECT_EQ(receive(socket, 5, patience()).text, "after");
    }
    // The host stack would strip both tags.
    sender.send(sent(0, {Tag{}, Tag{}}));
    EXPECT_TRUE(wait_until([&] { return lab_.count(veth, REASON_DROP_VLAN) == 1; }));
    if (!GetParam()) { // the kernel keeps what it takes for the transport header, in the padding behind the options
        Bytes bytes = frame(PODLANE_HOST_MAC, sender.mac(), udp({addr(*pod), far_addr(), ++port, kPort}, 900));
        bytes.at(18) = 0x02; // a payload of 600 bytes
        bytes.at(19) = 0x58;
        bytes.at(20) = IPPROTO_DSTOPTS;
        bytes.at(54) = IPPROTO_UDP;
        bytes.at(55) = 100; // of 808 bytes
        sender.send(bytes);
        EXPECT_TRUE(wait_until([&] { return lab_.count(veth, REASON_DROP_MALFORMED) == 1; }));
    }
    EXPECT_EQ(frames_from(elsewhere, addr(*pod)), 0U);
}

INSTANTIATE_TEST_SUITE_P(Families, PaddedOnLan, testing::Bool(),
                         [](const auto &info) { return info.param ? "V4" : "V6"; });

class PaddedByUplink : public LabTest {
  protected:
    void prepare() override {
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        pod_ = add_pod({{"uplinks", {"up*"}}, {"firstPacket", "host"}});
        peer_ = open_socket(lab_->outside(), Transport::udp, ipv4(), {outside_addr(), kPort});
        socket_ = test::connected(pod_.ns(), Transport::udp, {outside_addr(), kPort}, {addr(pod_), kPort});
        ASSERT_TRUE(wait_until([&] {
            const std::uint64_t before = delivered();
            return send_text(socket_, "x") == 0 && send_datagram(peer_, {addr(pod_), kPort}, "hello") &&
                   receive(socket_, 5, patience()).text == "hello" && delivered() > before;
        }));
    }
    [[nodiscard]] std::uint64_t delivered() const { return lab_->count(pod_, REASON_RECEIVED_UPLINK); }
    Pod pod_;
    Fd peer_, socket_;
};

TEST_P(PaddedByUplink, ShortPacketsOfAConnectionTakeTheFastPath) {
    const Wire wire(lab_->outside(), "eth0");
    const Mac uplink = Wire(lab_->node().ns(), "up0").mac();
    const std::uint64_t before = delivered();
    constexpr std::uint64_t kPackets = 10;
    for (std::uint64_t i = 0; i < kPackets; ++i) {
        const Packet packet = udp({outside_addr(), addr(pod_), kPort, kPort}, 1 + i);
        wire.send(padded(frame(uplink, wire.mac(), packet)));
        EXPECT_EQ(receive(socket_, 1 + i, patience()).text.size(), 1 + i);
    }
    EXPECT_GE(delivered(), before + kPackets - 1) << "one may query conntrack too late";
}

// As on the slow path: the host stack discards it.
TEST_P(PaddedByUplink, AHeaderWithAWrongChecksumReachesNobody) {
    if (!ipv4())
        GTEST_SKIP() << "the header of IPv6 has none";
    const Wire wire(lab_->outside(), "eth0"), receiver(pod_.ns(), "eth0");
    const Mac uplink = Wire(lab_->node().ns(), "up0").mac();
    Packet packet = udp({outside_addr(), addr(pod_), kPort, kPort}, 100);
    packet.header_checksum = 1;
    wire.send(frame(uplink, wire.mac(), packet));
    ASSERT_TRUE(send_datagram(peer_, {addr(pod_), kPort}, "behind it"));
    EXPECT_EQ(receive(socket_, 9, patience()).text, "behind it");
    EXPECT_EQ(frames_from(receiver, outside_addr()), 1U);
}

INSTANTIATE_TEST_SUITE_P(All, PaddedByUplink, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
