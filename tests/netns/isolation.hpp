// SPDX-License-Identifier: MIT
// Common parts of the tests of isolated pods.
#pragma once

#include "tests/netns/ctl.hpp"

namespace podlane::test {

inline constexpr std::uint16_t kPort = 7;

class IsolationTest : public CtlTest, public testing::WithParamInterface<bool> {
  protected:
    [[nodiscard]] bool ipv4() const { return GetParam(); }
    [[nodiscard]] ip_addr addr(const Pod &pod) const { return pod.addr(ipv4()); }
    static Json isolated(const std::string &group) { return {{"groups", {"name:" + group}}, {"isolation", "group"}}; }
    [[nodiscard]] std::uint64_t drops(const Pod &pod) const {
        return node_.counted(pod.ifindex, REASON_DROP_ISOLATION).packets;
    }
    void expect_refused(const net::Namespace &from, const ip_addr &to, std::uint16_t port = kPort) const {
        const Fd socket = open_socket(from, Transport::tcp, ipv4());
        EXPECT_EQ(connect_to(socket, {to, port}, quiet()), ETIMEDOUT) << to_string(to);
    }
    // All that the pod's socket has received.
    static std::size_t datagrams_at(const Fd &socket) {
        std::size_t count = 0;
        while (recv(socket.get(), nullptr, 0, MSG_DONTWAIT | MSG_TRUNC) >= 0)
            ++count;
        return count;
    }
};

} // namespace podlane::test
