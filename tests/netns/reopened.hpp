// SPDX-License-Identifier: MIT
// Two ends of a connection of which the node's rules now drop one direction, and the connection's entries in the flow
// cache and in conntrack.
#pragma once

#include "tests/netns/conntrack.hpp"
#include "tests/netns/lab.hpp"

#include <ctime>

namespace podlane::test {

// The first of the two is the one whose packets FORWARD drops later.
struct Talkers {
    const net::Namespace *hostile_ns = nullptr;
    const net::Namespace *peer_ns = nullptr;
    ip_addr hostile_addr{};
    ip_addr peer_addr{};
};

class Reopened : public LabTest {
  protected:
    static constexpr std::uint16_t kOwnPort = 5001; // of both

    Pod add_pod(Json keys = Json::object()) {
        keys["firstPacket"] = "host";
        return LabTest::add_pod(keys);
    }
    void rule(const std::string &words) { lab_->node().run(iptables() + " -w " + words); }
    void set(const std::string &name, const std::string &value) {
        lab_->node().run("sysctl -qw net.netfilter.nf_conntrack_" + name + "=" + value);
    }
    void route_pods_from_outside() {
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
    }
    [[nodiscard]] Talkers pods(const Pod &hostile, const Pod &peer) const {
        return {&hostile.ns(), &peer.ns(), addr(hostile), addr(peer)};
    }

    // Of the connection between kOwnPort and kOwnPort.
    [[nodiscard]] static flow_key key(const ip_addr &from, const ip_addr &to, Transport transport) {
        flow_key out{};
        out.source = from;
        out.destination = to;
        out.source_port = out.destination_port = htons(kOwnPort);
        out.protocol = transport == Transport::tcp ? IPPROTO_TCP : IPPROTO_UDP;
        return out;
    }
    [[nodiscard]] std::optional<flow> cached(const flow_key &of) {
        const auto entries = require(require(open_flows(lab_->node().bpffs(), Access::read_only)).entries());
        for (const auto &[key, value] : entries)
            if (std::memcmp(&key, &of, sizeof key) == 0)
                return value;
        return {};
    }
    [[nodiscard]] bool is_cached(const Talkers &of, Transport transport) {
        return cached(key(of.hostile_addr, of.peer_addr, transport)) &&
               cached(key(of.peer_addr, of.hostile_addr, transport));
    }
    // Neither direction's entry, nor the note that the host stack forwarded its packets, holds without a query.
    [[nodiscard]] bool has_expired(const Talkers &of, Transport transport) {
        const auto is_old = [&](const ip_addr &from, const ip_addr &to) {
            timespec now{};
            clock_gettime(CLOCK_MONOTONIC, &now);
            constexpr std::uint64_t kSecond = 1'000'000'000;
            const auto entry = cached(key(from, to, transport));
            return !entry || static_cast<std::uint64_t>(now.tv_sec) * kSecond +
                                     static_cast<std::uint64_t>(now.tv_nsec) - entry->confirmed_ns >
                                 kSecond;
        };
        return is_old(of.hostile_addr, of.peer_addr) && is_old(of.peer_addr, of.hostile_addr);
    }
    [[nodiscard]] std::optional<Tracked> entry(const Talkers &of, Transport transport) {
        for (const Tracked &one : tracked(lab_->node().ns())) {
            const bool is_between = (one.source.addr == of.hostile_addr && one.destination.addr == of.peer_addr) ||
                                    (one.source.addr == of.peer_addr && one.reply_source.addr == of.hostile_addr);
            if (is_between && one.transport == transport && one.source.port == kOwnPort)
                return one;
        }
        return {};
    }
    [[nodiscard]] bool is_assured(const Talkers &of, Transport transport) {
        const auto one = entry(of, transport);
        return one && one->assured && (transport == Transport::udp || one->state == "ESTABLISHED");
    }
    void delete_entry(const Talkers &of, Transport transport) {
        const auto one = entry(of, transport);
        ASSERT_TRUE(one);
        ASSERT_EQ(delete_tracked(lab_->node().ns(), *one), 0);
    }

    // From now on the packets of the socket carry IPv4 options, or an IPv6 destination header: the host stack's.
    static void set_options(const Fd &socket, bool ipv4, bool on = true) {
        const std::array<std::uint8_t, 4> nops{1, 1, 1, 1};
        const std::array<std::uint8_t, 8> padding{0, 0, 1, 4, 0, 0, 0, 0};
        const auto *value = ipv4 ? nops.data() : padding.data();
        const auto size = static_cast<socklen_t>(ipv4 ? nops.size() : padding.size());
        ASSERT_EQ(setsockopt(socket.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_OPTIONS : IPV6_DSTOPTS, value,
                             on ? size : 0),
                  0);
    }
};

// A UDP socket of each.
struct Datagrams {
    Fd hostile{};
    Fd peer{};
    Datagrams(const Talkers &of, std::uint16_t port) {
        const bool ipv4 = is_ipv4(of.hostile_addr);
        hostile = open_socket(*of.hostile_ns, Transport::udp, ipv4, {of.hostile_addr, port});
        peer = open_socket(*of.peer_ns, Transport::udp, ipv4, {of.peer_addr, port});
        EXPECT_EQ(connect_to(hostile, {of.peer_addr, port}), 0);
        EXPECT_EQ(connect_to(peer, {of.hostile_addr, port}), 0);
    }
    void send_both(const std::string &text) const {
        EXPECT_EQ(send_text(peer, "question"), 0);
        EXPECT_EQ(send_text(hostile, text), 0);
    }
    // How many datagrams with this text have arrived since the last call; all others are dropped, too.
    [[nodiscard]] static int arrived(const Fd &at, const std::string &text) {
        int count = 0;
        while (true) {
            const Received one = receive(at, text.size() + 1, std::chrono::milliseconds(0));
            if (one.error != 0)
                return count;
            count += one.text == text ? 1 : 0;
        }
    }
};

} // namespace podlane::test
