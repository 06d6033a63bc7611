// SPDX-License-Identifier: MIT
// The model with Podlane chained after `bridge`: its programs are on the ports, and the bridge forwards by MAC.
#include "tests/packet/limited_model.hpp"

namespace podlane::packet {
namespace {

// The pod and the peer are ports of one bridge, which routes for them (isGateway) or leaves that to a machine beyond,
// by turns. Each sends by the router and to the other's MAC; the bridge brings the frame to the port, where it is
// charged to the receiver.
class BridgeModel : public LimitedModel {
  protected:
    void prepare() override {
        // The frames' router is the bridge: no port has its MAC.
        shell("ip link set caliA address 02:00:00:00:0a:01; ip link set caliB address 02:00:00:00:0b:01");
        usual_flags_ = INTERFACE_FAST_UPLINK;
        one_delivered_in_ = 100; // by the uplink alone, and not in each batch
        LimitedModel::prepare();
        pod_.pod = &node().pod;
        pod_.is_left_to_bridge = true;
        peer_ = pod_;
        peer_.pod = &node().peer;
        peer_.mac = kPeerMac;
        peer_.addresses = node().peer.addresses;
        peer_.addresses.push_back(link_local_from_mac(kPeerMac));
        peer_.flows.clear();
        for (const auto &[from, to] : {std::pair(peer4(), pod4()), {peer6(), pod6()}})
            peer_.flows.push_back({from, to, 40000, 80, from, to, 40000, 80, kPodMac, 1500});
        pod_on_link_ = pod_;
        pod_on_link_.gateway = kPeerMac;
        peer_on_link_ = peer_;
        peer_on_link_.gateway = kPodMac;
        more_senders_ = {&pod_on_link_, &peer_, &peer_on_link_};
    }
    // As ADD would have found it.
    void change() override {
        outside_.is_left_to_bridge = changes_++ % 4 == 3;
        const auto set = [&](std::uint32_t &flags) {
            flags &= ~(std::uint32_t{INTERFACE_BRIDGED} | INTERFACE_FAST_UPLINK);
            flags |= outside_.is_left_to_bridge ? INTERFACE_BRIDGED : INTERFACE_FAST_UPLINK;
        };
        for (const Pod *pod : {&node().pod, &node().peer}) {
            interface port = require(node().tables().interfaces.find(pod->ifindex)).value();
            set(port.flags);
            require(node().tables().interfaces.update(pod->ifindex, port));
            for (const ip_addr &one : pod->addresses) {
                const address_key key{network_id(pod->network), one};
                address owner = require(node().tables().addresses.find(key)).value();
                set(owner.flags);
                require(node().tables().addresses.update(key, owner));
            }
        }
    }
    // The bridge brings the frame to the other port if it is for that one or for all.
    std::string compare_more(const ModelSender &sender, const Bytes &frame, const How &how, const Model &model,
                             const Outcome &outcome) override {
        if (!sender.is_pod || outcome.verdict != kNext)
            return "";
        const Pod &from = pod_of(sender), &to = &from == &node().pod ? node().peer : node().pod;
        if (!model.is_for_port(to.mac))
            return "";
        How there = how;
        there.program = PODLANE_PROGRAM_TO_POD;
        there.ifindex = to.ifindex;
        there.came_by = from.ifindex;
        Outcome arrived;
        if (!node().try_run(outcome.frame, there, arrived))
            return "the kernel refuses what it took from the pod; ";
        ++bridged_[to.name];
        of_segments_bridged_ += how.gso_size != 0 ? 1 : 0;
        if (arrived.verdict != kNext)
            return "lost at the port of " + to.name;
        if (arrived.frame != frame)
            return "changed at the port of " + to.name + ":\n" + hex(arrived.frame);
        const std::string problem = differing_charges([&](const Pod *pod, limit_direction direction) {
            return pod == &to && direction == LIMIT_INGRESS ? charge(to, direction, model.limited_source(), model) : 0;
        });
        return problem.empty() ? "" : "at the port of " + to.name + ", " + problem;
    }

    ModelSender peer_, pod_on_link_, peer_on_link_;
    std::map<std::string, std::uint64_t> bridged_;
    std::uint64_t of_segments_bridged_ = 0;
    unsigned changes_ = 0;
};

TEST_F(BridgeModel, HoldsForGeneratedFrames) {
    hold_for_generated_frames(std::chrono::seconds(3), 1);
    std::cout << bridged_["pod"] << " frames to the pod and " << bridged_["peer"] << " to the peer by the bridge, "
              << of_segments_bridged_ << " of them of GSO" << std::endl;
    for (const Pod *pod : {&node().pod, &node().peer}) {
        EXPECT_GT(bridged_[pod->name], ran_ / 50) << pod->name;
        for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS})
            EXPECT_GT((charged_[{pod->ifindex, direction}]), ran_) << pod->name;
    }
    EXPECT_GT(of_segments_bridged_, ran_ / 500);
}

} // namespace
} // namespace podlane::packet
