// SPDX-License-Identifier: MIT
// Limits on real veths: what generated frames are charged, when a pod sends them and when pods get them. The limits let
// all through, so that each frame shows what it was charged, and to which interface.
#pragma once

#include "tests/netns/captured.hpp"
#include "tests/netns/lab.hpp"
#include "tests/netns/model_sent.hpp"
#include "tests/packet/model_frames.hpp"

#include <net/if.h>

namespace podlane::test {

// Counts of one host-side veth, by reason.
using Reasons = std::array<std::uint64_t, COUNTER_REASONS>;

// As the programs read it: the kernel has moved the outermost tag out of it, and that of VLAN 0 changes nothing.
inline Bytes as_read(const Bytes &frame) {
    Bytes out = frame;
    const bool is_tagged = packet::is_tag(ethertype(out)) && out.size() >= 18;
    if (is_tagged && (out.at(14) & 0x0fU) == 0 && out.at(15) == 0)
        out.erase(out.begin() + 12, out.begin() + 16);
    return out;
}
inline Offload as_read(const Bytes &frame, Offload left) {
    if (left.checksum)
        left.checksum_start = static_cast<std::uint16_t>(left.checksum_start - (frame.size() - as_read(frame).size()));
    return left;
}
// Whether the checksum that is left to be written is within the packet: the kernel drops others behind the programs,
// once a router has cut off what follows the packet.
inline bool is_within(const Bytes &frame, const Offload &left) {
    const std::uint16_t type = ethertype(frame);
    const auto word = [&](std::size_t at) { return std::size_t{frame.at(at)} << 8U | frame.at(at + 1); };
    std::size_t end = frame.size();
    if (type == ETHERTYPE_IP && end >= 34)
        end = 14 + word(16);
    if (type == ETHERTYPE_IPV6 && end >= 54)
        end = 54 + word(18);
    if (left.segments != 0 && end < frame.size())
        return false;
    return type != ETHERTYPE_VLAN && type != 0x88a8 && left.checksum_start + left.checksum_offset + 2U <= end;
}

// One interface of a pod with limits, the addresses that they do not apply to, and all that has arrived there.
class LimitedEnd {
  public:
    LimitedEnd(const Node &node, const Container &pod, const std::string &ifname)
        : wire_(pod.ns(), ifname), link_(Json::parse(pod.run("ip -j addr show " + ifname)).at(0)),
          ifindex_(link_.at("link_index")), marking_(node.ns(), host_ifname(node, ifindex_)),
          states_(require(open_limit_states(node.bpffs(), Access::read_only))),
          counters_(require(open_counters(node.bpffs(), Access::read_only))) {}

    std::vector<Prefix> free_to{};   // unshapedSubnets, egress
    std::vector<Prefix> free_from{}; // ingress

    [[nodiscard]] const Wire &wire() const { return wire_; }
    [[nodiscard]] std::string name() const { return to_string(addr(true)); }
    [[nodiscard]] std::uint32_t ifindex() const { return ifindex_; }
    [[nodiscard]] std::size_t mtu() const { return link_.at("mtu"); }
    // Its own first, its link-local address last.
    [[nodiscard]] std::vector<ip_addr> addresses() const {
        std::vector<ip_addr> all;
        for (const Json &one : link_.at("addr_info"))
            all.push_back(ip(one.at("local")));
        std::stable_partition(all.begin(), all.end(), [](const ip_addr &one) { return !is_link_local(one); });
        return all;
    }
    [[nodiscard]] ip_addr addr(bool v4) const {
        const std::vector<ip_addr> all = addresses();
        return *std::ranges::find_if(all, [&](const ip_addr &one) { return is_ipv4(one) == v4; });
    }
    [[nodiscard]] std::uint64_t charged(limit_direction direction) const {
        return require(states_.find({ifindex_, static_cast<std::uint32_t>(direction)})).value().bytes;
    }
    // Of what was sent from here.
    [[nodiscard]] Reasons sent() const {
        Reasons all{};
        const counters sum = require(sum_of(counters_, ifindex_));
        for (std::size_t why = 0; why < all.size(); ++why)
            if (why != REASON_RECEIVED_HOST && why != REASON_RECEIVED_DIRECT && why != REASON_RECEIVED_UPLINK)
                all.at(why) = sum.by_reason[why].packets;
        return all;
    }
    // The reason of the one packet since then; none before it is counted, or if there is more than one.
    [[nodiscard]] std::optional<reason> reason_since(const Reasons &before) const {
        std::optional<reason> found;
        bool is_one = wait_until([&] {
            const Reasons now = sent();
            for (std::size_t why = 0; why < now.size(); ++why)
                if (now.at(why) != before.at(why))
                    found = static_cast<reason>(why);
            return found.has_value();
        });
        const Reasons now = sent();
        for (std::size_t why = 0; why < now.size(); ++why)
            is_one &= now.at(why) - before.at(why) == (why == found ? 1U : 0U);
        return is_one ? found : std::nullopt;
    }

    // Whether all that has arrived since begin() was charged, once.
    void begin() {
        (void)arrived_bytes();
        at_begin_ = charged(LIMIT_INGRESS);
        arrived_ = 0;
    }
    [[nodiscard]] bool is_charged_for_all() {
        arrived_ += arrived_bytes();
        return arrived_ == charged(LIMIT_INGRESS) - at_begin_;
    }
    [[nodiscard]] std::string difference() const {
        return std::to_string(charged(LIMIT_INGRESS) - at_begin_) + " bytes are charged, " + std::to_string(arrived_) +
               " have arrived" + last_;
    }
    [[nodiscard]] std::uint64_t arrived() const { return arrived_; }

  private:
    static std::string host_ifname(const Node &node, std::uint32_t ifindex) {
        for (const Json &one : Json::parse(node.run("ip -j link")))
            if (one.at("ifindex") == ifindex)
                return one.at("ifname");
        throw std::runtime_error("no host-side veth " + std::to_string(ifindex));
    }
    // Of what a limit applies to, as on the wire; up to a frame that follows it.
    [[nodiscard]] std::uint64_t arrived_bytes() {
        const Bytes marker = frame(wire_.mac(), marking_.mac(), 0x88b5, pattern(60 + ++marked_ % 100));
        marking_.send(marker);
        const auto caught = wire_.caught_until([&](const Bytes &one) { return one == marker; }, patience());
        if (!caught)
            throw std::runtime_error("a marker was lost");
        std::uint64_t bytes = marker.size();
        last_.clear();
        for (const Caught &one : *caught) {
            bytes += bytes_of(one);
            last_ += "\n" + hex(one.frame) + to_string(one.left);
        }
        return bytes;
    }
    [[nodiscard]] std::uint64_t bytes_of(const Caught &one) const {
        const packet::ModelSender anybody{.is_pod = false};
        const Bytes frame = as_read(one.frame);
        packet::Model model(anybody, frame, one.left.segment_bytes);
        (void)model.promise();
        return model.is_ip() && packet::is_in(free_from, model.source()) ? 0 : model.wire_bytes();
    }

    Wire wire_;
    Json link_;
    std::uint32_t ifindex_;
    Wire marking_;
    LimitStates states_;
    Counters counters_;
    std::uint64_t at_begin_ = 0;
    std::uint64_t arrived_ = 0;
    std::uint32_t marked_ = 0;
    std::string last_{};
};

using packet::ModelSender;

// A hostile container with two interfaces, and a victim; all have limits. Nothing but generated frames leaves the
// container.
class ChargeOnVeths : public LabTest {
  protected:
    void prepare() override {
        const Pod victim = add_pod(limits({}, {"198.18.7.0/24", Lab::kOutside6}));
        const std::string victim6 = to_string(victim.v6);
        const Pod attacker = add_pod(limits({Lab::kOutside4, victim6}, {to_string(victim.v4), Lab::kOutside6}));
        container_ = attacker.container;
        add_second(limits({to_string(victim.v4)}, {}));
        victim_ = end(*victim.container, "eth0", {}, {"198.18.7.0/24", Lab::kOutside6});
        first_ = end(*container_, "eth0", {Lab::kOutside4, victim6}, {to_string(victim.v4), Lab::kOutside6});
        second_ = end(*container_, "net1", {to_string(victim.v4)}, {});
        silence();
        make_senders(victim);
        for (const LimitedEnd *one : {first_.get(), second_.get()})
            keep_mac(*lab_, Pod{.ifindex = one->ifindex()});
        flows_.emplace(require(open_flows(lab_->node().bpffs(), Access::read_write)));
        ASSERT_TRUE(wait_until([&] {
            for (LimitedEnd *one : ends())
                one->begin();
            return std::ranges::all_of(ends(), [](LimitedEnd *one) { return one->is_charged_for_all(); });
        }));
    }
    void TearDown() override {
        if (second_chain_ && second_chain_->del(*container_).rc != 0)
            ADD_FAILURE() << "DEL of net1";
    }

    static Json limits(const std::vector<std::string> &free_to, const std::vector<std::string> &free_from) {
        constexpr std::uint64_t kRate = 100'000'000'000, kBurst = 1'000'000'000'000;
        return {{"ingressRate", kRate},  {"ingressBurst", kBurst},
                {"egressRate", kRate},   {"egressBurst", kBurst},
                {"firstPacket", "host"}, {"unshapedSubnets", {{"egress", free_to}, {"ingress", free_from}}}};
    }
    void add_second(Json keys) {
        keys["mtu"] = kSecondMtu;
        keys["ipam"] = lab_->node().ipam();
        keys["ipam"]["ranges"] = {{{{"subnet", "198.18.7.0/24"}}}, {{{"subnet", "2001:db8:7::/64"}}}};
        second_chain_ = std::make_shared<Chain>(lab_->node(), std::vector<Json>{lab_->node().config(with_attach(keys))},
                                                "1.0.0", "second");
        second_chain_->variables = {{"CNI_IFNAME", "net1"}};
        const Reply reply = second_chain_->add(*container_);
        if (reply.rc != 0)
            throw std::runtime_error("ADD of net1: " + reply.out + reply.err);
    }
    std::unique_ptr<LimitedEnd> end(const Container &pod, const std::string &ifname,
                                    const std::vector<std::string> &free_to,
                                    const std::vector<std::string> &free_from) {
        auto one = std::make_unique<LimitedEnd>(lab_->node(), pod, ifname);
        for (const std::string &free : free_to)
            one->free_to.push_back(prefix(free));
        for (const std::string &free : free_from)
            one->free_from.push_back(prefix(free));
        return one;
    }
    [[nodiscard]] std::vector<LimitedEnd *> ends() const { return {first_.get(), second_.get(), victim_.get()}; }
    // The container's stack sends nothing, and no qdisc holds frames back.
    void silence() const {
        for (const char *command :
             {"iptables -P OUTPUT DROP", "ip6tables -P OUTPUT DROP", "sysctl -qw net.ipv4.conf.all.arp_ignore=8",
              "tc qdisc replace dev eth0 root noqueue", "tc qdisc replace dev net1 root noqueue"})
            (void)container_->run(command);
    }
    void make_senders(const Pod &victim) {
        const Mac gateway = PODLANE_HOST_MAC;
        of_first_ = {true, true, first_->wire().mac(), gateway, first_->addresses()};
        of_second_ = {true, true, second_->wire().mac(), gateway, second_->addresses()};
        know_peer(of_first_, of_second_);
        know_peer(of_second_, of_first_);
        from_outside_.emplace(lab_->outside(), "eth0");
        outside_ = {false, false, from_outside_->mac(), Wire(lab_->node().ns(), "up0").mac()};
        for (const bool v4 : {true, false}) {
            const ip_addr far = ip(v4 ? Lab::kOutside4 : Lab::kOutside6);
            const ip_addr &to = victim.addr(v4);
            for (const auto &[sender, from] :
                 {std::pair(&of_first_, first_->addr(v4)), std::pair(&of_second_, second_->addr(v4))}) {
                sender->flows.push_back({from, to, 40000, 80, from, to, 40000, 80, victim.mac, victim.mtu});
                sender->flows.push_back({from, far, 40001, 80, from, far, 40001, 80, outside_.mac, victim.mtu});
            }
            const ip_addr &own = first_->addr(v4);
            outside_.flows.push_back({far, to, 50000, 80, far, to, 50000, 80, victim.mac, victim.mtu});
            outside_.flows.push_back({far, own, 50001, 80, far, own, 50001, 80, of_first_.mac, first_->mtu()});
            for (const char *one : {v4 ? Lab::kNode4 : Lab::kNode6, v4 ? "198.18.9.77" : "2001:db8:9::77",
                                    v4 ? "127.0.0.1" : "::1", v4 ? "169.254.1.1" : "fe80::ecee:eeff:feee:eeee",
                                    v4 ? "224.0.0.1" : "ff02::1", v4 ? "0.0.0.0" : "::"})
                addresses_.push_back(ip(one));
            for (const ip_addr &one : {own, own, second_->addr(v4), second_->addr(v4), to, to, far})
                addresses_.push_back(one);
        }
        addresses_.push_back(victim.link_local);
        for (const ModelSender *one : {&of_first_, &of_second_})
            addresses_.push_back(one->addresses.back());
    }
    static void know_peer(ModelSender &of, const ModelSender &peer) {
        of.peer_addresses = {peer.addresses.begin(), peer.addresses.end() - 1};
        of.peer_mac = peer.mac;
    }
    // As conntrack has just confirmed them.
    void confirm() {
        for (const auto &[sender, ifindex] :
             {std::pair(&of_first_, first_->ifindex()), std::pair(&of_second_, second_->ifindex()),
              std::pair(&outside_, uplink_index())})
            for (const packet::ModelFlow &one : sender->flows)
                confirm_flow(*flows_, one, ifindex);
    }
    [[nodiscard]] std::uint32_t uplink_index() {
        const net::Entered on_node = require(net::enter(lab_->node().ns()));
        return if_nametoindex("up0");
    }

    static std::string disagrees(const packet::Promise &promise, reason why) {
        const reason_kind kind = kReasons.at(why).kind;
        const std::string ends = std::string(" ends in ") + std::string(kReasons.at(why).name) + "; ";
        if ((promise.demand == packet::Demand::drop && kind != REASON_KIND_DROP) ||
            (promise.demand == packet::Demand::no_drop && kind == REASON_KIND_DROP))
            return promise.why + ends;
        if (kind == REASON_KIND_ANSWER && !promise.may_be_answered)
            return "what is not to be answered" + ends;
        if (kind == REASON_KIND_MOVED ? !promise.may_be_handed_over : promise.must_be_handed_over)
            return "a source of one interface" + ends;
        return "";
    }
    static std::string differs(const char *which, std::uint64_t charged, std::uint64_t expected) {
        return charged == expected ? ""
                                   : std::string(which) + " is charged " + std::to_string(charged) + " bytes, not " +
                                         std::to_string(expected) + "; ";
    }
    // Of what a program has let through.
    static std::uint64_t charge(const LimitedEnd &of, const packet::Model &model, reason why) {
        const reason_kind kind = kReasons.at(why).kind;
        if (kind == REASON_KIND_DROP || kind == REASON_KIND_ANSWER || kind == REASON_KIND_MOVED)
            return 0;
        const ip_addr *to = model.limited_address();
        return to != nullptr && packet::is_in(of.free_to, *to) ? 0 : model.wire_bytes();
    }
    enum From : std::size_t { kFirst, kSecond, kOutside };
    static std::string shown(From from, const Sent &one) {
        return "the frame " + hex(one.frame) + to_string(one.left) + " by " +
               (from == kFirst    ? "eth0"
                : from == kSecond ? "net1"
                                  : "the uplink");
    }
    // Whether what has arrived at each end was charged there; if not, with the frames of the batch that show it alone.
    [[nodiscard]] bool is_charged_for_all(const std::vector<std::pair<From, Sent>> &batch) {
        for (LimitedEnd *one : ends()) {
            if (wait_until([&] { return one->is_charged_for_all(); }))
                continue;
            ADD_FAILURE() << one->name() << ": " << one->difference();
            for (const auto &[from, frame] : batch) {
                confirm();
                one->begin();
                (void)problem_of(from, frame);
                if (!one->is_charged_for_all() && !one->is_charged_for_all())
                    ADD_FAILURE() << one->difference() << " of " << shown(from, frame);
            }
            return false;
        }
        return true;
    }
    // The problem with one frame that the container sends by one of its interfaces; empty if there is none.
    std::string problem_of(From from, const Sent &one) {
        if (from == kOutside)
            return (void)send_raw(*from_outside_, one), "";
        const bool by_first = from == kFirst;
        LimitedEnd &by = by_first ? *first_ : *second_;
        LimitedEnd &other = by_first ? *second_ : *first_;
        const Reasons reasons = by.sent();
        const Reasons reasons_of_other = other.sent();
        const std::uint64_t before = by.charged(LIMIT_EGRESS);
        const std::uint64_t before_of_other = other.charged(LIMIT_EGRESS);
        if (!send_raw(by.wire(), one))
            return "";
        ++sent_;
        const Bytes frame = as_read(one.frame);
        const Offload left = as_read(one.frame, one.left);
        packet::Model model = model_of(by_first ? of_first_ : of_second_, frame, left);
        const packet::Promise promise = model.promise();
        const std::optional<reason> why = by.reason_since(reasons);
        if (!why)
            return "is not counted once";
        std::string problem = disagrees(promise, *why);
        std::uint64_t of_other = 0;
        if (*why == REASON_SENT_SIBLING) {
            const Bytes moved = model.handed_over();
            packet::Model there = model_of(by_first ? of_second_ : of_first_, moved, left);
            const packet::Promise second = there.promise();
            const std::optional<reason> then = other.reason_since(reasons_of_other);
            if (!then)
                return problem + "is not counted once by the other interface";
            problem += "" + disagrees(second, *then);
            of_other = charge(other, there, *then);
            ++handed_over_;
        }
        const std::uint64_t charged_other = other.charged(LIMIT_EGRESS) - before_of_other;
        problem += differs("the other interface", charged_other, of_other);
        const std::uint64_t own = charge(by, model, *why);
        of_discovery_ += own != 0 && model.is_discovery() && one.left.checksum ? 1 : 0;
        return problem + differs("the interface", by.charged(LIMIT_EGRESS) - before, own);
    }

    static constexpr std::size_t kSecondMtu = 1400;
    std::shared_ptr<Container> container_;
    std::shared_ptr<Chain> second_chain_;
    std::unique_ptr<LimitedEnd> first_, second_, victim_;
    ModelSender of_first_, of_second_, outside_;
    std::vector<ip_addr> addresses_;
    std::optional<Flows> flows_;
    std::optional<Wire> from_outside_;
    std::uint64_t sent_ = 0;
    std::uint64_t handed_over_ = 0;
    std::uint64_t of_discovery_ = 0; // charged, with a checksum that is left to be written
};

} // namespace podlane::test
