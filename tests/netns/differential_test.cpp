// SPDX-License-Identifier: MIT
// The same packets through Podlane and through the reference plugin `ptp`: what arrives, and what comes back, is alike.
#include "tests/netns/differential_cases.hpp"
#include "tests/netns/lab.hpp"

#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>

namespace podlane::test {
namespace {

// The result of one packet.
struct PacketResult {
    std::vector<std::string> arrived; // layer 3 and up, byte by byte, and what is left to be done with it
    std::vector<std::string> back;    // kinds of what the sender got
    bool operator==(const PacketResult &) const = default;
};

std::ostream &operator<<(std::ostream &out, const PacketResult &outcome) {
    for (const std::string &one : outcome.arrived)
        out << "\n  arrived " << one.find_first_of(' ') / 2 << " bytes " << one.substr(0, 160)
            << one.substr(one.find_first_of(' '));
    for (const std::string &one : outcome.back)
        out << "\n  came back: " << one;
    return out << (outcome.arrived.empty() && outcome.back.empty() ? "\n  nothing" : "");
}

// Where the transport header of a captured frame starts; 0 if there is none.
std::size_t transport_at(const Bytes &frame) {
    const std::size_t at = ethertype(frame) == ETHERTYPE_IP && frame.size() > kEthernetBytes
                               ? kEthernetBytes + std::size_t{4} * (frame[kEthernetBytes] & 15U)
                               : kEthernetBytes + kIpv6Bytes;
    return frame.size() >= at + 8 ? at : 0;
}

std::uint8_t protocol_of(const Bytes &frame) {
    return frame.at(ethertype(frame) == ETHERTYPE_IP ? kEthernetBytes + 9 : kEthernetBytes + 6);
}

// Talk of the kernels among themselves, which no case sends.
bool is_noise(const Bytes &frame) {
    if (ethertype(frame) == ETHERTYPE_ARP)
        return true;
    if (ethertype(frame) != ETHERTYPE_IPV6 || frame.size() < kEthernetBytes + kIpv6Bytes + 1)
        return false;
    const std::uint8_t next = frame[kEthernetBytes + 6];
    const std::uint8_t type = frame[kEthernetBytes + kIpv6Bytes];
    const bool neighbours = next == IPPROTO_ICMPV6 && type >= ND_ROUTER_SOLICIT && type <= ND_REDIRECT;
    const bool listeners = next == IPPROTO_HOPOPTS && frame[kEthernetBytes + 24] == 0xff;
    return neighbours || listeners;
}

std::string kind_of(const Bytes &frame) {
    const std::size_t at = transport_at(frame);
    if (at == 0)
        return "a frame of type " + std::to_string(ethertype(frame));
    const std::uint8_t protocol = protocol_of(frame);
    std::string kind = "protocol " + std::to_string(protocol);
    if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6)
        kind += " type " + std::to_string(frame[at]) + " code " + std::to_string(frame[at + 1]);
    if (protocol == IPPROTO_TCP && frame.size() > at + 13)
        kind += " flags " + std::to_string(frame[at + 13]);
    return kind;
}

// A pair of pods, and the wires at both.
class Course {
  public:
    Course(Lab &lab, const std::vector<Json> &sender, const std::vector<Json> &receiver)
        : sender_(lab.add_pod(sender)), receiver_(lab.add_pod(receiver)), out_(sender_.wire()), in_(receiver_.wire()) {
        for (const net::Namespace *ns : {&lab.node().ns(), &sender_.ns(), &receiver_.ns()})
            (void)must_run(*ns, words("sysctl -qw net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0"));
        // Who learns neighbours on the way learns them now.
        for (const ip_addr &addr : {receiver_.v4, receiver_.v6})
            if (!ping(sender_.ns(), to_string(addr), 1))
                throw std::runtime_error("no answer from " + to_string(addr));
        (void)ping(lab.node().ns(), to_string(sender_.link_local) + "%" + sender_.host_ifname, 1);
    }

    [[nodiscard]] const Pod &sender() const { return sender_; }
    [[nodiscard]] const Pod &receiver() const { return receiver_; }

    // A marker follows the packet through the host stack; what came before it is the packet's outcome.
    PacketResult send(const Case &one) {
        in_.forget();
        out_.forget();
        if (!out_.send(one.frame({sender_.mac, sender_.gateway_mac, sender_.link_local, receiver_.link_local}),
                       one.left))
            return {};
        Packet marker = echo_request({sender_.v4, receiver_.v4}, kMarker, ++sent_, 32);
        marker.options = {1, 1, 1, 1};
        out_.send(frame(sender_.gateway_mac, sender_.mac, marker));
        const auto arrived =
            in_.caught_until([this](const Bytes &frame) { return is_marker(frame, ICMP_ECHO); }, patience());
        const auto back =
            out_.until([this](const Bytes &frame) { return is_marker(frame, ICMP_ECHOREPLY); }, patience());
        if (!arrived || !back)
            throw std::runtime_error("the marker behind \"" + one.name + "\" was lost");
        PacketResult outcome;
        for (const auto &[frame, left] : *arrived)
            if (!is_noise(frame))
                outcome.arrived.push_back(hex(layer3(frame)) + " " + to_string(left));
        for (const Bytes &frame : *back)
            if (!is_noise(frame))
                outcome.back.push_back(kind_of(frame));
        return outcome;
    }

  private:
    static constexpr std::uint16_t kMarker = 0x5afe;

    [[nodiscard]] bool is_marker(const Bytes &frame, std::uint8_t type) const {
        const std::size_t at = ethertype(frame) == ETHERTYPE_IP ? transport_at(frame) : 0;
        return at != 0 && protocol_of(frame) == IPPROTO_ICMP && frame[at] == type && frame[at + 4] == kMarker >> 8U &&
               frame[at + 5] == (kMarker & 0xffU) && frame[at + 6] == sent_ >> 8U && frame[at + 7] == (sent_ & 0xffU);
    }

    Pod sender_;
    Pod receiver_;
    Wire out_;
    Wire in_;
    std::uint16_t sent_ = 0;
};

// One CPU, so that a marker cannot overtake its packet in another CPU's queue.
class OneCpu {
  public:
    OneCpu() {
        sched_getaffinity(0, sizeof(before_), &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
        sched_setaffinity(0, sizeof(one), &one);
    }
    ~OneCpu() { sched_setaffinity(0, sizeof(before_), &before_); }
    OneCpu(const OneCpu &) = delete;
    OneCpu &operator=(const OneCpu &) = delete;

  private:
    cpu_set_t before_{};
};

class Differential : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "tcx" && !kernel_can_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
    }
    static std::vector<Json> podlane(Lab &lab, std::size_t mtu, const Json &more = Json::object()) {
        Json keys = {{"attach", GetParam()}, {"mtu", mtu}};
        keys.merge_patch(more);
        return {lab.node().config(keys)};
    }
    static std::vector<Json> ptp(Lab &lab, std::size_t mtu) {
        Json ipam = lab.node().ipam();
        ipam["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
        return {{{"type", "ptp"}, {"mtu", mtu}, {"ipam", ipam}}};
    }
    static Cases cases_of(const Pod &sender, const Pod &receiver) {
        const Family v4{"v4", sender.v4, receiver.v4, ip("127.0.0.1"), ip("224.0.0.251"), ip("198.51.100.9")};
        const Family v6{"v6", sender.v6, receiver.v6, ip("::1"), ip("ff02::fb"), ip("2001:db8:bad::9")};
        return {v4, v6};
    }

    // Podlane's, which is also ptp's unless Podlane is to drop it.
    static PacketResult expect_alike(const Case &one, Course &podlane_course, Course &ptp_course) {
        const PacketResult outcome = podlane_course.send(one);
        if (one.differs.empty())
            EXPECT_EQ(outcome, ptp_course.send(one)) << "packet: " << one.name << "\nfirst by Podlane, then by ptp";
        else
            EXPECT_EQ(outcome, PacketResult{}) << "packet: " << one.name << "\nto be dropped: " << one.differs;
        return outcome;
    }

    OneCpu one_cpu_;
    Lab ours_;
    Lab theirs_;
};

TEST_P(Differential, PacketsFareAsWithThePtpPlugin) {
    constexpr std::size_t kMtu = 1500;
    Course podlane_course(ours_, podlane(ours_, kMtu), podlane(ours_, kSmallMtu));
    Course ptp_course(theirs_, ptp(theirs_, kMtu), ptp(theirs_, kSmallMtu));
    ASSERT_EQ(to_string(podlane_course.sender().v6), to_string(ptp_course.sender().v6)) << "cannot compare bytes";
    ASSERT_EQ(to_string(podlane_course.receiver().v4), to_string(ptp_course.receiver().v4)) << "cannot compare bytes";
    const auto direct = ours_.count(podlane_course.sender(), REASON_SENT_DIRECT);
    std::size_t arrived = 0;
    const Cases cases = cases_of(podlane_course.sender(), podlane_course.receiver());
    for (const Case &one : cases.all()) {
        const PacketResult outcome = expect_alike(one, podlane_course, ptp_course);
        arrived += outcome.arrived.size();
    }
    // Not all through the host stack, or nothing would be proven.
    EXPECT_GT(ours_.count(podlane_course.sender(), REASON_SENT_DIRECT) - direct, 40U);
    EXPECT_GT(arrived, 80U);
}

// Packets of a pod's own sockets: checksum and segments are left to whoever comes after, and nobody does them on the
// way.
TEST_P(Differential, OffloadsFareAsWithThePtpPlugin) {
    Course podlane_course(ours_, podlane(ours_, 1500), podlane(ours_, kSmallMtu));
    Course ptp_course(theirs_, ptp(theirs_, 1500), ptp(theirs_, kSmallMtu));
    const auto direct = ours_.count(podlane_course.sender(), REASON_SENT_DIRECT);
    std::size_t whole = 0;
    const Cases cases = cases_of(podlane_course.sender(), podlane_course.receiver());
    for (const Case &one : cases.offloaded()) {
        const PacketResult outcome = expect_alike(one, podlane_course, ptp_course);
        for (const std::string &arrived : outcome.arrived)
            whole += arrived.ends_with(to_string(one.left)) ? 1 : 0;
    }
    EXPECT_GT(ours_.count(podlane_course.sender(), REASON_SENT_DIRECT) - direct, 30U);
    EXPECT_GT(whole, 30U);
}

// Without anti-spoofing nothing differs but what Podlane cannot read at all.
TEST_P(Differential, ForeignSourcesFareAsWithThePtpPluginIfTheyAreAllowed) {
    const Json allow = {{"antiSpoof", false}};
    Course podlane_course(ours_, podlane(ours_, 1500, allow), podlane(ours_, kSmallMtu, allow));
    Course ptp_course(theirs_, ptp(theirs_, 1500), ptp(theirs_, kSmallMtu));
    const Cases cases = cases_of(podlane_course.sender(), podlane_course.receiver());
    for (const Case &one : cases.all())
        if (!one.differs.empty()) {
            const PacketResult outcome = podlane_course.send(one);
            EXPECT_EQ(outcome, ptp_course.send(one)) << "packet: " << one.name << "\nfirst by Podlane, then by ptp";
        }
}

INSTANTIATE_TEST_SUITE_P(All, Differential, both_ways_to_attach(), way_to_attach);

} // namespace
} // namespace podlane::test
