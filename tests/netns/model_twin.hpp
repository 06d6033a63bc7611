// SPDX-License-Identifier: MIT
// The same frames over two nodes, of which one has no programs: what arrives there has to arrive here.
#pragma once

#include "tests/netns/captured.hpp"
#include "tests/netns/lab.hpp"
#include "tests/netns/model_sent.hpp"
#include "tests/packet/model_frames.hpp"

#include <array>

namespace podlane::test {

// The outcome of frames at each place, in no order: the fast path overtakes the slow one.
enum Place : std::size_t { kPod, kPeer, kOutside, kPlaces };
struct Outcome {
    std::array<std::vector<Bytes>, kPlaces> arrived{};
    bool operator==(const Outcome &) const = default;
};
// Frames that one outcome has and the other one lacks.
inline std::vector<Bytes> missing_at(Place place, const Outcome &of, const Outcome &in) {
    std::vector<Bytes> out;
    std::ranges::set_difference(of.arrived.at(place), in.arrived.at(place), std::back_inserter(out));
    return out;
}
inline std::vector<Bytes> missing(const Outcome &of, const Outcome &in) {
    std::vector<Bytes> out;
    for (std::size_t place = 0; place < kPlaces; ++place)
        std::ranges::copy(missing_at(Place(place), of, in), std::back_inserter(out));
    return out;
}

// The halves of an unfragmented packet without options.
inline std::vector<Bytes> fragments_of(const Bytes &frame, std::uint16_t id) {
    const bool v4 = ethertype(frame) == ETHERTYPE_IP;
    const std::size_t header = v4 ? 34 : 54;
    const std::size_t half = ((frame.size() - header) / 2 + 7) / 8 * 8;
    std::vector<Bytes> out;
    for (const std::size_t from : {std::size_t{0}, half}) {
        const auto begin = frame.begin() + static_cast<std::ptrdiff_t>(header);
        const std::size_t bytes = from == 0 ? half : frame.size() - header - half;
        const auto offset = static_cast<std::uint16_t>(from | (from == 0 ? 1U : 0U)); // of IPv6; the bit: more follow
        Bytes one(frame.begin(), begin);
        if (v4) {
            Bytes changed;
            frames::put16(changed, 20 + bytes);
            frames::put16(changed, id);
            frames::put16(changed, from / 8 | (from == 0 ? 0x2000U : 0U));
            std::ranges::copy(changed, one.begin() + 16);
            one[24] = one[25] = 0;
            const std::uint16_t sum = frames::checksum(std::span(one).subspan(14, 20));
            one[24] = static_cast<std::uint8_t>(sum >> 8U);
            one[25] = static_cast<std::uint8_t>(sum);
        } else {
            one[18] = static_cast<std::uint8_t>((bytes + 8) >> 8U);
            one[19] = static_cast<std::uint8_t>(bytes + 8);
            one[20] = IPPROTO_FRAGMENT;
            Bytes extension{frame[20], 0};
            frames::put16(extension, offset);
            frames::put32(extension, id);
            frames::append(one, extension);
        }
        one.insert(one.end(), begin + static_cast<std::ptrdiff_t>(from),
                   begin + static_cast<std::ptrdiff_t>(from + bytes));
        out.push_back(std::move(one));
    }
    return out;
}

// A node, two pods of it and what is outside. Nothing there depends on time: no neighbour is unresolved or expires, and
// no answer is held back by a rate.
class Course {
  public:
    // `link_local` is that of the pod whose frames these are.
    Course(Lab &lab, const Pod &pod, const Pod &peer, const ip_addr &link_local)
        : lab_(lab), pods_{pod, peer}, wires_{pod.wire(), peer.wire(), Wire(lab.outside(), "eth0")},
          node_mac_(Wire(lab.node().ns(), "up0").mac()) {
        (void)must_run(pod.ns(), words("ip addr replace " + to_string(link_local) + "/64 dev eth0 nodad"));
        (void)must_run(lab.outside(), {"sh", "-c", kRoutesBack});
        for (const net::Namespace *ns : {&lab.node().ns(), &lab.outside(), &pod.ns(), &peer.ns()})
            (void)must_run(*ns, {"sh", "-c", kAnswerAtOnce});
        meet(link_local);
        for (const net::Namespace *ns : {&lab.node().ns(), &lab.outside(), &pod.ns(), &peer.ns()})
            (void)must_run(*ns, {"sh", "-c", kKeepNeighbours});
        know_only(lab.node().ns(), "up0", "1");
        know_only(lab.outside(), "eth0", "2");
    }

    [[nodiscard]] Mac mac(Place of) const { return wires_.at(of).mac(); }
    [[nodiscard]] Mac gateway(Place of) const { return of == kOutside ? node_mac_ : pods_.at(of).gateway_mac; }

    // Frames from one place, with the MACs of the course that they were made for. Markers follow them.
    // `forges`: in the name of others, to whom the answers go.
    [[nodiscard]] Outcome send(Place from, const std::vector<Sent> &frames, const Course &made_for, bool forges) {
        for (const Wire &wire : wires_)
            wire.forget();
        for (const Sent &one : frames)
            send(from, one, made_for);
        std::array<std::uint16_t, kPlaces> marked{};
        for (std::size_t place = 0; place < kPlaces; ++place) {
            marked.at(place) = ++sent_;
            if (place != from)
                wires_.at(from).send(frame(gateway(from), mac(from), marker({v4(from), v4(Place(place))}, sent_)));
        }
        marked.at(from) = marked.at(from == kOutside ? kPeer : kOutside);
        Outcome outcome;
        for (std::size_t place = 0; place < kPlaces; ++place) {
            const std::uint8_t type = place == from ? ICMP_ECHOREPLY : ICMP_ECHO;
            const auto last = [&](const Bytes &frame) { return is_marker(frame, type, marked.at(place)); };
            const auto caught = wires_.at(place).caught_until(last, patience());
            if (!caught)
                throw std::runtime_error("a marker was lost on its way to place " + std::to_string(place));
            for (const Caught &one : *caught)
                if (!is_noise(one.frame) && !is_late(one.frame) && (one.frame.front() & 1U) == 0)
                    outcome.arrived.at(place).push_back(place == from ? kind(one) : normal(one, Place(place), forges));
            std::ranges::sort(outcome.arrived.at(place));
        }
        return outcome;
    }

  private:
    static constexpr const char *kRoutesBack = "ip route add 198.18.9.0/24 via 203.0.113.2 && "
                                               "ip route add 2001:db8:9::/64 via 2001:db8:cafe::2";
    // No redirects: the gateways of all pods have one link-local address, so that a pod believes what the node answers
    // on another's link to a packet in its name.
    static constexpr const char *kAnswerAtOnce =
        "sysctl -qw net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0; echo > /proc/sys/net/ipv6/icmp/ratemask; "
        "for each in /proc/sys/net/ipv4/conf/*/send_redirects /proc/sys/net/ipv6/conf/*/accept_redirects; do "
        "echo 0 > $each; done";
    static constexpr const char *kKeepNeighbours =
        "ip neigh show nud reachable nud stale nud delay nud probe | while read -r to dev name lladdr mac rest; do "
        "ip neigh replace $to lladdr $mac dev $name nud permanent; done";
    // Answers to a neighbour that is not there would wait for it, and take the room that a kernel has for answers.
    static void know_only(const net::Namespace &ns, const std::string &link, const std::string &last) {
        for (const std::string &prefix : {std::string("203.0.113."), std::string("2001:db8:cafe::")}) {
            const std::string all = prefix + (prefix.ends_with(':') ? "/64" : "0/24");
            for (const std::string &change :
                 {"add " + prefix + last + " dev " + link, "del " + all + " dev " + link, "add blackhole " + all})
                (void)must_run(ns, words("ip route " + change));
        }
    }

    [[nodiscard]] ip_addr v4(Place of) const { return of == kOutside ? ip(Lab::kOutside4) : pods_.at(of).v4; }

    void meet(const ip_addr &link_local) const {
        for (std::size_t from = 0; from < 2; ++from) {
            const Pod &other = pods_.at(1 - from);
            for (const ip_addr &to : {other.v4, other.v6, ip(Lab::kOutside4), ip(Lab::kOutside6)})
                if (!ping(pods_.at(from).ns(), to_string(to), 1))
                    throw std::runtime_error("no answer from " + to_string(to));
        }
        if (!ping(lab_.node().ns(), to_string(link_local) + "%" + pods_[0].host_ifname, 1))
            throw std::runtime_error("no answer from " + to_string(link_local));
    }
    void send(Place from, const Sent &one, const Course &made_for) const {
        Bytes frame = one.frame;
        if (std::ranges::equal(std::span(frame).first(6), made_for.gateway(from)))
            std::ranges::copy(gateway(from), frame.begin());
        if (std::ranges::equal(std::span(frame).subspan(6, 6), made_for.mac(from)))
            std::ranges::copy(mac(from), frame.begin() + 6);
        try {
            (void)wires_.at(from).send(frame, one.left);
        } catch (const std::runtime_error &) { // the kernel refuses it, on both courses
        }
    }
    // Half a minute ago fragments came whose rest did not.
    static bool is_late(const Bytes &frame) {
        const std::size_t at = transport_at(frame);
        return at != 0 && frame[at + 1] == 1 &&
               ((protocol_of(frame) == IPPROTO_ICMP && frame[at] == ICMP_TIME_EXCEEDED) ||
                (protocol_of(frame) == IPPROTO_ICMPV6 && frame[at] == ICMP6_TIME_EXCEEDED));
    }
    // A node sends it, by its own address, to whom the source route of the packet names that it is about.
    static bool is_source_routed_error(const Bytes &frame) {
        const std::size_t at = transport_at(frame);
        return ethertype(frame) == ETHERTYPE_IP && at > 34 && protocol_of(frame) == IPPROTO_ICMP &&
               (frame[at] == ICMP_DEST_UNREACH || frame[at] == ICMP_TIME_EXCEEDED || frame[at] == ICMP_PARAMETERPROB);
    }
    // For packets that come back: they depend on addresses of the node that are not alike.
    static Bytes kind(const Caught &one) {
        const std::string text = kind_of(one.frame);
        return {text.begin(), text.end()};
    }
    // Without what differs between two nodes: MACs that are right, the identification of IPv6 fragments that the node
    // has assembled before, and its address and other numbers in answers.
    [[nodiscard]] Bytes normal(const Caught &one, Place place, bool forges) const {
        Bytes out = one.frame;
        const auto blank = [&](std::size_t at, std::size_t bytes) {
            for (std::size_t i = at; i < std::min(at + bytes, out.size()); ++i)
                out[i] = 0;
        };
        if (std::ranges::equal(std::span(out).first(6), mac(place)) &&
            std::ranges::equal(std::span(out).subspan(6, 6), gateway(place)))
            blank(0, 12);
        const bool v4 = ethertype(out) == ETHERTYPE_IP;
        if (!v4 && out.size() > 62 && out[20] == IPPROTO_FRAGMENT)
            blank(58, 4);
        if ((forges || is_source_routed_error(out)) && out.size() > 58 &&
            out[v4 ? 23 : 20] == (v4 ? std::uint8_t{IPPROTO_ICMP} : std::uint8_t{IPPROTO_ICMPV6})) {
            blank(v4 ? 18 : 15, v4 ? 2 : 3); // identification; flow label
            blank(v4 ? 24 : 22, v4 ? 6 : 16);
            blank(v4 ? 24 : 56, 2);
            if (!v4 && out.size() > 110 && out[68] == IPPROTO_FRAGMENT)
                blank(106, 4);
        }
        const std::string left = to_string(one.left);
        out.insert(out.end(), left.begin(), left.end());
        return out;
    }

    Lab &lab_;
    std::array<Pod, 2> pods_;
    std::array<Wire, kPlaces> wires_;
    Mac node_mac_;
    std::uint16_t sent_ = 0;
};

} // namespace podlane::test
