// SPDX-License-Identifier: MIT
// A checksum that a pod leaves to be written changes no address: a network card that cannot write it has the kernel do
// so behind all checks, wherever the pod said.
#include "tests/netns/forged.hpp"
#include "tests/netns/lab.hpp"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

namespace podlane::test {
namespace {

class AttackChecksum : public LabTest {
  protected:
    void prepare() override {
        hostile_ = add_pod();
        ethtool_value off{ETHTOOL_STXCSUM, 0};
        ifreq request{};
        std::strncpy(request.ifr_name, "up0", IFNAMSIZ - 1);
        request.ifr_data = reinterpret_cast<char *>(&off);
        const Fd socket = open_socket(lab_->node().ns(), Transport::udp, true);
        ASSERT_EQ(ioctl(socket.get(), SIOCETHTOOL, &request), 0) << std::strerror(errno);
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
        if (!ipv4() || frames::checksum(std::span(one).subspan(14, 20)) == 0) { // others are dropped by any receiver
            EXPECT_TRUE(begins_right(one)) << hex(one);
        }
    EXPECT_EQ(lab_->count(hostile_, REASON_DROP_MALFORMED), ipv4() ? 0U : 16U);
}

INSTANTIATE_TEST_SUITE_P(All, AttackChecksum, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
