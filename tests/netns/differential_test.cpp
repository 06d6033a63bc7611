// SPDX-License-Identifier: MIT
// The same packets through Podlane and through the reference plugin `ptp`: what arrives, and what comes back, is alike.
#include "tests/netns/captured.hpp"
#include "tests/netns/differential_cases.hpp"
#include "tests/netns/lab.hpp"

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
        out_.send(frame(sender_.gateway_mac, sender_.mac, marker({sender_.v4, receiver_.v4}, ++sent_)));
        const auto arrived =
            in_.caught_until([this](const Bytes &frame) { return is_marker(frame, ICMP_ECHO, sent_); }, patience());
        const auto back =
            out_.until([this](const Bytes &frame) { return is_marker(frame, ICMP_ECHOREPLY, sent_); }, patience());
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
    Pod sender_;
    Pod receiver_;
    Wire out_;
    Wire in_;
    std::uint16_t sent_ = 0;
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
