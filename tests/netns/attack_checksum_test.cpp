// SPDX-License-Identifier: MIT
// A checksum that a pod leaves to be written changes no address, and makes no other message: a network card that cannot
// write it has the kernel do so behind all checks, wherever the pod said.
#include "tests/netns/forged.hpp"
#include "tests/netns/lab.hpp"
#include "tests/netns/lan.hpp"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

namespace podlane::test {
namespace {

// As of a card that writes no checksums.
void write_in_the_kernel(const net::Namespace &where, const char *link) {
    ethtool_value off{ETHTOOL_STXCSUM, 0};
    ifreq request{};
    std::strncpy(request.ifr_name, link, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char *>(&off);
    const Fd socket = open_socket(where, Transport::udp, true);
    ASSERT_EQ(ioctl(socket.get(), SIOCETHTOOL, &request), 0) << std::strerror(errno);
}

std::uint16_t word_at(const Bytes &frame, std::size_t at) {
    return static_cast<std::uint16_t>(frame.at(at) << 8U | frame.at(at + 1));
}

// With a checksum of what is behind `start`, to be written at `at`, that becomes `wanted`: the word at `tuned` is free.
forged::Forged with_checksum(const std::string &what, Bytes frame, std::size_t start, std::size_t at,
                             std::uint16_t wanted, std::size_t tuned) {
    for (std::uint32_t word = 0; word <= 0xffff; ++word) {
        frame.at(tuned) = static_cast<std::uint8_t>(word >> 8U);
        frame.at(tuned + 1) = static_cast<std::uint8_t>(word);
        if (frames::checksum(std::span(frame).subspan(start)) != wanted)
            continue;
        forged::Forged one{what, frame};
        one.left.checksum = true;
        one.left.checksum_start = static_cast<std::uint16_t>(start);
        one.left.checksum_offset = static_cast<std::uint16_t>(at - start);
        return one;
    }
    throw std::logic_error("no word makes this checksum");
}

// IPv4 in the sender's name, with the header's checksum of the victim's, whose last bytes are to be written.
forged::Forged becomes(const std::string &what, Packet packet, const ip_addr &victim, const Mac &to, const Mac &from) {
    const Bytes own = frame(to, from, packet);
    const std::size_t l4 = 34 + packet.options.size();
    packet.source = victim;
    const Bytes wanted = frame(to, from, packet);
    Bytes out = own;
    std::copy_n(wanted.begin() + 24, 2, out.begin() + 24);
    return with_checksum(what, out, 20, 28, word_at(wanted, 28), l4 + 8);
}

// Whether a receiver takes it for the victim's.
bool is_believed(const Bytes &frame, const ip_addr &victim) {
    Bytes addr;
    frames::append(addr, victim);
    const std::size_t header = frame.size() < 34 ? 0U : (frame[14] & 15U) * std::size_t{4};
    return ethertype(frame) == 0x0800 && header >= 20 && frame.size() >= 14 + header &&
           std::equal(addr.end() - 4, addr.end(), frame.begin() + 26) &&
           frames::checksum(std::span(frame).subspan(14, header)) == 0;
}

class AttackChecksum : public LabTest {
  protected:
    void prepare() override {
        hostile_ = add_pod();
        write_in_the_kernel(lab_->node().ns(), "up0");
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        ASSERT_TRUE(ping(hostile_.ns(), outside_addr()));
    }
    // Of an own packet to the outside, whose checksum is to be written at `at`.
    [[nodiscard]] forged::Forged left_at(std::size_t at) const {
        Packet packet = udp({addr(hostile_), outside_addr(), 40000, 53}, 64);
        forged::Forged one{"a checksum at " + std::to_string(at), frame(hostile_.gateway_mac, hostile_.mac, packet)};
        one.left.checksum = true;
        one.left.checksum_start = static_cast<std::uint16_t>(at);
        return one;
    }
    Pod hostile_;
};

TEST_P(AttackChecksum, LeftToBeWrittenChangesNoAddress) {
    const Wire wire(lab_->outside(), "eth0");
    const std::size_t source = ipv4() ? 26 : 22, l4 = ipv4() ? 34 : 54;
    std::vector<forged::Forged> all;
    for (std::size_t at = source; at < l4; at += 2)
        all.push_back(left_at(at));
    forged::Forged right = left_at(l4);
    right.left.checksum_offset = 6;
    all.push_back(right);
    forged::send_as(Privilege::net_raw, hostile_.ns(), "eth0", all);
    Bytes addresses;
    frames::append(addresses, addr(hostile_));
    frames::append(addresses, outside_addr());
    const auto begins_right = [&](const Bytes &one) {
        return one.size() > l4 &&
               std::equal(addresses.begin(), addresses.end(), one.begin() + static_cast<long>(source));
    };
    std::vector<Bytes> seen;
    EXPECT_TRUE(wait_until([&] {
        for (const Bytes &one : wire.arrived())
            if (one.size() == right.frame.size() && one[ipv4() ? 23 : 20] == IPPROTO_UDP)
                seen.push_back(one);
        return std::ranges::any_of(seen, begins_right);
    })) << "that with its checksum at its place";
    for (const Bytes &one : seen)
        EXPECT_TRUE(begins_right(one)) << hex(one);
    EXPECT_EQ(lab_->count(hostile_, REASON_DROP_MALFORMED), all.size() - 1);
}

INSTANTIATE_TEST_SUITE_P(All, AttackChecksum, lab_parameters(), lab_parameter_name);

// Pods on a bridge that a LAN is connected to.
class AttackChecksumOnBridge : public LabTest {
  protected:
    Pod attach(const Json &keys) {
        Json bridge = {{"type", "bridge"}, {"bridge", "cni0"}, {"isDefaultGateway", true}};
        bridge["ipam"] = lab_->node().config().at("ipam");
        Json after = with_attach(keys);
        after["type"] = "podlane";
        after["bpffs"] = lab_->node().bpffs();
        Pod pod = lab_->add_pod(std::vector<Json>{bridge, after});
        lan_ = lab_->node().container("lan");
        lab_->node().run("ip link add lan0 type veth peer name eth0 netns " + lan_->path());
        lab_->node().run("ip link set lan0 master cni0 up");
        (void)lan_->run("ip link set eth0 up");
        write_in_the_kernel(lab_->node().ns(), "lan0");
        (void)run(lab_->node().ns(),
                  words("sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0"));
        return pod;
    }
    // An echo, or an error, that becomes another message: its type is to be written, and its checksum is right then.
    [[nodiscard]] static forged::Forged message(const Ends &ends, const Mac &to, const Mac &from, std::uint8_t before,
                                                std::uint8_t type) {
        Packet packet = icmp(ends, type, 0, pattern(24));
        packet.hop_limit = 255;
        const std::size_t at = is_ipv4(ends.source) ? 34 : 54;
        Bytes out = frame(to, from, packet);
        out.at(at) = before;
        out.resize(out.size() + 2); // behind the packet: free
        return with_checksum("type " + std::to_string(type) + " from " + std::to_string(before), out, at, at,
                             static_cast<std::uint16_t>(type << 8U), out.size() - 2);
    }
    // How many of them a host on the LAN believes.
    [[nodiscard]] std::size_t believed(const Pod &by, std::size_t &sent) const {
        const Wire lan(lan_->ns(), "eth0");
        const ip_addr victim = ip("198.18.9.200");
        const ip_addr to = ip("198.18.9.250");
        std::vector<forged::Forged> all = {
            becomes("the victim's", udp({by.v4, to, 40000, 53}, 64), victim, lan.mac(), by.mac)};
        for (const std::uint8_t before : {1, 128})
            for (const std::uint8_t type : {134, 136})
                all.push_back(message({by.link_local, ip("ff02::1")}, {0x33, 0x33, 0, 0, 0, 1}, by.mac, before, type));
        all.push_back(message({by.v4, to}, lan.mac(), by.mac, 8, 5)); // a redirect
        sent = all.size();
        forged::send_as(Privilege::net_raw, by.ns(), "eth0", all);
        const Bytes last = frame(lan.mac(), by.mac, udp({by.v4, to, 40001, 53}, 64));
        by.wire().send(last);
        std::size_t count = 0;
        EXPECT_TRUE(lan.until(
            [&](const Bytes &one) {
                const bool is_advertisement =
                    ethertype(one) == 0x86dd && one.size() > 60 && (one[54] == 134 || one[54] == 136);
                const bool is_redirect =
                    ethertype(one) == 0x0800 && one.size() > 60 && one[23] == IPPROTO_ICMP && one[34] == 5;
                count += is_advertisement || is_redirect || is_believed(one, victim) ? 1 : 0;
                return one.size() == last.size() && std::equal(last.begin() + 12, last.end(), one.begin() + 12);
            },
            patience()));
        return count;
    }
    std::shared_ptr<Container> lan_;
};

TEST_P(AttackChecksumOnBridge, LeftToBeWrittenMakesNoOtherMessage) {
    const Pod hostile = attach(Json::object());
    std::size_t sent = 0;
    EXPECT_EQ(believed(hostile, sent), 0U);
    EXPECT_EQ(lab_->count(hostile, REASON_DROP_MALFORMED), sent);
}

TEST_P(AttackChecksumOnBridge, EachIsBelievedIfNobodyChecks) {
    const Pod hostile = attach({{"antiSpoof", false}});
    std::size_t sent = 0;
    EXPECT_EQ(believed(hostile, sent), sent);
}

INSTANTIATE_TEST_SUITE_P(All, AttackChecksumOnBridge, testing::Values(LabParameter{"tcx"}, LabParameter{"clsact"}),
                         [](const auto &info) { return info.param.attach; });

// By an uplink of the network's own, which the host stack does not see: options go past its checks. The programs
// compare the checksum of a header without options, a fragment's too, before it becomes right by another address.
class AttackChecksumOnLan : public Lan {};

TEST_P(AttackChecksumOnLan, LeftToBeWrittenChangesNoAddress) {
    write_in_the_kernel(node().ns(), "lan0");
    const ip_addr victim = ip("192.168.133.77");
    for (const bool checks : {false, true}) {
        SCOPED_TRACE(checks);
        const auto hostile = add_pod({{"antiSpoof", checks}});
        const std::uint32_t veth = SourceLab::host_veth(*hostile, "net1");
        const ip_addr own = SourceLab::addr(*hostile, "net1", true);
        ASSERT_TRUE(wait_until([&] { return ping(hostile->ns(), to_string(host_addr())); }));
        const Mac mac = Wire(hostile->ns(), "net1").mac();
        Mac gateway{};
        for (const Json &one : Json::parse(node().run("ip -j link")))
            if (one.at("ifindex") == veth)
                gateway = require(parse_mac(one.at("address").get<std::string>()));
        std::vector<forged::Forged> all;
        for (const bool has_options : {true, false}) {
            Packet packet = udp({own, host_addr(), 40000, 53}, 64);
            (has_options ? packet.options : packet.payload).resize(has_options ? 4 : 72, 1);
            packet.fragment = has_options ? 0 : 0x2000;
            all.push_back(becomes(has_options ? "with options" : "a fragment", packet, victim, gateway, mac));
        }
        const Wire lan(host_->ns(), "eth0");
        forged::send_as(Privilege::net_raw, hostile->ns(), "net1", all);
        std::size_t believed = 0;
        (void)lan.until([&](const Bytes &one) { return (believed += is_believed(one, victim) ? 1 : 0) == all.size(); },
                        quiet());
        EXPECT_EQ(believed, checks ? 0U : 1U) << "the one with options";
    }
}

INSTANTIATE_TEST_SUITE_P(All, AttackChecksumOnLan, testing::Values(true), [](const auto &) { return "V4"; });

} // namespace
} // namespace podlane::test
