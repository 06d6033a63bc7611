// SPDX-License-Identifier: MIT
// Frames that the model (tests/packet/model.hpp) does not let the programs drop, over a node with them and one without:
// what the second forwards, delivers or answers, the first does too, byte by byte. PODLANE_SEED=N repeats a run;
// PODLANE_FRAMES=N sends so many frames to each instead of a few seconds.
#include "tests/harness/environment.hpp"
#include "tests/netns/model_twin.hpp"
#include "tests/packet/model_frames.hpp"

#include <net/if.h>

namespace podlane::test {
namespace {

using packet::Model;
using packet::ModelFlow;
using packet::ModelSender;
using Clock = std::chrono::steady_clock;
using Unit = std::vector<Sent>; // a frame, or its fragments

constexpr std::size_t kBatch = 32;
constexpr std::size_t kPeerMtu = 1400;

struct Setting {
    std::string name;
    LabParameter lab;
    Json keys = Json::object();
    bool is_bound = true;   // by anti-spoofing
    bool is_tracked = true; // connections begin on the slow path, and ADD enables conntrack for it
    bool is_routed = true;  // everything by the routes of the node
};
void PrintTo(const Setting &of, std::ostream *out) { *out << of.name; }

class LossOnVeths : public LabTestOf<Setting> {
  protected:
    [[nodiscard]] const LabParameter &lab_parameter() const override { return GetParam().lab; }
    void prepare() override {
        Json keys = GetParam().keys;
        keys["firstPacket"] = GetParam().is_tracked ? "host" : "direct";
        keys["clusterCIDRs"] = {Lab::kPods4, Lab::kPods6};
        const Pod pod = add_pod(keys);
        keys["mtu"] = kPeerMtu;
        const Pod peer = add_pod(keys);
        keep_mac(*lab_, pod);
        const Pod bare = twin_.add_pod(ptp(1500));
        const Pod bare_peer = twin_.add_pod(ptp(kPeerMtu));
        ASSERT_EQ(to_string(pod.v6) + to_string(peer.v4), to_string(bare.v6) + to_string(bare_peer.v4));
        if (GetParam().is_tracked)
            for (const char *tables : {"iptables", "ip6tables"})
                twin_.node().run(std::string(tables) + " -A FORWARD -m conntrack --ctstate INVALID");
        // In a long run, packets that never become whole would fill the memory of those that do.
        for (Lab *lab : {&*lab_, &twin_})
            lab->node().run("sysctl -qw net.netfilter.nf_conntrack_frag6_timeout=1 net.ipv4.ipfrag_time=1");
        course_ = std::make_unique<Course>(*lab_, pod, peer, pod.link_local);
        bare_ = std::make_unique<Course>(twin_, bare, bare_peer, pod.link_local);
        make_senders(pod, peer);
        flows_.emplace(require(open_flows(lab_->node().bpffs(), Access::read_write)));
        if (!GetParam().is_routed)
            kept_.emplace(require(open_kept_paths(lab_->node().bpffs(), Access::read_write)));
        const net::Entered on_node = require(net::enter(lab_->node().ns()));
        uplink_ = if_nametoindex("up0");
    }
    std::vector<Json> ptp(std::size_t mtu) {
        Json ipam = twin_.node().ipam();
        ipam["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
        return {{{"type", "ptp"}, {"mtu", mtu}, {"ipam", ipam}}};
    }
    void make_senders(const Pod &pod, const Pod &peer) {
        of_pods_ = {pod.v4, pod.v6, peer.v4, peer.v6};
        pod_index_ = pod.ifindex;
        peer_index_ = peer.ifindex;
        pod_ = {true, GetParam().is_bound, pod.mac, pod.gateway_mac, {pod.v4, pod.v6, pod.link_local}};
        outside_ = {false, false, course_->mac(kOutside), course_->gateway(kOutside)};
        for (const bool v4 : {true, false}) {
            const ip_addr far = ip(v4 ? Lab::kOutside4 : Lab::kOutside6);
            const ip_addr &own = pod.addr(v4);
            const ip_addr &other = peer.addr(v4);
            pod_.flows.push_back({own, other, 40000, 80, own, other, 40000, 80, peer.mac, peer.mtu});
            pod_.flows.push_back({own, far, 40001, 80, own, far, 40001, 80, outside_.mac, 1500});
            outside_.flows.push_back({far, other, 50000, 80, far, other, 50000, 80, peer.mac, peer.mtu});
            for (const char *one : {v4 ? Lab::kNode4 : Lab::kNode6, v4 ? "198.18.9.77" : "2001:db8:9::77",
                                    v4 ? "127.0.0.1" : "::1", v4 ? "0.0.0.0" : "::", v4 ? "198.51.100.7" : "fe80::1"})
                addresses_.push_back(ip(one));
            for (const ip_addr &one : {own, own, other, other, far})
                addresses_.push_back(one);
        }
        addresses_.push_back(pod.link_local);
    }
    // As conntrack has just confirmed them, unless all are direct. With an egress route, generated protocols take the
    // slots of each other, which costs fragments of what the host stack carries (docs/SECURITY.md).
    void confirm() {
        if (kept_)
            for (const std::uint32_t index : {pod_index_, peer_index_})
                require(kept_->update(index, kept_paths{}));
        for (const ModelSender *sender : {&pod_, &outside_})
            for (const ModelFlow &one : sender->flows)
                confirm_flow(*flows_, one, sender->is_pod ? pod_index_ : uplink_);
    }

    static bool is_of_link(const ip_addr &of) {
        return contains(prefix("fe80::/10"), of) || contains(prefix("ff00::/8"), of);
    }
    // Of `ptp`, whose node has an address in the pods' subnet.
    static bool is_gateway(const ip_addr &of) { return of == ip("198.18.9.1") || of == ip("2001:db8:9::1"); }
    // By an egress route the other addresses of the pods' subnets are neighbours on the uplink.
    [[nodiscard]] bool is_neighbour(const ip_addr &of) const {
        return !GetParam().is_routed && (contains(prefix(Lab::kPods4), of) || contains(prefix(Lab::kPods6), of)) &&
               std::ranges::find(of_pods_, of) == of_pods_.end();
    }
    // On two nodes: what is of a link or its gateway; options, which an egress route does not read, and in which each
    // router writes its own address or the time; fragments that conntrack waits for the rest of; a wrong header
    // checksum, which an uplink's card finds; the link's broadcast address as a source, which the kernel lets pass
    // where no rule has it look.
    [[nodiscard]] bool may_differ(const Model &model, const ModelSender &sender) const {
        if (!model.is_ip() || model.is_discovery() || model.is_recorded() || is_of_link(model.destination()) ||
            (is_of_link(model.source()) && !(sender.is_pod && model.source() == pod_.addresses.back())))
            return true;
        for (const ip_addr &end : {model.source(), model.destination()})
            if (is_gateway(end) || is_neighbour(end) || end == ip("203.0.113.255"))
                return true;
        return (model.is_fragment() && GetParam().is_tracked) || (!model.is_plain() && !GetParam().is_routed) ||
               (!model.is_header_right() && !sender.is_pod);
    }
    // Messages of ICMPv6 that are not of an echo are dropped in fragments if they might be of discovery, and without a
    // source; of a source of the link a node does not report each fragment.
    static bool is_cut_on_the_way(const Model &model, const Bytes &frame) {
        const bool is_icmpv6 = ethertype(frame) == ETHERTYPE_IPV6 && frame[20] == IPPROTO_ICMPV6;
        return !is_of_link(model.source()) && model.source() != ip("::") &&
               (!is_icmpv6 || (frame[54] | 1U) == 129U /* echo */);
    }
    // Nothing if the programs may drop it.
    [[nodiscard]] Unit any_unit(const ModelSender &sender, packet::ModelFrames &frames, std::mt19937_64 &random) {
        Sent one{frames.next()};
        one.left = any_offload(one.frame, random);
        Model model(sender, one.frame);
        if (model.promise().demand != packet::Demand::no_drop || may_differ(model, sender))
            return {};
        if (!model.is_plain() || one.left.checksum || one.frame.size() < 100 || !is_cut_on_the_way(model, one.frame) ||
            random() % 8 != 0)
            return {one};
        Unit halves;
        for (Bytes &half : fragments_of(one.frame, ++fragmented_))
            halves.push_back({std::move(half)});
        return halves;
    }
    // A kind is text.
    static std::string shown(const Bytes &one) {
        if (std::ranges::all_of(one, [](std::uint8_t byte) { return byte >= 0x20 && byte < 0x7f; }))
            return {one.begin(), one.end()};
        return std::to_string(one.size()) + " bytes\n" + frames::hex(one);
    }
    // Names in which the host stack, and its reverse path filter, decides about what comes from outside
    // (docs/SOURCE-ROUTING.md, "Addresses of a LAN"): of the pods, of the node, which discards what else is of the
    // uplink's link, and those that no router forwards.
    [[nodiscard]] bool is_refused(const ip_addr &source) const {
        static constexpr std::array kRefused = {
            "203.0.113.0/24", "2001:db8:cafe::/64", "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16",
            "224.0.0.0/4",    "255.255.255.255/32", "::/127",    "fe80::/10",   "ff00::/8"};
        if (source == ip(Lab::kOutside4) || source == ip(Lab::kOutside6))
            return false;
        return std::ranges::find(of_pods_, source) != of_pods_.end() ||
               std::ranges::any_of(kRefused, [&](const char *one) { return contains(prefix(one), source); });
    }
    // An egress route carries what a node without one has no route for, or refuses: as a router does, and to its
    // destination alone; from outside only in names that are not refused.
    [[nodiscard]] bool is_forwarded(Place from, Place at, const Bytes &more, const std::vector<Sent> &frames) const {
        return std::ranges::any_of(frames, [&](const Sent &one) {
            Model model(pod_, one.frame);
            (void)model.promise();
            if (from == kOutside && is_refused(model.source()))
                return false;
            const auto place = std::ranges::find(of_pods_, model.destination()) - of_pods_.begin();
            const Place to = place < 2 ? kPod : place < 4 ? kPeer : kOutside;
            return (model.is_plain() || model.is_fragment()) && to == at && forwarded(one) == more;
        });
    }
    // Without MACs and the identification of IPv6 fragments, as what has arrived.
    static Bytes forwarded(const Sent &one) {
        Bytes out = one.frame;
        std::fill_n(out.begin(), 12, std::uint8_t{0});
        const bool v4 = ethertype(out) == ETHERTYPE_IP;
        --out[v4 ? 22 : 21];
        if (!v4 && out.size() > 62 && out[20] == IPPROTO_FRAGMENT)
            std::fill_n(out.begin() + 58, 4, std::uint8_t{0});
        if (v4) {
            out[24] = out[25] = 0;
            const std::uint16_t sum = frames::checksum(std::span(out).subspan(14, 20));
            out[24] = static_cast<std::uint8_t>(sum >> 8U);
            out[25] = static_cast<std::uint8_t>(sum);
        }
        const std::string left = to_string(one.left);
        out.insert(out.end(), left.begin(), left.end());
        return out;
    }
    [[nodiscard]] std::string differs(Place from, const std::vector<Sent> &frames) {
        const bool forges = from == kOutside || !GetParam().is_bound;
        const Outcome here = course_->send(from, frames, *course_, forges);
        const Outcome bare = bare_->send(from, frames, *course_, forges);
        std::string text;
        for (const Bytes &lost : missing(bare, here))
            text += "\nlost: " + shown(lost);
        text += only_here(from, frames, here, bare);
        carried_ += bare.arrived.at(kPeer).size() + bare.arrived.at(from == kOutside ? kPod : kOutside).size();
        return text;
    }
    // Frames that arrive only with programs, and have no cause.
    [[nodiscard]] std::string only_here(Place from, const std::vector<Sent> &frames, const Outcome &here,
                                        const Outcome &bare) const {
        std::string text;
        std::string answers;
        bool is_more_carried = false;
        for (const Place place : {kPod, kPeer, kOutside})
            for (const Bytes &more : missing_at(place, here, bare)) {
                const bool is_known = !GetParam().is_routed && is_forwarded(from, place, more, frames);
                is_more_carried |= is_known;
                if (!is_known)
                    (place == from && !GetParam().is_routed ? answers : text) += "\nonly with programs: " + shown(more);
            }
        // A pod replies by its egress route to whoever asks, whatever the node's routes are; the outside may refuse
        // what the route has carried there.
        return is_more_carried || from == kOutside ? text : text + answers;
    }
    void expect_alike(Place from, const std::vector<Unit> &units) {
        std::vector<Sent> all;
        for (const Unit &unit : units)
            all.insert(all.end(), unit.begin(), unit.end());
        sent_ += all.size();
        confirm();
        const std::string together = differs(from, all);
        if (together.empty())
            return;
        for (const Unit &unit : units) {
            confirm();
            const std::string alone = differs(from, unit);
            if (alone.empty())
                continue;
            std::string text;
            for (const Sent &one : unit)
                text += "\nthe frame" + to_string(one.left) + "\n" + frames::hex(one.frame);
            ADD_FAILURE() << "from " << (from == kPod ? "the pod" : "outside") << text << alone;
            return;
        }
        ADD_FAILURE() << all.size() << " frames together" << together;
    }
    [[nodiscard]] std::uint64_t fast() {
        const auto all = require(open_counters(lab_->node().bpffs(), Access::read_only));
        std::uint64_t packets = 0;
        for (const std::uint32_t ifindex : {pod_index_, peer_index_, uplink_})
            for (std::size_t why = 0; why < kReasons.size(); ++why)
                if (kReasons.at(why).kind == REASON_KIND_FAST)
                    packets += require(sum_of(all, ifindex)).by_reason[why].packets;
        return packets;
    }

    OneCpu one_cpu_;
    Lab twin_;
    std::optional<Flows> flows_;
    std::optional<KeptPaths> kept_;
    std::unique_ptr<Course> course_;
    std::unique_ptr<Course> bare_;
    ModelSender pod_;
    ModelSender outside_;
    std::vector<ip_addr> of_pods_;
    std::vector<ip_addr> addresses_;
    std::uint32_t pod_index_ = 0;
    std::uint32_t peer_index_ = 0;
    std::uint32_t uplink_ = 0;
    std::uint16_t fragmented_ = 0;
    std::uint64_t sent_ = 0;
    std::uint64_t carried_ = 0;
};

TEST_P(LossOnVeths, WhatTheHostStackCarriesArrives) {
    const auto seed = printed_seed();
    const auto wanted = number_from("PODLANE_FRAMES", 0);
    std::mt19937_64 random(seed);
    packet::ModelFrames pods(pod_, addresses_, random);
    packet::ModelFrames others(outside_, addresses_, random);
    const auto end = Clock::now() + std::chrono::seconds(3);
    do {
        const bool from_pod = random() % 4 != 0;
        std::vector<Unit> units;
        while (units.size() < kBatch) {
            Unit one = any_unit(from_pod ? pod_ : outside_, from_pod ? pods : others, random);
            if (!one.empty())
                units.push_back(std::move(one));
        }
        expect_alike(from_pod ? kPod : kOutside, units);
        ASSERT_FALSE(HasFailure()) << "PODLANE_SEED=" << seed << ", behind " << sent_ << " frames";
    } while (wanted != 0 ? sent_ < wanted : Clock::now() < end);
    const std::uint64_t by_fast_path = fast();
    std::cout << sent_ << " frames, " << carried_ << " carried, " << by_fast_path << " by the fast path" << std::endl;
    EXPECT_GT(carried_, sent_ / 5);
    EXPECT_GT(by_fast_path, sent_ / 20);
}

INSTANTIATE_TEST_SUITE_P(
    All, LossOnVeths,
    testing::Values(Setting{.name = "tcx", .lab = {"tcx"}}, Setting{.name = "clsact", .lab = {"clsact"}},
                    Setting{.name = "direct", .lab = {"tcx"}, .is_tracked = false},
                    Setting{.name = "unbound", .lab = {"clsact"}, .keys = {{"antiSpoof", false}}, .is_bound = false},
                    Setting{.name = "egress_route",
                            .lab = {"tcx"},
                            .keys = {{"uplink", "up0"}, {"gateway", {Lab::kOutside4, Lab::kOutside6}}},
                            .is_routed = false}),
    [](const auto &info) { return info.param.name; });

} // namespace
} // namespace podlane::test
