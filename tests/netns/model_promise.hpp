// SPDX-License-Identifier: MIT
// A hostile pod and its victim on real veths, and the model of what they may send.
#pragma once

#include "tests/netns/lab.hpp"
#include "tests/netns/model_sent.hpp"
#include "tests/packet/model_frames.hpp"

namespace podlane::test {

using packet::Demand;
using packet::ModelSender;

class PromiseOnVeths : public LabTest {
  protected:
    void prepare() override {
        // No packet of anybody's may be forwarded: whatever arrives has avoided the host's rules.
        for (const char *tables : {"iptables", "ip6tables"})
            lab_->node().run(std::string(tables) + " -P FORWARD DROP");
        const Json keys = {{"clusterCIDRs", {"198.18.0.0/16", "2001:db8::/32"}}, {"firstPacket", "host"}};
        Json of_attacker = keys, of_victim = keys;
        of_attacker.update(attacker_keys());
        attacker_ = add_pod(of_attacker);
        of_victim.update(victim_keys());
        victim_ = add_pod(of_victim);
        keep_mac(*lab_, attacker_);
        node_mac_ = Wire(lab_->node().ns(), "up0").mac();
        of_node_.push_back(link_local_from_mac(node_mac_)); // redirects come from there
        make_senders();
    }
    [[nodiscard]] virtual Json attacker_keys() const { return Json::object(); }
    [[nodiscard]] virtual Json victim_keys() const { return Json::object(); }
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

    bool send(const Wire &wire, const Sent &one) {
        const bool taken = send_raw(wire, one);
        ++tried_;
        sent_ += taken ? 1 : 0;
        return taken;
    }
    // A run ends when enough frames are sent: it would go on for ever if none were. Those that the kernel does not take
    // come in series.
    [[nodiscard]] bool is_half_sent() const { return tried_ < 10000 || sent_ > tried_ / 2; }
    [[nodiscard]] std::string run_so_far() const {
        return std::to_string(sent_) + " frames sent, " + std::to_string(tried_ - sent_) + " not taken by the kernel";
    }

    // Of both pods.
    [[nodiscard]] std::uint64_t counted(reason_kind kind) {
        const auto all = require(open_counters(lab_->node().bpffs(), Access::read_only));
        std::uint64_t packets = 0;
        for (const Pod *pod : {&attacker_, &victim_}) {
            const counters of = require(sum_of(all, pod->ifindex));
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
    // Whether one of the addresses is there that are of this family.
    static bool names(const Bytes &frame, std::size_t at, bool v4, const std::vector<ip_addr> &addresses) {
        return std::ranges::any_of(addresses, [&](const ip_addr &one) {
            Bytes bytes;
            frames::append(bytes, one);
            return is_ipv4(one) == v4 && frame.size() >= at + bytes.size() &&
                   std::equal(bytes.begin(), bytes.end(), frame.begin() + static_cast<std::ptrdiff_t>(at));
        });
    }
    static bool is_by(const Bytes &frame, std::size_t at, const Mac &mac) {
        return frame.size() >= at + mac.size() && std::equal(mac.begin(), mac.end(), frame.begin() + int(at));
    }
    // Whether anybody but the node itself has sent it. `mac`: the node's on this link.
    static bool is_foreign(const Bytes &frame, const std::vector<ip_addr> &of_node, const Mac &mac) {
        const std::uint16_t type = ethertype(frame);
        if (!is_by(frame, 6, mac))
            return true;
        if (type == ETHERTYPE_ARP)
            return !is_by(frame, 22, mac) ||
                   !(names(frame, 28, true, of_node) || names(frame, 28, true, {ip("0.0.0.0")}));
        if (type == ETHERTYPE_IPV6 && names(frame, 22, false, {ip("::")}) && frame.size() > 62)
            return !is_of_tentative(frame, of_node);
        const bool v4 = type == ETHERTYPE_IP;
        return !names(frame, v4 ? 26 : 22, v4, of_node);
    }
    // From a kernel that has no address yet: it looks for others that have it, and reports as a listener.
    static bool is_of_tentative(const Bytes &frame, const std::vector<ip_addr> &of_node) {
        constexpr std::uint8_t kSolicitation = 135, kListenerReport = 143;
        const std::uint8_t next = frame[20], hops = frame[21];
        return (next == IPPROTO_ICMPV6 && hops == 255 && frame[54] == kSolicitation &&
                names(frame, 62, false, of_node)) ||
               (next == IPPROTO_HOPOPTS && hops == 1 && frame[62] == kListenerReport);
    }

    Pod attacker_;
    Pod victim_;
    Mac node_mac_{};
    // As a router, the node has the lowest addresses of the links' subnets, too (RFC 4291, 2.6.1).
    std::vector<ip_addr> of_node_{ip(Lab::kNode4),   ip(Lab::kNode6),
                                  ip("169.254.1.1"), ip("fe80::ecee:eeff:feee:eeee"),
                                  ip("fe80::"),      ip("2001:db8:cafe::")};
    ModelSender pod_;
    ModelSender outside_;
    std::uint64_t tried_ = 0;
    std::uint64_t sent_ = 0; // of those
};

} // namespace podlane::test
