// SPDX-License-Identifier: MIT
// The frames and the model of tests/packet/model.hpp on real veths: what a hostile pod or a host on the uplink sends
// goes through the kernel, with what the kernel leaves to the network card, before the programs see it. PODLANE_SEED=N
// repeats a run; PODLANE_FRAMES=N sends so many frames instead of a few seconds.
#include "tests/harness/environment.hpp"
#include "tests/netns/lab.hpp"
#include "tests/netns/model_sent.hpp"
#include "tests/packet/model_frames.hpp"

namespace podlane::test {
namespace {

using packet::Demand;
using packet::ModelSender;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBatch = 64;
class PromiseOnVeths : public LabTest {
  protected:
    void prepare() override {
        // No packet of anybody's may be forwarded: whatever arrives has avoided the host's rules.
        for (const char *tables : {"iptables", "ip6tables"})
            lab_->node().run(std::string(tables) + " -P FORWARD DROP");
        const Json keys = {{"clusterCIDRs", {"198.18.0.0/16", "2001:db8::/32"}}, {"firstPacket", "host"}};
        attacker_ = add_pod(keys);
        victim_ = add_pod(keys);
        keep_mac(*lab_, attacker_);
        node_mac_ = Wire(lab_->node().ns(), "up0").mac();
        make_senders();
    }
    void make_senders() {
        pod_.mac = attacker_.mac;
        pod_.gateway = attacker_.gateway_mac;
        pod_.addresses = {attacker_.v4, attacker_.v6, attacker_.link_local};
        outside_.is_pod = false;
        outside_.mac = Wire(lab_->outside(), "eth0").mac();
        outside_.gateway = node_mac_;
        for (const bool v4 : {true, false}) {
            const ip_addr &victim = victim_.addr(v4);
            const ip_addr &own = attacker_.addr(v4);
            const ip_addr far = ip(v4 ? Lab::kOutside4 : Lab::kOutside6);
            pod_.flows.push_back({own, victim, 40000, 80, own, victim, 40000, 80, victim_.mac, victim_.mtu});
            pod_.flows.push_back({own, far, 40001, 80, own, far, 40001, 80, outside_.mac, victim_.mtu});
            outside_.flows.push_back({far, victim, 50000, 80, far, victim, 50000, 80, victim_.mac, victim_.mtu});
        }
    }
    [[nodiscard]] std::vector<ip_addr> addresses() const {
        std::vector<ip_addr> out = {attacker_.v4, attacker_.v4,         victim_.v4, attacker_.v6,
                                    attacker_.v6, attacker_.link_local, victim_.v6, victim_.link_local};
        for (const char *other : {Lab::kNode4, Lab::kOutside4, "198.18.9.77", "127.0.0.1", "0.0.0.0", "224.0.0.1",
                                  "255.255.255.255", "169.254.1.1", Lab::kNode6, Lab::kOutside6, "2001:db8:9::77",
                                  "::", "::1", "ff02::1", "fe80::ecee:eeff:feee:eeee", "fe80::1"})
            out.push_back(ip(other));
        return out;
    }

    // False if the kernel does not take the frame, or would drop it before any program.
    bool send(const Wire &wire, const Sent &one) {
        constexpr std::size_t kWithTag = 20; // it reads the type behind a tag
        if ((ethertype(one.frame) == ETHERTYPE_VLAN || ethertype(one.frame) == 0x88a8) && one.frame.size() < kWithTag)
            return false;
        try {
            const bool taken = wire.send(one.frame, one.left);
            sent_ += taken ? 1 : 0;
            return taken;
        } catch (const std::runtime_error &) {
            return false;
        }
    }

    // Of both pods.
    [[nodiscard]] std::uint64_t counted(reason_kind kind) {
        const auto all = require(Counters::open(lab_->node().bpffs(), Access::read_only));
        std::uint64_t packets = 0;
        for (const Pod *pod : {&attacker_, &victim_}) {
            const counters of = require(all.sum(pod->ifindex));
            for (std::size_t why = 0; why < kReasons.size(); ++why)
                if (kReasons.at(why).kind == kind)
                    packets += of.by_reason[why].packets;
        }
        return packets;
    }

    // Frames that are all to be dropped, or none of them; true if they were.
    [[nodiscard]] bool agrees(const Wire &wire, const std::vector<Sent> &frames, Demand demand) {
        const Bytes foreign = frame(attacker_.gateway_mac, packet::kForeignMac, 0x88cc, pattern(60));
        const std::uint64_t before = counted(REASON_KIND_DROP);
        std::uint64_t sent = 0;
        for (const Sent &one : frames)
            sent += send(wire, one) ? 1 : 0;
        wire.send(foreign); // the last one, and dropped for sure
        const std::uint64_t expected = before + 1 + (demand == Demand::drop ? sent : 0);
        return wait_until([&] { return counted(REASON_KIND_DROP) >= expected; }) &&
               counted(REASON_KIND_DROP) == expected;
    }
    void expect_agrees(const Wire &wire, const std::vector<Sent> &frames, Demand demand, const char *what) {
        if (agrees(wire, frames, demand))
            return;
        for (const Sent &one : frames)
            if (!agrees(wire, {one}, demand))
                ADD_FAILURE() << what << ": " << hex(one.frame) << to_string(one.left);
        ADD_FAILURE() << what << ": " << frames.size() << " frames together";
    }
    // Packets that nobody but the node itself sent.
    static bool is_foreign(const Bytes &frame, const std::vector<ip_addr> &of_node) {
        const std::uint16_t type = ethertype(frame);
        if (type == ETHERTYPE_ARP)
            return false;
        if (type == ETHERTYPE_IPV6 && frame.size() > 21 && frame[21] == 255) // not forwarded: the node's own redirect
            return false;
        const std::size_t at = type == ETHERTYPE_IP ? 26 : 22;
        for (const ip_addr &addr : of_node) {
            Bytes bytes;
            frames::append(bytes, addr);
            if (frame.size() >= at + bytes.size() &&
                std::equal(bytes.begin(), bytes.end(), frame.begin() + static_cast<std::ptrdiff_t>(at)))
                return false;
        }
        return true;
    }

    Pod attacker_;
    Pod victim_;
    Mac node_mac_{};
    ModelSender pod_;
    ModelSender outside_;
    std::uint64_t sent_ = 0;
};

TEST_P(PromiseOnVeths, HoldsForGeneratedFrames) {
    const auto seed = printed_seed();
    const auto wanted = number_from("PODLANE_FRAMES", 0);
    std::mt19937_64 random(seed);
    packet::ModelFrames pods(pod_, addresses(), random);
    packet::ModelFrames others(outside_, addresses(), random);
    const Wire wire = attacker_.wire();
    const Wire outside(lab_->outside(), "eth0");
    const Wire receiver = victim_.wire();
    const std::vector<ip_addr> of_node = {ip(Lab::kNode4), ip(Lab::kNode6), ip("169.254.1.1"),
                                          ip("fe80::ecee:eeff:feee:eeee")};
    const auto end = Clock::now() + std::chrono::seconds(3);
    std::uint64_t ran = 0;
    do {
        std::vector<Sent> to_drop;
        std::vector<Sent> to_pass;
        while (to_drop.size() < kBatch && to_pass.size() < kBatch) {
            Sent one{pods.next(), {}};
            one.left = any_offload(one.frame, random);
            const packet::Promise promise = packet::Model(pod_, one.frame).promise();
            if (promise.demand != Demand::none)
                (promise.demand == Demand::drop ? to_drop : to_pass).push_back(std::move(one));
        }
        expect_agrees(wire, to_drop, Demand::drop, "not dropped");
        expect_agrees(wire, to_pass, Demand::no_drop, "dropped");
        for (std::size_t i = 0; i < kBatch; ++i) {
            Sent one{others.next(), {}};
            one.left = any_offload(one.frame, random);
            (void)send(outside, one);
        }
        ran += to_drop.size() + to_pass.size() + kBatch;
        for (const Bytes &frame : receiver.arrived())
            EXPECT_FALSE(is_foreign(frame, of_node)) << "arrived: " << hex(frame);
        ASSERT_EQ(counted(REASON_KIND_FAST), 0U) << "by the fast path";
        ASSERT_FALSE(HasFailure()) << "PODLANE_SEED=" << seed;
    } while (wanted != 0 ? ran < wanted : Clock::now() < end);
    std::cout << ran << " frames, " << sent_ << " sent" << std::endl;
    EXPECT_GT(sent_, ran / 2);
}

INSTANTIATE_TEST_SUITE_P(All, PromiseOnVeths, testing::Values(LabParameter{"tcx"}, LabParameter{"clsact"}),
                         [](const auto &info) { return info.param.attach; });

} // namespace
} // namespace podlane::test
