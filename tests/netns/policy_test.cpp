// SPDX-License-Identifier: MIT
// A thousand rules in FORWARD and random connections through them, frame by frame: each gets exactly as far as that of
// a pod whose fast path is off. PODLANE_SEED=N repeats a run; PODLANE_CONNECTIONS=N opens so many instead of 2,000.
#include "tests/harness/environment.hpp"
#include "tests/netns/lab.hpp"

#include <random>

namespace podlane::test {
namespace {

constexpr std::size_t kRules = 1000;
constexpr std::size_t kBatch = 256;
constexpr std::uint16_t kLastPort = 9; // nobody's rule
constexpr std::uint32_t kClientStart = 1000;
constexpr std::uint32_t kServerStart = 500000;

struct Ports {
    std::uint16_t client = 0;
    std::uint16_t server = 0;
    auto operator<=>(const Ports &) const = default;
};

class PolicyVerdicts : public LabTest {
  protected:
    void prepare() override {
        followed_ = add_pod({{"firstPacket", "host"}});
        off_ = add_pod({{"fastPath", "off"}});
        server_ = add_pod({{"firstPacket", "host"}});
        // Connections are made of frames: no pod's own stack may reset them.
        for (const Pod *pod : {&followed_, &off_, &server_})
            pod->container->run(iptables() + " -A OUTPUT -p tcp --tcp-flags RST RST -j DROP");
    }
    [[nodiscard]] std::string rules(std::mt19937_64 &random) const {
        const auto range = [&](const char *option) {
            const auto first = static_cast<unsigned>(1024 + random() % 64000);
            return std::string(option) + std::to_string(first) + ":" + std::to_string(first + random() % 400);
        };
        const std::array<std::string, 3> targets = {"DROP", "REJECT", "ACCEPT"};
        std::string text = "*filter\n-A FORWARD -p tcp --dport 9 -j ACCEPT\n";
        if (random() % 2 == 0)
            text += "-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n";
        for (std::size_t i = 0; i < kRules; ++i)
            text += "-A FORWARD " + (random() % 2 == 0 ? "-d " + to_string(addr(server_)) : std::string()) + " -p tcp" +
                    (random() % 3 != 0 ? range(" --dport ") : range(" --sport ")) + " -j " + targets.at(random() % 3) +
                    "\n";
        return text + "COMMIT\n";
    }

    [[nodiscard]] static Packet segment(const Ends &ends, std::uint8_t flags, std::uint32_t sequence, std::uint32_t ack,
                                        std::size_t data = 0) {
        Packet packet = tcp(ends, flags, data);
        for (int i = 0; i < 4; ++i) {
            packet.payload.at(4 + static_cast<std::size_t>(i)) = static_cast<std::uint8_t>(sequence >> (24 - 8 * i));
            packet.payload.at(8 + static_cast<std::size_t>(i)) = static_cast<std::uint8_t>(ack >> (24 - 8 * i));
        }
        set_checksum(packet, 16);
        return packet;
    }
    // Sends a segment of each connection that has come to `stage`; those that arrive come one further.
    struct Step {
        const Pod &from;
        const Pod &to;
        std::uint8_t flags;
        std::uint32_t sequence;
        std::uint32_t ack;
        std::size_t data;
    };
    void take(const Step &step, int stage, std::map<Ports, int> &reached) {
        const Wire out = step.from.wire();
        const Wire in = step.to.wire();
        const bool backwards = &step.from == &server_;
        const auto send = [&](std::uint16_t from, std::uint16_t to, std::uint8_t flags) {
            const Ends ends{addr(step.from), addr(step.to), from, to};
            out.send(
                frame(step.from.gateway_mac, step.from.mac, segment(ends, flags, step.sequence, step.ack, step.data)));
        };
        for (const auto &[ports, at] : reached)
            if (at == stage)
                send(backwards ? ports.server : ports.client, backwards ? ports.client : ports.server, step.flags);
        send(kLastPort, kLastPort, tcp_syn);
        const std::size_t ports_at = kEthernetBytes + (ipv4() ? kIpv4Bytes : kIpv6Bytes);
        const auto word = [](const Bytes &bytes, std::size_t at) {
            return static_cast<std::uint16_t>(bytes.at(at) << 8U | bytes.at(at + 1));
        };
        const auto is_tcp = [&](const Bytes &one) {
            return one.size() >= ports_at + 20 && ethertype(one) == (ipv4() ? 0x0800 : 0x86dd) &&
                   one[ipv4() ? 23 : 20] == IPPROTO_TCP;
        };
        const auto arrived =
            in.until([&](const Bytes &one) { return is_tcp(one) && word(one, ports_at + 2) == kLastPort; }, patience());
        ASSERT_TRUE(arrived.has_value()) << "the last frame is lost";
        for (const Bytes &one : *arrived) {
            if (!is_tcp(one) || one[ports_at + 13] != step.flags)
                continue;
            const Ports seen{word(one, ports_at), word(one, ports_at + 2)};
            if (const auto found = reached.find(backwards ? Ports{seen.server, seen.client} : seen);
                found != reached.end() && found->second == stage)
                ++found->second;
        }
    }
    // How far each connection gets: SYN, SYN with ACK, ACK, data there, data back.
    std::map<Ports, int> connect(const Pod &client, std::map<Ports, int> all) {
        constexpr std::uint8_t kSynAck = tcp_syn | tcp_ack;
        constexpr std::uint8_t kData = tcp_psh | tcp_ack;
        take({client, server_, tcp_syn, kClientStart, 0, 0}, 0, all);
        take({server_, client, kSynAck, kServerStart, kClientStart + 1, 0}, 1, all);
        take({client, server_, tcp_ack, kClientStart + 1, kServerStart + 1, 0}, 2, all);
        take({client, server_, kData, kClientStart + 1, kServerStart + 1, 100}, 3, all);
        take({server_, client, kData, kServerStart + 1, kClientStart + 101, 100}, 4, all);
        return all;
    }

    Pod followed_;
    Pod off_;
    Pod server_;
};

TEST_P(PolicyVerdicts, AreThoseOfTheHostForRandomConnections) {
    cpu_set_t one; // frames of one CPU stay in order
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const auto seed = printed_seed();
    const auto connections = number_from("PODLANE_CONNECTIONS", slow() ? 512 : 2000);
    std::mt19937_64 random(seed);
    lab_->node().run(iptables() + "-restore --noflush", rules(random));
    std::array<std::size_t, 6> stages{};
    for (std::size_t opened = 0; opened < connections; opened += kBatch) {
        std::map<Ports, int> all;
        while (all.size() < kBatch)
            all[{static_cast<std::uint16_t>(1024 + random() % 64000),
                 static_cast<std::uint16_t>(1024 + random() % 64000)}] = 0;
        const auto expected = connect(off_, all);
        const auto got = connect(followed_, all);
        for (const auto &[ports, stage] : expected) {
            ++stages.at(static_cast<std::size_t>(stage));
            EXPECT_EQ(got.at(ports), stage) << ports.client << " to " << ports.server << ", PODLANE_SEED=" << seed;
        }
        ASSERT_FALSE(HasFailure());
    }
    std::cout << stages[0] << " refused, " << stages[5] << " whole; "
              << lab_->count(followed_, REASON_SENT_DIRECT) + lab_->count(server_, REASON_SENT_DIRECT)
              << " packets on the fast path" << std::endl;
    EXPECT_GT(stages[0], 0U);
    EXPECT_GT(stages[5], 0U);
    EXPECT_GE(lab_->count(followed_, REASON_SENT_DIRECT), stages[5]);
}

INSTANTIATE_TEST_SUITE_P(All, PolicyVerdicts, testing::Values(LabParameter{"clsact", true}, LabParameter{"tcx", false}),
                         lab_parameter_name);

} // namespace
} // namespace podlane::test
