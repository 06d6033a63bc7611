// SPDX-License-Identifier: MIT
// Runs generated frames through the shipped programs, and compares each outcome with the model (model.hpp).
// PODLANE_SEED=N repeats a run; PODLANE_FRAMES=N runs so many frames in all instead of a few seconds.
#pragma once

#include "tests/harness/environment.hpp"
#include "tests/packet/model_frames.hpp"

#include <bpf/bpf.h>

namespace podlane::packet {

constexpr unsigned long kModels = 7; // as many tests of a file share the wanted frames

class PromiseModel : public PacketTest {
  protected:
    using Clock = std::chrono::steady_clock;

    void prepare() override {
        for (Pod *pod : {&node().pod, &node().peer}) {
            pod->flags = usual_flags_ | more_flags_;
            pod->flags |= (pod_.is_bound ? std::uint32_t{INTERFACE_ANTI_SPOOF} : 0) |
                          (is_direct_ ? std::uint32_t{INTERFACE_FIRST_DIRECT} : 0);
            node().put(*pod);
        }
        uplink_ = node().unknown_ifindex;
        require(node().tables().counters.update(uplink_, counter_shares{}));
        uplink entry{};
        entry.networks[0] = network_id(node().pod.network);
        require(require(open_uplinks(node().root(), Access::read_write)).update(uplink_, entry));
        flows_.emplace(require(open_flows(node().root(), Access::read_write)));
        make_senders();
    }

    void make_senders() {
        pod_.mac = kPodMac;
        pod_.gateway = kHostMac;
        pod_.addresses = {pod4(), pod6(), pod_local()};
        outside_.is_pod = false;
        outside_.mac = kForeignMac;
        outside_.gateway = kHostMac;
        struct Addresses {
            ip_addr pod, peer, service, node, outside;
        };
        for (const Addresses &of :
             {Addresses{pod4(), peer4(), ip("198.19.0.1"), ip("203.0.113.2"), ip("203.0.113.9")},
              Addresses{pod6(), peer6(), ip("2001:db8:5e::1"), ip("2001:db8:cafe::2"), ip("2001:db8:cafe::9")}}) {
            pod_.flows.push_back({of.pod, of.peer, 40000, 80, of.pod, of.peer, 40000, 80, kPeerMac, kMtu});
            pod_.flows.push_back({of.pod, of.service, 40001, 80, of.pod, of.peer, 40001, 8080, kPeerMac, kMtu});
            pod_.flows.push_back({of.pod, of.service, 40002, 81, of.node, of.peer, 50002, 8080, kPeerMac, kMtu});
            outside_.flows.push_back(
                {of.outside, of.node, 50000, 30080, of.outside, of.pod, 50000, 8080, kPodMac, 1500});
            outside_.flows.push_back(
                {of.outside, of.node, 50001, 30080, of.node, of.peer, 50007, 8080, kPeerMac, kMtu});
            if (is_direct_)
                pod_.flows.push_back({of.pod, of.peer, 0, 0, of.pod, of.peer, 0, 0, kPeerMac, kMtu, true});
        }
    }
    std::vector<const ModelSender *> senders() {
        std::vector<const ModelSender *> all = {&outside_, &pod_};
        all.insert(all.end(), more_senders_.begin(), more_senders_.end());
        return all;
    }
    const Pod &pod_of(const ModelSender &sender) { return sender.pod != nullptr ? *sender.pod : node().pod; }
    // As conntrack has just confirmed them.
    void confirm() {
        confirmed_ = Clock::now();
        for (const ModelSender *sender : senders())
            for (const ModelFlow &one : sender->flows)
                for (const std::uint8_t protocol : {IPPROTO_TCP, IPPROTO_UDP}) {
                    if (one.is_direct)
                        continue;
                    const flow_key key = one.key(protocol);
                    const std::uint32_t ifindex = sender->is_pod ? pod_of(*sender).ifindex : uplink_;
                    const auto now = static_cast<std::uint64_t>(confirmed_.time_since_epoch().count());
                    require(flows_->update(key, one.confirmed(key, ifindex, now)));
                }
    }

    [[nodiscard]] std::string compare(const Model &model, const Promise &promise, const Bytes &frame,
                                      const Outcome &outcome) const {
        if (promise.demand == Demand::drop && outcome.verdict != kDropped)
            return std::string("not dropped: ") + promise.why;
        if (promise.demand == Demand::no_drop && outcome.verdict == kDropped)
            return std::string("dropped: ") + promise.why;
        if (outcome.verdict == kNext && promise.must_be_answered)
            return "not answered";
        if (outcome.verdict == kNext && promise.must_be_handed_over)
            return "not handed over to the interface that owns its source";
        if (outcome.verdict == kNext && !model.names_only_own(outcome.frame))
            return "ARP that names another sender";
        if (outcome.verdict == kNext && model.must_be_unchanged() && outcome.frame != frame)
            return "changed on its way to the host stack:\n" + hex(outcome.frame);
        if (outcome.verdict == kDropped || outcome.verdict == kNext)
            return "";
        if (promise.may_be_handed_over)
            return (outcome.mark & PODLANE_MARK) != 0 && outcome.frame == model.handed_over()
                       ? ""
                       : "handed over otherwise:\n" + hex(outcome.frame);
        if (promise.may_be_answered)
            return differs("answered", model.answer(), outcome.frame);
        if (promise.flow == nullptr)
            return "redirected without a confirmed flow";
        Bytes expected = model.delivered(*promise.flow);
        Bytes got = outcome.frame;
        if (expected.empty())
            return "";
        if (by_qdisc_ && Model::is_marked(expected, got))
            Model::mark(expected);
        if (got.size() == expected.size() && promise.must_be_delivered) {
            if (model.checksum_error(frame) != model.checksum_error(got))
                return "the transport checksum is wrong by something else";
            for (std::size_t i = 0; i < 2; ++i)
                expected[model.checksum_at() + i] = got[model.checksum_at() + i];
        }
        return differs("delivered", expected, got);
    }
    static std::string differs(const char *how, const Bytes &expected, const Bytes &got) {
        return got == expected ? "" : how + (" otherwise, expected\n" + hex(expected)) + "\ngot\n" + hex(got);
    }

    // Bytes that a limit has charged since the last time.
    std::uint64_t charged_now(const Pod &pod, std::uint32_t direction) {
        const auto now = require(limits_->find({pod.ifindex, direction}));
        std::uint64_t &before = charged_[{pod.ifindex, direction}];
        const std::uint64_t more = now ? now->bytes - before : 0;
        before += more;
        charged_in_all_ += more;
        return more;
    }
    // The charge of a packet to or from another address; none: of no IP.
    static std::uint64_t charge(const Pod &pod, limit_direction direction, const ip_addr *other, const Model &model) {
        const auto &prefixes = pod.limits.limited_prefixes.at(direction);
        const bool is_exempt = other != nullptr && (prefixes.shaped.empty() ? is_in(prefixes.unshaped, *other)
                                                                            : !is_in(prefixes.shaped, *other));
        const cni::Bandwidth of = pod.limits.bandwidth.value_or(cni::Bandwidth{});
        return is_exempt || (direction == LIMIT_EGRESS ? of.egress_rate : of.ingress_rate) == 0 ? 0
                                                                                                : model.wire_bytes();
    }
    // Everything that a limited pod sends is charged once, but what is dropped before and what the programs answer; and
    // so is everything that a limited pod gets. `from`: none if it comes by the uplink.
    std::string compare_charges(const Pod *from, const Model &model, const Promise &promise, const Outcome &outcome) {
        const bool is_redirected = outcome.verdict == kRedirected;
        const bool is_handed_over = is_redirected && promise.may_be_handed_over;
        const bool is_ended = outcome.verdict == kDropped || (is_redirected && promise.may_be_answered);
        return differing_charges([&](const Pod *pod, limit_direction direction) {
            const bool is_sender = direction == LIMIT_EGRESS && pod == from && !is_ended && !is_handed_over;
            const bool is_receiver = direction == LIMIT_INGRESS && is_redirected && promise.flow != nullptr &&
                                     promise.flow->receiver == pod->mac &&
                                     !(by_qdisc_ && (outcome.mark & PODLANE_MARK) != 0);
            const ip_addr *other = is_receiver ? &promise.flow->new_source : model.limited_address();
            return is_sender || is_receiver ? charge(*pod, direction, other, model) : 0;
        });
    }
    // `expected`: the charge of a pod in a direction.
    template <typename Expected> std::string differing_charges(const Expected &expected) {
        std::string problem;
        for (const Pod *pod : limited_)
            for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
                const std::uint64_t charged = charged_now(*pod, direction);
                const std::uint64_t wanted = expected(pod, direction);
                if (charged != wanted)
                    problem += pod->name + (direction == LIMIT_EGRESS ? " (egress)" : " (ingress)") + " is charged " +
                               std::to_string(charged) + " bytes, not " + std::to_string(wanted) + "; ";
            }
        return problem;
    }

    // Bytes of data in each segment of a frame; most are no GSO packets.
    std::size_t any_segment(std::mt19937_64 &random) {
        static constexpr std::array kHeaders = {28, 40, 48, 52, 60};
        if (random() % 4 != 0)
            return 0;
        if (random() % 2 == 0)
            return 1 + random() % 1500;
        return kMtu + random() % 2 - static_cast<std::size_t>(kHeaders.at(random() % kHeaders.size()));
    }

    // False if the model and the programs disagree. `on`: the second interface, if the first has handed it over.
    bool agrees(const ModelSender &sender, const Bytes &frame, std::size_t segment, const Pod *on = nullptr) {
        if (Clock::now() - confirmed_ > std::chrono::milliseconds(500))
            confirm();
        Model model(sender, frame, segment);
        const Promise promise = model.promise();
        How how = sender.is_pod ? How{} : How{.program = PODLANE_PROGRAM_FROM_UPLINK, .ifindex = uplink_};
        if (on != nullptr)
            how.ifindex = on->ifindex, how.mark = PODLANE_MARK;
        else if (sender.is_pod)
            how.ifindex = pod_of(sender).ifindex;
        how.gso_size = static_cast<std::uint32_t>(segment);
        how.gso_segments = segment == 0 ? 0 : static_cast<std::uint32_t>(frame.size() / segment + 1);
        Outcome outcome;
        if (!node().try_run(frame, how, outcome))
            return true;
        ran_ += on == nullptr ? 1 : 0;
        std::string problem = compare(model, promise, frame, outcome);
        if (promise.must_be_delivered && promise.flow != nullptr && outcome.verdict != kRedirected &&
            Clock::now() - confirmed_ < std::chrono::milliseconds(900))
            problem = "a confirmed flow was not delivered";
        if (promise.ends_flow)
            confirm();
        if (problem.empty() && limits_)
            problem = compare_charges(!sender.is_pod  ? nullptr
                                      : on != nullptr ? on
                                                      : &pod_of(sender),
                                      model, promise, outcome);
        if (problem.empty())
            problem = compare_more(sender, frame, how, model, outcome);
        note(promise, outcome, segment);
        if (!problem.empty())
            ADD_FAILURE() << (on != nullptr   ? std::string("handed over by a pod: ")
                              : sender.is_pod ? "from " + pod_of(sender).name + ": "
                                              : "from the uplink: ")
                          << problem << "\nthe frame\n"
                          << hex(frame) << "\nsegments of " << segment << " bytes, verdict " << outcome.verdict;
        if (!problem.empty() || outcome.verdict != kRedirected || !promise.may_be_handed_over)
            return problem.empty();
        ++handed_over_;
        return agrees(second_sender_, outcome.frame, segment, &second_);
    }
    void note(const Promise &promise, const Outcome &outcome, std::size_t segment) {
        const bool is_delivered = outcome.verdict == kRedirected && promise.flow != nullptr;
        dropped_ += promise.demand == Demand::drop ? 1 : 0;
        delivered_ += is_delivered ? 1 : 0;
        of_segments_ += is_delivered && segment != 0 ? 1 : 0;
    }
    // Between two batches of frames.
    virtual void change() {}
    // After each frame, of what else is promised; empty if that holds.
    virtual std::string compare_more(const ModelSender & /*sender*/, const Bytes & /*frame*/, const How & /*how*/,
                                     const Model & /*model*/, const Outcome & /*outcome*/) {
        return "";
    }
    // Frames are generated until then, or for eleven times as long.
    [[nodiscard]] virtual bool has_seen_all() const { return true; }
    // `tests`: so many share the wanted frames.
    void hold_for_generated_frames(std::chrono::seconds most, unsigned long tests = kModels);
    // Of all packets, each under one reason.
    std::uint64_t counted() {
        std::uint64_t sum = 0;
        std::set<std::uint32_t> all_ifindexes = {uplink_};
        for (const ModelSender *sender : senders())
            if (sender->is_pod)
                all_ifindexes.insert(pod_of(*sender).ifindex);
        for (const std::uint32_t ifindex : all_ifindexes) {
            const counters all = require(sum_of(node().tables().counters, ifindex));
            for (int i = 0; i < COUNTER_REASONS; ++i)
                if (i != REASON_RECEIVED_DIRECT && i != REASON_RECEIVED_UPLINK && i != REASON_RECEIVED_HOST)
                    sum += all.by_reason[i].packets;
        }
        return sum;
    }

    ModelSender pod_;
    ModelSender outside_;
    std::vector<const ModelSender *> more_senders_{};
    std::uint32_t usual_flags_ = INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK | INTERFACE_GATEWAY;
    std::uint32_t uplink_ = 0;
    std::optional<Flows> flows_;
    Clock::time_point confirmed_{};
    std::uint64_t ran_ = 0;
    std::uint64_t dropped_ = 0;
    std::uint64_t delivered_ = 0, of_segments_ = 0;
    std::uint64_t one_delivered_in_ = 50; // at least
    bool is_direct_ = false;
    std::uint32_t more_flags_ = 0;
    Pod second_{}; // the pod's other interface, if it has one
    ModelSender second_sender_;
    std::vector<ip_addr> more_addresses_{};
    std::uint64_t handed_over_ = 0;
    std::optional<LimitStates> limits_;
    bool by_qdisc_ = false; // what the fast path marks is charged at the egress of the receiver's host-side veth
    std::vector<const Pod *> limited_{};
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> charged_; // by ifindex and direction
    std::uint64_t charged_in_all_ = 0;
};

inline void PromiseModel::hold_for_generated_frames(std::chrono::seconds most, unsigned long tests) {
    const auto seed = test::printed_seed();
    const auto wanted = test::number_from("PODLANE_FRAMES", 0) / tests;
    std::mt19937_64 random(seed);
    std::vector<ip_addr> addresses = {pod4(),
                                      pod4(),
                                      peer4(),
                                      ip("192.0.2.30"),
                                      ip("198.19.0.1"),
                                      ip("203.0.113.2"),
                                      ip("203.0.113.9"),
                                      ip("127.0.0.1"),
                                      ip("0.0.0.0"),
                                      ip("224.0.0.1"),
                                      ip("255.255.255.255"),
                                      gateway4(),
                                      pod6(),
                                      pod6(),
                                      pod_local(),
                                      peer6(),
                                      ip("2001:db8::30"),
                                      ip("2001:db8:5e::1"),
                                      ip("2001:db8:cafe::2"),
                                      ip("::"),
                                      ip("::1"),
                                      ip("ff02::1"),
                                      ip("ff02::1:ff00:10"),
                                      gateway6(),
                                      ip("fe80::1")};
    addresses.insert(addresses.end(), more_addresses_.begin(), more_addresses_.end());
    std::vector<std::pair<const ModelSender *, ModelFrames>> all;
    for (const ModelSender *sender : senders())
        all.emplace_back(sender, ModelFrames(*sender, addresses, random));
    const auto end = Clock::now() + most;
    confirm();
    const std::uint64_t before = counted();
    do {
        change();
        for (int i = 0; i < 256; ++i) {
            auto &[sender, frames] = random() % 4 == 0 ? all.front() : all[1 + random() % (all.size() - 1)];
            ASSERT_TRUE(agrees(*sender, frames.next(), any_segment(random)))
                << "PODLANE_SEED=" << seed << ", frame " << ran_;
        }
    } while (wanted != 0 ? ran_ < wanted : Clock::now() < end + (has_seen_all() ? 0 : 10) * most);
    std::cout << ran_ << " frames, " << dropped_ << " had to be dropped, " << delivered_ << " delivered, "
              << of_segments_ << " of them of GSO" << std::endl;
    EXPECT_EQ(counted() - before, ran_);
    EXPECT_EQ(dropped_ > ran_ / 50, pod_.is_bound);
    EXPECT_GT(delivered_, ran_ / one_delivered_in_);
    EXPECT_GT(of_segments_, ran_ / 500);
}

} // namespace podlane::packet
