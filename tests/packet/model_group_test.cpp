// SPDX-License-Identifier: MIT
// The model with limits that pods share: who pays for each frame, how much of it the group hears of, and when.
#include "plugin/entries.hpp"
#include "plugin/limit_group.hpp"
#include "tests/packet/limited_model.hpp"

#include <net/if.h>

namespace podlane::packet {
namespace {

constexpr std::uint64_t kGuarantee = 100'000'000'000, kShared = 4 * kGuarantee, kBurst = 1'000'000'000'000;
constexpr std::uint64_t kReports = 10, kBorrowed = 5; // of each pod, at least
constexpr auto kBothDirections = {LIMIT_INGRESS, LIMIT_EGRESS};

// Of five pods, two share a limit in both directions, two another one in one direction, and one has a limit of its own.
// All but the last send; each to those of its group, to those of the other, and to that one.
class GroupModel : public LimitedModel {
  protected:
    struct Group {
        std::uint32_t number;
        cni::Bandwidth rates;
        std::vector<const Pod *> members;
        std::map<limit_direction, std::uint64_t> heard_of{}; // bytes that its members had to report
    };
    struct Report {
        std::uint64_t at_ns = 0;
        std::uint64_t bytes = 0; // let through until after the frame before
        std::uint64_t reported = 0;
    };

    void prepare() override {
        shell("ip link add caliD type veth peer name caliDp; ip link add caliE type veth peer name caliEp;"
              "ip link add caliF type veth peer name caliFp");
        more_flags_ = INTERFACE_LIMIT_GROUP;
        node().pod.limits.limit_group = node().peer.limits.limit_group = "both";
        LimitedModel::prepare();
        other_ = add("other", "caliD", 40, "egress");
        another_ = add("another", "caliE", 50, "egress");
        alone_ = add("alone", "caliF", 60, "");
        limited_.insert(limited_.end(), {&other_, &another_, &alone_});
        groups_ = {{0, {kShared, kBurst, kShared, kBurst}, {&node().pod, &node().peer}},
                   {0, {0, 0, kShared, kBurst}, {&other_, &another_}}};
        for (Group &group : groups_) {
            LimitGroupPlan plan;
            plan.number = require(node().tables().limit_states.find({group.members[0]->ifindex, LIMIT_EGRESS}))->group;
            plan.entry.network = network_id(node().pod.network);
            plan.entry.configured = {group.rates.ingress_rate, group.rates.ingress_burst, group.rates.egress_rate,
                                     group.rates.egress_burst};
            group.number = plan.number;
            require(put_limit_group(node().tables(), plan));
        }
        ASSERT_NE(groups_[0].number, groups_[1].number);
        pod_.pod = &node().pod;
        add_sender(peer_sender_, node().peer);
        add_sender(other_sender_, other_);
        add_sender(another_sender_, another_);
        for (ModelSender *sender : {&pod_, &peer_sender_, &other_sender_, &another_sender_})
            add_flows(*sender);
        for (const auto &[from, to] :
             {std::pair("203.0.113.9", "203.0.113.2"), {"2001:db8:cafe::9", "2001:db8:cafe::2"}})
            for (const Pod *pod : {&other_, &alone_}) {
                const auto port = static_cast<std::uint16_t>(50010 + pod->ifindex);
                const ip_addr &inside = address_of(*pod, is_ipv4(ip(from)));
                outside_.flows.push_back(
                    {ip(from), ip(to), port, 30080, ip(from), inside, port, 8080, pod->mac, pod->mtu});
            }
    }
    Pod add(const char *name, const char *link, unsigned number, const char *group) {
        const std::string end = std::to_string(number);
        Pod pod{name,
                if_nametoindex(link),
                Mac{0x02, 0, 0, 0, 0, static_cast<std::uint8_t>(number)},
                {ip(("192.0.2." + end).c_str()), ip(("2001:db8::" + end).c_str())}};
        pod.flags = node().peer.flags & ~(*group != '\0' ? 0U : std::uint32_t{INTERFACE_LIMIT_GROUP});
        pod.limits.limit_group = group;
        limit(pod, {"192.0.2.20/32"}, {"192.0.2.10/32", "2001:db8::20/128"});
        node().put(pod);
        more_addresses_.insert(more_addresses_.end(), pod.addresses.begin(), pod.addresses.end());
        return pod;
    }
    void add_sender(ModelSender &sender, const Pod &pod) {
        sender.mac = pod.mac;
        sender.gateway = kHostMac;
        sender.addresses = pod.addresses;
        sender.addresses.push_back(link_local_from_mac(pod.mac));
        sender.pod = &pod;
        more_senders_.push_back(&sender);
    }
    static const ip_addr &address_of(const Pod &pod, bool v4) { return pod.addresses.at(v4 ? 0 : 1); }
    void add_flows(ModelSender &sender) {
        std::uint16_t port = 40010;
        for (const Pod *to : limited_)
            for (const bool v4 : {true, false})
                if (const ip_addr &from = address_of(*sender.pod, v4); to != sender.pod)
                    sender.flows.push_back(
                        {from, address_of(*to, v4), port, 80, from, address_of(*to, v4), port, 80, to->mac, to->mtu});
                else
                    ++port;
    }

    [[nodiscard]] bool has_seen_all() const override {
        const auto count = [](const auto &counts, const Pod &pod, limit_direction direction) {
            const auto found = counts.find({pod.ifindex, direction});
            return found == counts.end() ? 0 : found->second;
        };
        for (const Group &group : groups_)
            for (const Pod *pod : group.members)
                for (const limit_direction direction : kBothDirections)
                    if (count(reports_, *pod, direction) <= kReports ||
                        (rate_of(group, direction) != 0 && count(borrowed_, *pod, direction) <= kBorrowed))
                        return false;
        return true;
    }

    void change() override { before_ns_ = monotonic_ns(); }

    [[nodiscard]] static std::uint64_t rate_of(const Group &group, limit_direction direction) {
        return direction == LIMIT_INGRESS ? group.rates.ingress_rate : group.rates.egress_rate;
    }
    // A member reports what it has let through before it is charged for a frame, if its last report is 10 ms old; it
    // never reports more, sooner, or for another. The group is charged what its members report and nothing else.
    std::string compare_more(const ModelSender & /*sender*/, const Bytes & /*frame*/, const How & /*how*/,
                             const Model & /*model*/, const Outcome & /*outcome*/) override {
        const std::uint64_t after_ns = monotonic_ns();
        std::string problem;
        for (Group &group : groups_)
            for (const limit_direction direction : kBothDirections) {
                std::uint64_t weights = 0;
                bool is_heard = false;
                for (const Pod *pod : group.members) {
                    const limit_state now = state(pod->ifindex, direction);
                    problem += compare_report(group, direction, *pod, now, after_ns);
                    is_heard |= now.share.at_ns >= before_ns_;
                    weights += now.share.weight;
                }
                const limit_state shared = state(group.number, direction);
                const bool is_shared = rate_of(group, direction) != 0;
                if (shared.bytes != (is_shared ? group.heard_of[direction] : 0))
                    problem += "the group is charged " + std::to_string(shared.bytes) + " bytes, not " +
                               std::to_string(is_shared ? group.heard_of[direction] : 0) + "; ";
                if (is_heard && shared.weight > weights)
                    problem += "the group's demand is more than that of its members; ";
            }
        const limit_state own = state(alone_.ifindex, LIMIT_INGRESS);
        if (own.share.at_ns != 0 || own.reported != 0 || (own.bytes != 0 && own.limit.rate_bits_per_s != kGuarantee))
            problem += "a pod without a group has a part in one; ";
        before_ns_ = after_ns;
        return problem;
    }
    std::string compare_report(Group &group, limit_direction direction, const Pod &pod, const limit_state &now,
                               std::uint64_t after_ns) {
        constexpr std::uint64_t kOften = 10'000'000;
        Report &last = last_[{pod.ifindex, direction}];
        const bool is_charged = now.bytes != last.bytes, is_report = now.share.at_ns != last.at_ns;
        const bool is_shared = rate_of(group, direction) != 0;
        std::string problem;
        if (is_report && !is_charged)
            problem += "reports without a frame of its own; ";
        if (is_report && (now.share.at_ns < before_ns_ || now.share.at_ns > after_ns))
            problem += "reports at another time; ";
        if (is_report && now.share.at_ns - last.at_ns < kOften)
            problem += "reports again within 10 ms; ";
        if (!is_report && is_charged && before_ns_ - last.at_ns >= kOften)
            problem += "does not report after 10 ms; ";
        if (now.reported != (is_report ? last.bytes : last.reported))
            problem += "has reported " + std::to_string(now.reported) + " bytes, and let through " +
                       std::to_string(last.bytes) + " before the frame; ";
        if (now.dropped != 0 || now.group != group.number)
            problem += "drops within its limit, or has another group; ";
        const std::uint64_t rate = now.limit.rate_bits_per_s, most = is_shared ? kShared : kGuarantee;
        if (now.bytes != 0 && (rate < kGuarantee || rate > most))
            problem += "has a limit of " + std::to_string(rate) + " bit/s; ";
        if (is_report) {
            group.heard_of[direction] += last.bytes - last.reported;
            ++reports_[{pod.ifindex, direction}];
            borrowed_[{pod.ifindex, direction}] += rate > kGuarantee ? 1 : 0;
        }
        last = {now.share.at_ns, now.bytes, now.reported};
        return problem.empty() ? "" : pod.name + (direction == LIMIT_EGRESS ? " (egress) " : " (ingress) ") + problem;
    }
    limit_state state(std::uint32_t number, limit_direction direction) {
        return require(limits_->find({number, direction})).value();
    }

    Pod other_{}, another_{}, alone_{};
    ModelSender peer_sender_, other_sender_, another_sender_;
    std::vector<Group> groups_;
    std::map<std::pair<std::uint32_t, limit_direction>, Report> last_;
    std::map<std::pair<std::uint32_t, limit_direction>, std::uint64_t> reports_, borrowed_;
    std::uint64_t before_ns_ = 0;
};

TEST_F(GroupModel, HoldsForGeneratedFrames) {
    hold_for_generated_frames(std::chrono::seconds(3), 1);
    for (const Group &group : groups_)
        for (const Pod *pod : group.members)
            for (const limit_direction direction : kBothDirections) {
                SCOPED_TRACE(pod->name + (direction == LIMIT_EGRESS ? " egress" : " ingress"));
                EXPECT_GT((reports_[{pod->ifindex, direction}]), kReports);
                EXPECT_EQ((borrowed_[{pod->ifindex, direction}]) > kBorrowed, rate_of(group, direction) != 0);
            }
    EXPECT_GT((charged_[{alone_.ifindex, LIMIT_INGRESS}]), ran_ / 100);
}

} // namespace
} // namespace podlane::packet
