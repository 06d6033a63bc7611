// SPDX-License-Identifier: MIT
// The model of a pod whose MAC is learned (docs/decisions/0023-the-mac-of-a-routed-pod-may-change.md): which frames
// teach one, by which one the pod is reached from then on, and whom the program answers for.
#include "tests/packet/promise_model.hpp"

namespace podlane::packet {
namespace {

// A frame as the link of its sender has it: the MAC that it teaches, if any, and the neighbour that it looks for.
class RoutedReader : private NeighbourReader {
  public:
    RoutedReader(const ModelSender &sender, const Bytes &frame) : NeighbourReader(sender, frame, 0) { read(); }

    [[nodiscard]] Mac from() const {
        Mac mac{};
        std::copy_n(frame_.begin() + 6, mac.size(), mac.begin());
        return mac;
    }
    // The address that it announces its MAC for; none: nothing may be learned from it.
    [[nodiscard]] std::optional<ip_addr> announced() const {
        const Mac mac = from(); // of one station; a test run has tags in the frame, and they hide what is behind
        if ((mac[0] & 1U) != 0 || tagged_)
            return {};
        if (is_discovery()) { // RFC 6980: no host takes it from a fragment
            const bool names_sender = frame_[l4_] == 135 || frame_[l4_] == 136;
            return names_sender && !first_fragment_ && own(source_) ? std::optional(source_) : std::nullopt;
        }
        if (type_ != 0x0806 || !has(l3_ + 28) || word(l3_) != 1 || word(l3_ + 2) != 0x0800 ||
            !std::equal(mac.begin(), mac.end(), frame_.begin() + 22))
            return {};
        const ip_addr sender = address(l3_ + 14, true);
        return own(sender) ? std::optional(sender) : std::nullopt;
    }
    // Whom it looks for on the link, by a sender that has an address.
    [[nodiscard]] std::optional<ip_addr> next_hop() const {
        const bool is_arp =
            type_ == 0x0806 && has(l3_ + 28) && word(l3_ + 6) == 1 && (word(l3_ + 14) != 0 || word(l3_ + 16) != 0);
        if (tagged_ || !(is_arp || (is_discovery() && frame_[l4_] == 135 && has(l4_ + 24) && !is_none(source_))))
            return {};
        const ip_addr target = is_arp ? address(l3_ + 24, true) : address(l4_ + 8, false);
        return own(target) ? std::nullopt : std::optional(target);
    }
};

// The pod is routed, and sends by its own MAC, by others, and announces some of them. Its peer is not, and sends to it;
// so does whoever is beyond the uplink, and the host stack.
class RoutedModel : public PromiseModel {
  protected:
    static constexpr std::array<Mac, 7> kMacs = {
        kPodMac, kForeignMac, kPeerMac, Mac{0x02, 0, 0, 0, 0, 0x67}, Mac{}, kBroadcastMac, Mac{0x33, 0x33, 0, 0, 0, 1}};

    void prepare() override {
        PromiseModel::prepare();
        node().put_with(node().pod, INTERFACE_ROUTED);
        pod_.pod = &node().pod;
        peer_.mac = kPeerMac;
        peer_.gateway = kHostMac;
        peer_.addresses = {peer4(), peer6(), link_local_from_mac(kPeerMac)};
        peer_.pod = &node().peer;
        for (const auto &[from, to] : {std::pair(peer4(), pod4()), {peer6(), pod6()}})
            peer_.flows.push_back({from, to, 40000, 80, from, to, 40000, 80, kPodMac, 1500});
        more_senders_ = {&peer_};
        other_macs_ = pod_;
        for (const char *one : {"192.0.2.10", "192.0.2.10", "192.0.2.20", "198.19.0.1", "203.0.113.2", "203.0.113.9",
                                "0.0.0.0", "127.0.0.1", "169.254.1.1", "2001:db8::10", "2001:db8::10", "2001:db8::20",
                                "2001:db8:5e::1", "2001:db8:cafe::9", "fe80::ecee:eeff:feee:eeee", "::", "ff02::1"})
            all_.push_back(ip(one));
        all_.push_back(pod_local());
    }
    // Now and then all is again as after the ADD.
    void change() override {
        if (changes_++ % 4 != 0)
            return;
        interface entry = require(node().tables().interfaces.find(node().pod.ifindex)).value();
        entry.flags &= ~std::uint32_t{INTERFACE_MAC_LEARNED};
        std::ranges::copy(kPodMac, entry.pod_mac);
        require(node().tables().interfaces.replace(node().pod.ifindex, entry));
        reached_by_.clear();
        for (const ip_addr &one : node().pod.addresses) {
            const address_key key{network_id(node().pod.network), one};
            address owner = require(node().tables().addresses.find(key)).value();
            std::ranges::copy(kPodMac, owner.pod_mac);
            require(node().tables().addresses.replace(key, owner));
            reached_by_.emplace_back(one, std::set<Mac>{kPodMac});
        }
        pod_.mac = kPodMac;
        has_learned_ = false;
    }

    // False if the model and the programs disagree.
    bool holds(ModelSender &sender, const Bytes &frame, std::size_t segment) {
        if (Clock::now() - confirmed_ > std::chrono::milliseconds(500))
            confirm();
        How how = sender.is_pod ? How{} : How{.program = PODLANE_PROGRAM_FROM_UPLINK};
        how.ifindex = sender.is_pod ? pod_of(sender).ifindex : uplink_;
        how.gso_size = static_cast<std::uint32_t>(segment);
        how.gso_segments = segment == 0 ? 0 : static_cast<std::uint32_t>(frame.size() / segment + 1);
        Outcome outcome;
        if (!node().try_run(frame, how, outcome))
            return true;
        ++ran_;
        std::string problem = sender.is_pod ? compare_taught(sender, frame) : "";
        Model model(sender, frame, segment); // by the MAC that is learned now
        const Promise promise = model.promise();
        if (outcome.verdict == kRedirected)
            expect_receiver(sender, outcome.frame);
        if (problem.empty())
            problem = compare_sent(sender, model, promise, frame, outcome);
        if (promise.must_be_delivered && promise.flow != nullptr && outcome.verdict != kRedirected &&
            Clock::now() - confirmed_ < std::chrono::milliseconds(900))
            problem = "a confirmed flow was not delivered";
        if (promise.ends_flow)
            confirm();
        if (problem.empty() && outcome.verdict == kNext)
            problem = compare_by_host(model, frame, how);
        note(promise, outcome, segment);
        if (outcome.verdict == kRedirected && promise.flow != nullptr)
            followed_ += is_of_pod(promise.flow->new_destination) && promise.flow->receiver != kPodMac ? 1 : 0;
        if (!problem.empty())
            ADD_FAILURE() << "from " << (sender.is_pod ? pod_of(sender).name : "the uplink") << ": " << problem
                          << "\nthe frame\n"
                          << hex(frame) << "\nsegments of " << segment << " bytes, verdict " << outcome.verdict
                          << ", the pod's MAC " << to_string(pod_.mac) << (has_learned_ ? ", learned" : "");
        return problem.empty();
    }

    // Which MAC the sender has from now on. An announcement that is dropped for something else that it claims may
    // teach: it harms only its sender.
    std::string compare_taught(ModelSender &sender, const Bytes &frame) {
        const interface entry = require(node().tables().interfaces.find(pod_of(sender).ifindex)).value();
        const RoutedReader read(sender, frame);
        const Mac before = sender.mac, after = to_mac(entry.pod_mac), from = read.from();
        const auto announced = &sender == &pod_ ? read.announced() : std::nullopt;
        if (!announced) {
            refused_ += from != before ? 1 : 0;
            return after == before ? "" : "announces nothing, and has taught " + to_string(after);
        }
        sender.mac = from;
        const bool must_teach = Model(sender, frame).promise().demand == Demand::no_drop;
        sender.mac = after;
        if (after != from)
            return must_teach || after != before ? to_string(from) + " is announced, and not learned" : "";
        taught_ += after != before ? 1 : 0;
        has_learned_ |= after != before;
        for (auto &[addr, macs] : reached_by_)
            if (addr == *announced) {
                if (must_teach)
                    macs.clear();
                macs.insert(after);
            }
        return "";
    }
    // An address has the MAC that the pod has, or at least the one that was last announced for it.
    void expect_receiver(ModelSender &sender, const Bytes &got) {
        Mac to{};
        std::copy_n(got.begin(), to.size(), to.begin());
        for (ModelFlow &flow : sender.flows)
            for (const auto &[addr, macs] : reached_by_)
                if (flow.new_destination == addr)
                    flow.receiver = macs.contains(to) ? to : pod_.mac;
    }
    // A pod that has lost its neighbours with its MAC finds all of them again at the host-side veth.
    std::string compare_sent(const ModelSender &sender, const Model &model, const Promise &promise, const Bytes &frame,
                             const Outcome &outcome) {
        const RoutedReader read(sender, frame);
        const auto hop = has_learned_ && &sender == &pod_ ? read.next_hop() : std::nullopt;
        if (!hop || promise.may_be_answered || promise.demand == Demand::drop || outcome.verdict == kDropped)
            return compare(model, promise, frame, outcome);
        if (outcome.verdict == kRedirected) {
            ++hops_;
            return differs("answered", answer_for(*hop, model, read.from(), frame), outcome.frame);
        }
        const bool is_usual = !model.is_ip() || model.is_plain();
        return promise.demand == Demand::no_drop && is_usual ? "a next hop has no answer"
                                                             : compare(model, promise, frame, outcome);
    }
    static Bytes answer_for(const ip_addr &hop, const Model &model, const Mac &from, const Bytes &frame) {
        constexpr std::uint32_t kRouterSolicitedOverride = 0xe0000000U;
        if (model.is_ip())
            return advertisement({from, kHostMac}, hop, model.source(), kRouterSolicitedOverride);
        Bytes out = model.answer(); // as of the gateway
        std::copy_n(frame.begin() + 38, 4, out.begin() + 28);
        return out;
    }
    // The host stack sends by the MAC of the ADD, or to all on the link.
    std::string compare_by_host(const Model &model, const Bytes &frame, const How &how) {
        if (!is_of_pod(model.destination()) || !model.is_plain() || !model.is_header_right())
            return "";
        const bool is_for_all = ran_ % 4 == 0;
        Bytes sent = frame;
        std::ranges::copy(is_for_all ? kBroadcastMac : kPodMac, sent.begin());
        std::ranges::copy(kHostMac, sent.begin() + 6);
        How there = how;
        there.program = PODLANE_PROGRAM_TO_POD;
        there.ifindex = node().pod.ifindex;
        there.came_by = how.ifindex;
        Outcome arrived;
        if (!node().try_run(sent, there, arrived))
            return "the kernel refuses what its host stack delivers";
        if (arrived.verdict != kNext)
            return "lost on its way from the host stack";
        by_host_ += has_learned_ ? 1 : 0;
        if (!is_for_all)
            std::ranges::copy(pod_.mac, sent.begin());
        return differs("delivered by the host stack", sent, arrived.frame);
    }

    [[nodiscard]] bool is_of_pod(const ip_addr &addr) const { return is_one_of(pod_.addresses, addr); }
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
    const Mac &any_mac() { return kMacs.at(below(kMacs.size())); }
    ip_addr any_address(bool v4) {
        for (;;)
            if (const ip_addr &one = all_.at(below(all_.size())); is_ipv4(one) == v4)
                return one;
    }
    // Of some MAC for one of the sender's addresses, and often wrong in some way.
    Bytes announcement(const ModelSender &sender) {
        const Mac &mac = any_mac();
        const Mac &inside = below(8) == 0 ? any_mac() : mac;
        const Ethernet link{below(2) == 0 ? kBroadcastMac : kHostMac, mac};
        Bytes out = below(2) == 0 ? arp_announcement(link, sender, inside) : nd_announcement(link, sender, inside);
        return below(8) == 0 ? tagged(std::move(out), {Tag{}}) : out;
    }
    Bytes arp_announcement(const Ethernet &link, const ModelSender &sender, const Mac &inside) {
        const ip_addr &own = sender.addresses.at(0);
        Arp arp{static_cast<std::uint16_t>(1 + below(2)), inside, below(8) == 0 ? any_address(true) : own,
                below(2) == 0 ? own : any_address(true)};
        arp.hardware = below(8) == 0 ? 6 : 1;
        arp.protocol = below(8) == 0 ? 0x86dd : 0x0800;
        arp.hardware_size = below(8) == 0 ? 8 : 6;
        return link / arp / Bytes(18 * below(2));
    }
    Bytes nd_announcement(const Ethernet &link, const ModelSender &sender, const Mac &inside) {
        const ip_addr &own = sender.addresses.at(1 + below(2));
        const auto hop_limit = static_cast<std::uint8_t>(below(8) == 0 ? 64 : 255);
        const auto type = static_cast<std::uint8_t>(below(8) == 0 ? 133 + below(5) : 135 + below(2));
        Frame head = link / Ipv6{below(8) == 0 ? any_address(false) : own, ip("ff02::1"), hop_limit};
        if (below(8) == 0)
            head = head / Extension{IPPROTO_FRAGMENT, 1, static_cast<std::uint16_t>(below(2))};
        else if (below(8) == 0)
            head = head / Extension{};
        return head / Nd{type, below(2) == 0 ? own : any_address(false)} /
               nd_option(static_cast<std::uint8_t>(1 + below(2)), inside);
    }

    std::mt19937_64 random_{};
    std::vector<ip_addr> all_{};
    ModelSender peer_, other_macs_;
    std::vector<std::pair<ip_addr, std::set<Mac>>> reached_by_{}; // more than one, if an announcement was dropped
    bool has_learned_ = false;
    unsigned changes_ = 0;
    std::uint64_t taught_ = 0, refused_ = 0, followed_ = 0, hops_ = 0, by_host_ = 0;
};

TEST_F(RoutedModel, HoldsForGeneratedFrames) {
    const auto seed = test::printed_seed();
    const auto wanted = test::number_from("PODLANE_FRAMES", 0);
    random_.seed(seed);
    ModelFrames of_pod(pod_, all_, random_), of_other_macs(other_macs_, all_, random_), of_peer(peer_, all_, random_),
        of_uplink(outside_, all_, random_);
    const auto next = [&]() -> std::pair<ModelSender *, Bytes> {
        const std::size_t kind = below(8);
        if (kind < 2) {
            ModelSender &sender = below(8) == 0 ? peer_ : pod_;
            return {&sender, announcement(sender)};
        }
        if (kind == 2) {
            other_macs_.mac = any_mac();
            return {&pod_, of_other_macs.next()};
        }
        if (kind > 3)
            return kind < 6 ? std::pair(&peer_, of_peer.next()) : std::pair(&outside_, of_uplink.next());
        Bytes frame = of_pod.next();
        if (below(4) != 0) // it was made before the last MAC was learned
            std::ranges::copy(pod_.mac, frame.begin() + 6);
        return {&pod_, frame};
    };
    const auto end = Clock::now() + std::chrono::seconds(2);
    const std::uint64_t before = counted();
    do {
        change();
        for (int i = 0; i < 256; ++i) {
            const auto [sender, frame] = next();
            ASSERT_TRUE(holds(*sender, frame, any_segment(random_))) << "PODLANE_SEED=" << seed << ", frame " << ran_;
        }
    } while (wanted != 0 ? ran_ < wanted : Clock::now() < end);
    std::cout << ran_ << " frames, " << dropped_ << " had to be dropped; " << taught_ << " taught a MAC, " << refused_
              << " of another MAC had to teach none; " << followed_ << " were delivered by a learned one, " << by_host_
              << " by the host stack; " << hops_ << " next hops were answered" << std::endl;
    EXPECT_EQ(counted() - before, ran_);
    EXPECT_GT(dropped_, ran_ / 50);
    EXPECT_GT(taught_, ran_ / 100);
    EXPECT_GT(refused_, ran_ / 100);
    EXPECT_GT(followed_, ran_ / 500);
    EXPECT_GT(by_host_, ran_ / 1000);
    EXPECT_GT(hops_, ran_ / 1000);
}

} // namespace
} // namespace podlane::packet
