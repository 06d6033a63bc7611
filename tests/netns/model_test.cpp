// SPDX-License-Identifier: MIT
// The frames and the model of tests/packet/model.hpp on real veths: what a hostile pod or a host on the uplink sends
// goes through the kernel, with what the kernel leaves to the network card, before the programs see it. PODLANE_SEED=N
// repeats a run; PODLANE_FRAMES=N sends so many frames instead of a few seconds.
#include "tests/harness/environment.hpp"
#include "tests/netns/model_charge.hpp"
#include "tests/netns/model_promise.hpp"

#include "tests/packet/model_frames.hpp"

namespace podlane::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBatch = 64;
constexpr unsigned long kChargeShare = 20; // of the frames that are wanted: each is waited for

// The attacker sends what the model lets it send, and nothing forged arrives.
class GeneratedOnVeths : public PromiseOnVeths {
  protected:
    void hold_for_generated_frames();
};

void GeneratedOnVeths::hold_for_generated_frames() {
    const auto seed = printed_seed();
    const auto wanted = number_from("PODLANE_FRAMES", 0);
    std::mt19937_64 random(seed);
    packet::ModelFrames pods(pod_, addresses(), random);
    packet::ModelFrames others(outside_, addresses(), random);
    const Wire wire = attacker_.wire();
    const Wire outside(lab_->outside(), "eth0");
    const Wire receiver = victim_.wire();
    const auto end = Clock::now() + std::chrono::seconds(3);
    do {
        std::vector<Sent> to_drop;
        std::vector<Sent> to_pass;
        while (to_drop.size() < kBatch && to_pass.size() < kBatch) {
            Sent one{pods.next(), {}};
            one.left = any_left(one.frame, random);
            const packet::Promise promise = model_of(pod_, one.frame, one.left).promise();
            if (promise.demand != Demand::none)
                (promise.demand == Demand::drop ? to_drop : to_pass).push_back(std::move(one));
        }
        expect_agrees(wire, to_drop, Demand::drop, "not dropped");
        expect_agrees(wire, to_pass, Demand::no_drop, "dropped");
        for (std::size_t i = 0; i < kBatch; ++i) {
            Sent one{others.next(), {}};
            one.left = any_left(one.frame, random);
            (void)send(outside, one);
        }
        for (const Bytes &frame : receiver.arrived())
            EXPECT_FALSE(is_foreign(frame, of_node_, victim_.gateway_mac)) << "arrived: " << hex(frame);
        ASSERT_EQ(counted(REASON_KIND_FAST), 0U) << "by the fast path";
        ASSERT_FALSE(HasFailure()) << "PODLANE_SEED=" << seed;
        ASSERT_TRUE(is_half_sent()) << run_so_far();
    } while (wanted != 0 ? sent_ < wanted : Clock::now() < end);
    std::cout << run_so_far() << std::endl;
    EXPECT_GT(sent_, tried_ / 2);
}

TEST_P(GeneratedOnVeths, HoldsForGeneratedFrames) { hold_for_generated_frames(); }

// Of a pod that may send LLDP and tagged frames, too.
class EtherTypesOnVeths : public GeneratedOnVeths {
  protected:
    void prepare() override {
        GeneratedOnVeths::prepare();
        pod_.ether_types = {"lldp", "vlan"};
    }
    [[nodiscard]] Json attacker_keys() const override { return {{"allowedEtherTypes", {"lldp", "vlan"}}}; }
};

TEST_P(EtherTypesOnVeths, HoldsForGeneratedFrames) { hold_for_generated_frames(); }

INSTANTIATE_TEST_SUITE_P(All, EtherTypesOnVeths, testing::Values(LabParameter{"tcx"}, LabParameter{"clsact"}),
                         [](const auto &info) { return info.param.attach; });

// Frames of confirmed flows pass the closed FORWARD chain, byte by byte as the model says, and no others do.
class ConfirmedOnVeths : public PromiseOnVeths {
  protected:
    struct Expected {
        std::size_t must = 0;                               // arrive so often at least, ...
        std::size_t may = 0;                                // ... and so often more
        std::vector<std::optional<std::uint16_t>> errors{}; // of the transport checksum
    };
    using Arriving = std::map<Bytes, Expected>;

    void prepare() override {
        PromiseOnVeths::prepare();
        flows_.emplace(require(open_flows(lab_->node().bpffs(), Access::read_write)));
        from_outside_.emplace(lab_->outside(), "eth0");
        for (const bool v4 : {true, false}) {
            const ip_addr far = ip(v4 ? Lab::kOutside4 : Lab::kOutside6);
            const ip_addr &to = victim_.addr(v4);
            const ip_addr &own = attacker_.addr(v4);
            const ip_addr service = ip(v4 ? "198.19.0.1" : "2001:db8:5e::1");
            const ip_addr node = ip(v4 ? Lab::kNode4 : Lab::kNode6);
            pod_.flows.push_back({own, service, 40002, 80, own, to, 40002, 8080, victim_.mac, victim_.mtu});
            pod_.flows.push_back({own, service, 40003, 80, own, far, 40003, 8080, outside_.mac, 1500});
            outside_.flows.push_back({far, node, 50002, 30080, far, to, 50002, 8080, victim_.mac, victim_.mtu});
            lab_->node().run("ip neigh replace " + to_string(far) + " lladdr " + to_string(outside_.mac) +
                             " dev up0 nud permanent");
        }
        // Who gets a packet of a connection that it does not know would end it; the node would have conntrack confirm
        // it.
        for (const char *tables : {"iptables", "ip6tables"})
            lab_->node().run(std::string(tables) + " -I INPUT -i up0 -j DROP");
        for (const net::Namespace *ns : {&victim_.ns(), &lab_->outside()})
            for (const char *tables : {"iptables", "ip6tables"})
                (void)must_run(*ns, words(std::string(tables) + " -P OUTPUT DROP"));
        const net::Entered on_node = require(net::enter(lab_->node().ns()));
        uplink_ = if_nametoindex("up0");
    }
    void begin() {
        confirmed_ = Clock::now();
        confirm();
    }
    void confirm() {
        for (const ModelSender *sender : {&pod_, &outside_})
            for (const packet::ModelFlow &one : sender->flows)
                confirm_flow(*flows_, one, sender->is_pod ? attacker_.ifindex : uplink_);
    }
    // Without the transport checksum, which a translation changes, and MACs that are right.
    static Bytes normal(const packet::Model &model, Bytes frame, const Mac &to, const Mac &from, const Offload &left) {
        if (frame.size() >= model.checksum_at() + 2)
            frame[model.checksum_at()] = frame[model.checksum_at() + 1] = 0;
        if (std::ranges::equal(std::span(frame).first(6), to) &&
            std::ranges::equal(std::span(frame).subspan(6, 6), from))
            std::fill_n(frame.begin(), 12, std::uint8_t{0});
        append(frame, to_string(left));
        return frame;
    }
    static void append(Bytes &out, const std::string &text) { out.insert(out.end(), text.begin(), text.end()); }
    // Sends it, and notes where it is to arrive.
    void send_and_expect(const ModelSender &sender, const Sent &one, Arriving &at_victim, Arriving &at_outside) {
        packet::Model model = model_of(sender, one.frame, one.left);
        const packet::Promise promise = model.promise();
        Bytes frame = promise.flow == nullptr ? Bytes{} : model.delivered(*promise.flow);
        if (promise.flow != nullptr && frame.empty()) // its header is wrong, which a network card finds
            return;
        if (!send(sender.is_pod ? attacker_wire() : *from_outside_, one))
            return;
        if (promise.ends_flow)
            confirm();
        if (promise.flow == nullptr)
            return;
        const bool leaves = promise.flow->receiver == outside_.mac;
        std::ranges::copy(leaves ? node_mac_ : victim_.gateway_mac, frame.begin() + 6);
        const Bytes key =
            normal(model, frame, promise.flow->receiver, leaves ? node_mac_ : victim_.gateway_mac, one.left);
        Expected &expected = (leaves ? at_outside : at_victim)[key];
        ++(promise.must_be_delivered ? expected.must : expected.may);
        if (promise.must_be_delivered && !one.left.checksum)
            expected.errors.push_back(model.checksum_error(one.frame));
    }
    [[nodiscard]] const Wire &attacker_wire() {
        if (!attacker_wire_)
            attacker_wire_.emplace(attacker_.ns(), "eth0");
        return *attacker_wire_;
    }
    // The difference between what has arrived and what was expected; empty if there is none.
    [[nodiscard]] std::string difference(const Wire &wire, const Wire &marking, const Mac &from, Arriving &expected) {
        const Bytes marker = frame(wire.mac(), marking.mac(), 0x88b5, pattern(60 + ++marked_ % 100));
        marking.send(marker);
        const auto caught = wire.caught_until([&](const Bytes &one) { return one == marker; }, patience());
        if (!caught)
            return "a marker was lost";
        for (const Caught &one : *caught) {
            if (!is_foreign(one.frame, of_node_, from))
                continue;
            const ModelSender anybody{.is_pod = false};
            packet::Model model(anybody, one.frame, one.left.segment_bytes);
            (void)model.promise();
            const auto found = expected.find(normal(model, one.frame, wire.mac(), from, one.left));
            if (found == expected.end() || found->second.must + found->second.may == 0)
                return "arrived: " + hex(one.frame) + to_string(one.left);
            --(found->second.must != 0 ? found->second.must : found->second.may);
            const auto &errors = found->second.errors;
            if (!errors.empty() && std::ranges::find(errors, model.checksum_error(one.frame)) == errors.end())
                return "arrived with another checksum: " + hex(one.frame);
            ++arrived_;
        }
        for (const auto &[lost, left] : expected)
            if (left.must != 0 && Clock::now() - confirmed_ < std::chrono::milliseconds(800))
                return "lost: " + hex(lost);
        return "";
    }
    OneCpu one_cpu_;
    std::optional<Flows> flows_;
    std::optional<Wire> from_outside_, attacker_wire_;
    std::uint32_t uplink_ = 0;
    std::uint32_t marked_ = 0;
    std::uint64_t arrived_ = 0;
    Clock::time_point confirmed_{}; // all are, for a second from then on
};

TEST_P(ConfirmedOnVeths, ArriveAsTheModelSays) {
    const auto seed = printed_seed();
    const auto wanted = number_from("PODLANE_FRAMES", 0);
    std::mt19937_64 random(seed);
    packet::ModelFrames pods(pod_, addresses(), random);
    packet::ModelFrames others(outside_, addresses(), random);
    const Wire victim = victim_.wire();
    const Wire to_victim(lab_->node().ns(), victim_.host_ifname);
    const Wire to_outside(lab_->node().ns(), "up0");
    const auto end = Clock::now() + std::chrono::seconds(3);
    do {
        Arriving at_victim, at_outside;
        begin();
        for (std::size_t i = 0; i < kBatch / 2; ++i) {
            const bool from_pod = random() % 4 != 0;
            Sent one{(from_pod ? pods : others).next(), {}};
            one.left = any_left(one.frame, random);
            send_and_expect(from_pod ? pod_ : outside_, one, at_victim, at_outside);
        }
        ASSERT_EQ(difference(victim, to_victim, victim_.gateway_mac, at_victim), "") << "PODLANE_SEED=" << seed;
        ASSERT_EQ(difference(*from_outside_, to_outside, node_mac_, at_outside), "") << "PODLANE_SEED=" << seed;
        ASSERT_TRUE(is_half_sent()) << run_so_far();
    } while (wanted != 0 ? sent_ < wanted : Clock::now() < end);
    std::cout << run_so_far() << ", " << arrived_ << " by the fast path" << std::endl;
    EXPECT_GT(arrived_, sent_ / 20);
}

INSTANTIATE_TEST_SUITE_P(All, ConfirmedOnVeths, testing::Values(LabParameter{"tcx"}, LabParameter{"clsact"}),
                         [](const auto &info) { return info.param.attach; });

TEST_P(ChargeOnVeths, IsThatOfTheModel) {
    const auto seed = printed_seed();
    const auto wanted = number_from("PODLANE_FRAMES", 0) / kChargeShare;
    std::mt19937_64 random(seed);
    std::vector<packet::ModelFrames> frames;
    for (const ModelSender *one : {&of_first_, &of_second_, &outside_})
        frames.emplace_back(*one, addresses_, random);
    const auto end = Clock::now() + std::chrono::seconds(4);
    do {
        confirm();
        std::vector<std::pair<From, Sent>> batch;
        for (std::size_t i = 0; i < kBatch; ++i) {
            const From from = std::array{kFirst, kFirst, kSecond, kOutside}.at(random() % 4);
            Sent one{frames.at(from).next(), {}};
            one.left = any_left(one.frame, random);
            if (!is_within(as_read(one.frame), as_read(one.frame, one.left)))
                one.left = {};
            const std::string problem = problem_of(from, one);
            ASSERT_EQ(problem, "") << shown(from, one) << ", PODLANE_SEED=" << seed;
            batch.emplace_back(from, std::move(one));
        }
        ASSERT_TRUE(is_charged_for_all(batch)) << "PODLANE_SEED=" << seed;
    } while (wanted != 0 ? sent_ < wanted : Clock::now() < end);
    std::cout << sent_ << " frames of the container, " << handed_over_ << " handed over, " << of_discovery_
              << " of discovery charged with a checksum to be written" << std::endl;
    EXPECT_GT(handed_over_, sent_ / 100);
    if (sent_ > 20000) { // they are rare
        EXPECT_GT(of_discovery_, sent_ / 15000);
    }
    for (const LimitedEnd *one : ends())
        EXPECT_GT(one->arrived(), sent_) << "bytes";
}

INSTANTIATE_TEST_SUITE_P(All, ChargeOnVeths, testing::Values(LabParameter{"tcx"}, LabParameter{"clsact"}),
                         [](const auto &info) { return info.param.attach; });

INSTANTIATE_TEST_SUITE_P(All, GeneratedOnVeths, testing::Values(LabParameter{"tcx"}, LabParameter{"clsact"}),
                         [](const auto &info) { return info.param.attach; });

} // namespace
} // namespace podlane::test
