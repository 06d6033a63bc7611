// SPDX-License-Identifier: MIT
// Generated frames through the shipped programs, against an executable model of what is promised (model.hpp).
#include "plugin/isolation.hpp"
#include "tests/packet/limited_model.hpp"

#include <net/if.h>

namespace podlane::packet {
namespace {

TEST_F(PromiseModel, HoldsForGeneratedFrames) { hold_for_generated_frames(std::chrono::seconds(6)); }

TEST_F(LimitedModel, HoldsForGeneratedFrames) {
    hold_for_generated_frames(std::chrono::seconds(4));
    EXPECT_GT(charged_in_all_, ran_) << "bytes";
    for (const Pod *pod : {&node().pod, &node().peer})
        EXPECT_GT((charged_[{pod->ifindex, LIMIT_INGRESS}]), ran_ / 100) << pod->name;
}

// A packet that cannot be translated is not charged to whom it would have gone to.
TEST_F(LimitedModel, ACutHeaderHasNoFlow) {
    confirm();
    int translated = 0;
    for (const ModelFlow &flow : pod_.flows) {
        if (flow.is_direct || !is_ipv4(flow.source))
            continue;
        Bytes udp;
        put16(udp, flow.source_port);
        put16(udp, flow.destination_port);
        put16(udp, 8);
        const Ipv4 ip{.source = flow.source, .destination = flow.destination, .protocol = IPPROTO_UDP};
        for (const std::size_t bytes : {6U, 4U}) {
            udp.resize(bytes);
            EXPECT_TRUE(agrees(pod_, Ethernet{kHostMac, kPodMac} / ip / udp, 0)) << to_string(flow.destination);
        }
        ++translated;
    }
    EXPECT_GT(translated, 0);
}

// Nor does a header of TCP that is cut say how many bytes each segment would repeat.
TEST_F(LimitedModel, ACutHeaderIsInNoSegment) {
    confirm();
    const Ipv4 ip{.source = pod4(), .destination = peer4(), .protocol = IPPROTO_TCP};
    for (const std::size_t bytes : {16U, 19U, 20U})
        EXPECT_TRUE(agrees(pod_, Ethernet{kHostMac, kPodMac} / ip / Bytes(bytes), 14)) << bytes;
}

// A container with a second interface, and with more sources than its addresses. What it sends by the first one from an
// address of the second is handed over; both have limits.
class SeveralInterfacesModel : public LimitedModel {
  protected:
    void prepare() override {
        shell("ip link add caliD type veth peer name caliDp");
        more_flags_ = INTERFACE_PEERS;
        for (const char *one : {"192.0.2.64/28", "2001:db8:a::/48"})
            node().pod.allowed.push_back(*parse_prefix(one));
        pod_.allowed = node().pod.allowed;
        LimitedModel::prepare();
        second_ = {"second", if_nametoindex("caliD"), kSecondMac, {ip("198.18.7.20"), ip("2001:db8:7::20")}, "two"};
        second_.flags = node().peer.flags;
        limit(second_, {"192.0.2.20/32", "2001:db8:cafe::/64"}, {});
        node().put(second_);
        limited_.push_back(&second_);
        for (const ip_addr &one : second_.addresses)
            put_route(one);
        second_sender_ = {true, true, kSecondMac, kHostMac, second_.addresses};
        second_sender_.addresses.push_back(link_local_from_mac(kSecondMac));
        pod_.peer_addresses = second_.addresses;
        pod_.peer_mac = kSecondMac;
        for (const char *one : {"192.0.2.70", "192.0.2.80", "2001:db8:a:1::7", "2001:db8:b::1"})
            more_addresses_.push_back(ip(one));
        for (int i = 0; i < 4; ++i)
            more_addresses_.insert(more_addresses_.end(), second_.addresses.begin(), second_.addresses.end());
        for (const char *one : {"192.0.2.71", "2001:db8:a:2::8"}) {
            const ip_addr &peer = is_ipv4(ip(one)) ? node().peer.addresses[0] : node().peer.addresses[1];
            pod_.flows.push_back({ip(one), peer, 40000, 80, ip(one), peer, 40000, 80, kPeerMac, kMtu});
        }
    }
    // As ADD does it.
    void put_route(const ip_addr &addr) {
        source_route route{};
        route.ifindex = second_.ifindex;
        route.source = addr;
        route.mtu = kMtu;
        std::ranges::copy(kHostMac, route.host_mac);
        std::ranges::copy(kSecondMac, route.pod_mac);
        for (const std::uint32_t end : {node().pod.ifindex, second_.ifindex})
            require(node().tables().source_routes.update({end, addr}, route));
        require(node().tables().source_slots.update({node().pod.ifindex, is_ipv4(addr) ? 1U : 0U, 1}, route));
    }
    static constexpr Mac kSecondMac{0x02, 0, 0, 0, 0, 0x1a};
};

TEST_F(SeveralInterfacesModel, HoldsForGeneratedFrames) {
    hold_for_generated_frames(std::chrono::seconds(4));
    EXPECT_GT(handed_over_, ran_ / 200);
    EXPECT_GT((charged_[{second_.ifindex, LIMIT_EGRESS}]), ran_);
}

// Without anti-spoofing whatever can be read passes; what takes the fast path is the same.
class UnboundModel : public PromiseModel {
  protected:
    void prepare() override {
        pod_.is_bound = false;
        PromiseModel::prepare();
    }
};

TEST_F(UnboundModel, HoldsForGeneratedFrames) { hold_for_generated_frames(std::chrono::seconds(3)); }

// A connection that conntrack does not know takes the fast path, too.
class DirectModel : public PromiseModel {
  protected:
    void prepare() override {
        is_direct_ = true;
        PromiseModel::prepare();
    }
};

TEST_F(DirectModel, HoldsForGeneratedFrames) { hold_for_generated_frames(std::chrono::seconds(3)); }

// Each set of EtherTypes by turns; tags, which are in the frame here, are never allowed.
class EtherTypesModel : public PromiseModel {
  protected:
    void change() override {
        constexpr std::array<std::pair<const char *, std::uint32_t>, 5> kTypes = {{{"llc", INTERFACE_ETHER_LLC},
                                                                                   {"lldp", INTERFACE_ETHER_LLDP},
                                                                                   {"mpls", INTERFACE_ETHER_MPLS},
                                                                                   {"pppoe", INTERFACE_ETHER_PPPOE},
                                                                                   {"any", INTERFACE_ETHER_ANY}}};
        interface entry = require(node().tables().interfaces.find(node().pod.ifindex)).value();
        for (std::size_t i = 0; i < kTypes.size(); ++i) {
            const auto &[name, flag] = kTypes.at(i);
            const bool is_allowed = (changes_ >> i & 1U) != 0;
            entry.flags = is_allowed ? entry.flags | flag : entry.flags & ~flag;
            if (is_allowed)
                pod_.ether_types.insert(name);
            else
                pod_.ether_types.erase(name);
        }
        require(node().tables().interfaces.replace(node().pod.ifindex, entry));
        ++changes_;
    }
    [[nodiscard]] bool has_seen_all() const override { return changes_ >= 32; }
    unsigned changes_ = 0;
};

TEST_F(EtherTypesModel, HoldsForGeneratedFrames) { hold_for_generated_frames(std::chrono::seconds(3)); }

// The peer lets in one group, or whoever is no pod, or nobody, by turns: a decision that is cached ends with each
// change.
class IsolatedModel : public PromiseModel {
  protected:
    void prepare() override {
        PromiseModel::prepare();
        node().put_with(node().peer, INTERFACE_ISOLATED_GROUP);
        outside_.refused_names = node().peer.addresses;
        require(update_isolation(node().tables(), node().pod.ifindex, {.groups = {"name:a"}}));
    }
    void change() override {
        const unsigned now = changes_++ % 4;
        const bool lets_in_pods = now % 2 == 0, lets_in_others = now < 2;
        require(update_isolation(node().tables(), node().peer.ifindex,
                                 {.flags = lets_in_others ? std::uint32_t{ISOLATION_OUTSIDE} : 0U,
                                  .groups = {"name:b"},
                                  .accepted = {lets_in_pods ? "name:a" : "name:b"}}));
        pod_.isolated = lets_in_pods ? std::vector<ip_addr>{} : node().peer.addresses;
        outside_.isolated = lets_in_others ? std::vector<ip_addr>{} : node().peer.addresses;
    }
    unsigned changes_ = 0;
};

TEST_F(IsolatedModel, HoldsForGeneratedFrames) { hold_for_generated_frames(std::chrono::seconds(3)); }

} // namespace
} // namespace podlane::packet
