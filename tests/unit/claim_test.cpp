// SPDX-License-Identifier: MIT
// Which frames of others on the link claim an address that is probed.
#include "loader/net/claim.hpp"
#include "tests/harness/frame.hpp"
#include "tests/harness/test.hpp"

namespace podlane::net {
namespace {

using frames::bytes, frames::Bytes, frames::Ethernet, frames::ip, frames::Ipv6, frames::mac;

const Mac kOther = mac("02:00:00:00:00:02");
const Mac kOwn = mac("02:00:00:00:00:01");
const Mac kEverybody = mac("ff:ff:ff:ff:ff:ff");
const ip_addr kProbed4 = ip("192.0.2.200");
const ip_addr kProbed6 = ip("2001:db8::200");
const ip_addr kAllNodes = ip("ff02::1");

struct Arp {
    std::uint16_t hardware = 1;
    std::uint16_t protocol = 0x0800;
    std::uint16_t sizes = 0x0604;
    std::uint16_t operation = 2;
    Mac sender_mac = kOther;
    ip_addr sender = kProbed4;
    ip_addr target = ip("192.0.2.9");
};
Bytes frame_of(const Arp &arp) {
    Bytes body;
    for (const std::uint16_t field : {arp.hardware, arp.protocol, arp.sizes, arp.operation})
        frames::put16(body, field);
    frames::append(body, arp.sender_mac);
    frames::append(body, arp.sender);
    frames::append(body, kOwn);
    frames::append(body, arp.target);
    return Ethernet{kEverybody, kOther, 0x0806} / body;
}

struct Advert {
    ip_addr source = kProbed6;
    ip_addr destination = kAllNodes;
    ip_addr target = kProbed6;
    std::uint8_t hop_limit = 255;
    std::uint8_t type = 136;
    std::uint8_t code = 0;
    std::uint8_t flags = 0x20;
    Bytes options{2, 1, 2, 0, 0, 0, 0, 2};
    std::uint16_t checksum_error = 0;
    std::uint8_t version = 6;
    std::uint8_t next = IPPROTO_ICMPV6;
    int length_error = 0;
    Mac from = kOther;
};
// The checksum by the arithmetic of the frame builder.
Bytes frame_of(const Advert &is) {
    Bytes message{is.type, is.code, 0, 0, is.flags, 0, 0, 0};
    frames::append(message, is.target);
    frames::append(message, is.options);
    Bytes pseudo;
    frames::append(pseudo, is.source);
    frames::append(pseudo, is.destination);
    frames::put32(pseudo, static_cast<std::uint32_t>(message.size()));
    frames::put32(pseudo, IPPROTO_ICMPV6);
    frames::append(pseudo, message);
    const auto sum = static_cast<std::uint16_t>(frames::checksum(pseudo) ^ is.checksum_error);
    message[2] = static_cast<std::uint8_t>(sum >> 8U);
    message[3] = static_cast<std::uint8_t>(sum);
    return Ethernet{mac("33:33:00:00:00:01"), is.from} /
           Ipv6{.source = is.source,
                .destination = is.destination,
                .hop_limit = is.hop_limit,
                .next = is.next,
                .length_error = is.length_error,
                .version = is.version} /
           message;
}

// Its first `bytes` bytes of ICMPv6 as a message whose length and checksum are right.
Bytes with_message(Bytes frame, std::size_t bytes) {
    frame[18] = static_cast<std::uint8_t>(bytes >> 8U);
    frame[19] = static_cast<std::uint8_t>(bytes);
    frame[56] = frame[57] = 0;
    const std::span<const std::uint8_t> message = std::span(frame).subspan(54, bytes);
    const std::uint16_t sum = icmp6_checksum(kProbed6, kAllNodes, message);
    frame[56] = static_cast<std::uint8_t>(sum >> 8U);
    frame[57] = static_cast<std::uint8_t>(sum);
    EXPECT_EQ(icmp6_checksum(kProbed6, kAllNodes, message), 0);
    return frame;
}

// Of whom, "" if of nobody: of the addresses that are probed, to a station with kOwn.
std::string claimed(const Bytes &frame) {
    const auto claim = foreign_claim(frame, kOwn, std::array{kProbed4, kProbed6});
    return claim ? to_string(claim->addr) + " " + to_string(claim->mac) : "";
}
const std::string kArpClaim = "192.0.2.200 02:00:00:00:00:02";
const std::string kNdClaim = "2001:db8::200 02:00:00:00:00:02";

TEST(Claim, IsTheSenderOfArp) {
    EXPECT_EQ(claimed(frame_of(Arp{})), kArpClaim);
    EXPECT_EQ(claimed(frame_of(Arp{.operation = 1})), kArpClaim);
    EXPECT_EQ(claimed(frame_of(Arp{.operation = 1, .target = kProbed4})), kArpClaim) << "an announcement";
    EXPECT_EQ(claimed(frame_of(Arp{.hardware = 6})), kArpClaim) << "IEEE 802, which the kernel takes as well";
    EXPECT_EQ(claimed(frame_of(Arp{.sender = ip("192.0.2.9"), .target = kProbed4})), "") << "the target has nothing";
    EXPECT_EQ(claimed(frame_of(Arp{.sender = ip("0.0.0.0"), .target = kProbed4})), "");
}

TEST(Claim, IsTheTargetOfAnAdvertisement) {
    EXPECT_EQ(claimed(frame_of(Advert{})), kNdClaim);
    EXPECT_EQ(claimed(frame_of(Advert{.source = ip("fe80::9")})), kNdClaim);
    EXPECT_EQ(claimed(frame_of(Advert{.destination = ip("2001:db8::1"), .flags = 0x60})), kNdClaim);
    EXPECT_EQ(claimed(frame_of(Advert{.options = {}})), kNdClaim) << "the option may be left out";
    EXPECT_EQ(claimed(frame_of(Advert{.source = kProbed6, .target = ip("2001:db8::9")})), "");
}

TEST(Claim, IsNoneOfTheStationItself) {
    EXPECT_EQ(claimed(frame_of(Arp{.sender_mac = kOwn})), "");
    EXPECT_EQ(claimed(frame_of(Advert{.from = kOwn})), "");
}

TEST(Claim, IsNoneInOtherArp) {
    EXPECT_EQ(claimed(frame_of(Arp{.hardware = 32})), "") << "InfiniBand";
    EXPECT_EQ(claimed(frame_of(Arp{.protocol = 0x86dd})), "");
    EXPECT_EQ(claimed(frame_of(Arp{.sizes = 0x0804})), "");
    EXPECT_EQ(claimed(frame_of(Arp{.sizes = 0x0610})), "");
    for (const std::uint16_t operation : {0, 3, 8, 9, 0x100, 0x200})
        EXPECT_EQ(claimed(frame_of(Arp{.operation = operation})), "") << operation;
}

// RFC 4861, 7.1.2: what passed a router, for one, is no message of the link.
TEST(Claim, IsNoneInAnAdvertisementThatHostsWouldNotBelieve) {
    for (const std::uint8_t hops : {0, 1, 64, 254})
        EXPECT_EQ(claimed(frame_of(Advert{.hop_limit = hops})), "") << int{hops};
    EXPECT_EQ(claimed(frame_of(Advert{.code = 1})), "");
    EXPECT_EQ(claimed(frame_of(Advert{.checksum_error = 1})), "");
    EXPECT_EQ(claimed(frame_of(Advert{.checksum_error = 0xffff})), "");
    EXPECT_EQ(claimed(frame_of(Advert{.flags = 0x60})), "") << "solicited, but to all";
    EXPECT_EQ(claimed(frame_of(Advert{.version = 4})), "");
    for (const std::uint8_t type : {133, 134, 135, 137})
        EXPECT_EQ(claimed(frame_of(Advert{.type = type})), "") << int{type};
    for (const std::uint8_t next : {0, 6, 17, 43, 44, 60})
        EXPECT_EQ(claimed(frame_of(Advert{.next = next})), "") << int{next};
    for (const Bytes &options : {Bytes{2}, Bytes{2, 1, 0, 0, 0, 0, 0}, Bytes{2, 0, 0, 0, 0, 0, 0, 0},
                                 Bytes{2, 2, 0, 0, 0, 0, 0, 0}, Bytes{2, 1, 2, 0, 0, 0, 0, 2, 14}})
        EXPECT_EQ(claimed(frame_of(Advert{.options = options})), "") << frames::hex(options);
    EXPECT_FALSE(claim_in(frame_of(Advert{.target = kAllNodes})));
}

// Else IPv6 would speak for an IPv4 address, past switches that watch over ARP.
TEST(Claim, OfAnIpv4AddressIsMadeByArpAlone) {
    Bytes frame = frame_of(Advert{});
    std::memcpy(frame.data() + 62, &kProbed4, sizeof kProbed4);
    EXPECT_EQ(claimed(with_message(frame, 32)), "");
    std::memcpy(frame.data() + 62, &kProbed6, sizeof kProbed6);
    EXPECT_EQ(claimed(with_message(frame, 32)), kNdClaim);
}

TEST(Claim, IsNoneInOtherFrames) {
    for (const Bytes &frame : {frame_of(Arp{}), frame_of(Advert{})})
        for (const std::uint16_t type : {0x0800, 0x8100, 0x88a8, 0x8035, 0x0004}) {
            Bytes other = frame;
            other[12] = static_cast<std::uint8_t>(type >> 8U);
            other[13] = static_cast<std::uint8_t>(type);
            EXPECT_EQ(claimed(other), "") << type;
        }
}

TEST(Claim, IsNoneInAFrameThatIsCutOffAnywhere) {
    for (const Bytes &frame : {frame_of(Arp{}), frame_of(Advert{})})
        for (std::size_t size = 0; size < frame.size(); ++size) // of their own, for the sanitizer
            EXPECT_EQ(claimed(Bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size))), "") << size;
    EXPECT_EQ(claimed(with_message(frame_of(Advert{}), 24)), kNdClaim);
    for (const std::size_t bytes : {4, 8, 16, 23}) // behind it are the bytes that it lacks
        EXPECT_EQ(claimed(with_message(frame_of(Advert{}), bytes)), "") << bytes;
    EXPECT_EQ(claimed(frame_of(Advert{.length_error = 1})), "");
    EXPECT_EQ(claimed(frame_of(Advert{.length_error = -8})), "") << "of another checksum";
    EXPECT_EQ(claimed(frame_of(Advert{.length_error = -32})), "");
}

TEST(Claim, IsSeenInFrontOfPadding) {
    for (Bytes frame : {frame_of(Arp{}), frame_of(Advert{})}) {
        const std::string bare = claimed(frame);
        EXPECT_NE(bare, "");
        frames::append(frame, bytes(33, 0xaa));
        EXPECT_EQ(claimed(frame), bare);
    }
}

} // namespace
} // namespace podlane::net
