// SPDX-License-Identifier: MIT
// Pods that the node's routes no longer lead to, each by another change, and connections with them that go on sending.
#pragma once

#include "tests/netns/captured.hpp"
#include "tests/netns/lab.hpp"
#include "tests/netns/segments.hpp"

namespace podlane::test {

using Clock = std::chrono::steady_clock;

inline constexpr std::uint16_t kPort = 7;
inline constexpr std::uint16_t kOwnPort = 5001;
// Of each flow, a packet in this time.
inline constexpr std::chrono::milliseconds kBetween{20};
// In this time nothing may arrive. It is longer than an entry of the flow cache holds without a query.
inline constexpr std::chrono::milliseconds kWindow{1200};
// A query of conntrack is due after a second.
inline std::chrono::milliseconds confirmation() { return std::chrono::milliseconds(slow() ? 20000 : 4000); }

// A change on the node that keeps packets from a pod: of all senders, or of the pod that sends alone.
enum class Change { blackhole, prohibited, from_sender, link_down };
inline std::string name_of(Change change) {
    static const std::map<Change, std::string> kNames = {{Change::blackhole, "a blackhole route"},
                                                         {Change::prohibited, "a rule that prohibits"},
                                                         {Change::from_sender, "a rule by source"},
                                                         {Change::link_down, "the host-side veth down"}};
    return kNames.at(change);
}

class Withdrawn : public LabTest {
  protected:
    struct Sender {
        std::string name{};
        const net::Namespace *ns = nullptr;
        ip_addr addr{};
        Mac gateway{};
        reason received{}; // on the fast path
        std::shared_ptr<Wire> wire{};
    };
    struct Receiver {
        Change change{};
        Pod pod{};
        std::shared_ptr<Wire> wire{};
        std::shared_ptr<EchoServer> server{};
        std::string route{}; // to the pod, as `ip route` shows it
    };
    // A connection between sockets, and a packet of it that is sent again and again.
    struct Flow {
        std::size_t sender = 0;
        std::size_t receiver = 0;
        Transport transport{};
        Fd socket{};
        Bytes frame{};
        std::size_t arrived = 0;
        Clock::time_point last{}; // when one arrived
    };

    [[nodiscard]] std::string ip_command() const { return ipv4() ? "ip " : "ip -6 "; }
    void add_receivers(const std::vector<Change> &changes, const Json &keys) {
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        for (const Change change : changes) {
            const Pod pod = add_pod(keys);
            std::string route = lab_->node().run(ip_command() + "route show " + to_string(addr(pod)));
            route = route.substr(0, route.find('\n'));
            receivers_.push_back({change, pod, std::make_shared<Wire>(pod.wire()),
                                  std::make_shared<EchoServer>(pod.ns(), ipv4(), kPort), route});
        }
    }
    void add_sending_pod(const Json &keys) {
        const Pod pod = add_pod(keys);
        senders_.push_back(
            {"a pod", nullptr, addr(pod), pod.gateway_mac, REASON_RECEIVED_DIRECT, std::make_shared<Wire>(pod.wire())});
        pod_ = pod;
        senders_.back().ns = &pod_.ns();
    }
    void add_sending_host() {
        senders_.push_back({"a host", &lab_->outside(), outside_addr(), Wire(lab_->node().ns(), "up0").mac(),
                            REASON_RECEIVED_UPLINK, std::make_shared<Wire>(lab_->outside(), "eth0")});
    }
    void connect_all() {
        for (std::size_t sender = 0; sender < senders_.size(); ++sender)
            for (std::size_t receiver = 0; receiver < receivers_.size(); ++receiver)
                for (const Transport transport : {Transport::tcp, Transport::udp})
                    flows_.push_back(connect(sender, receiver, transport));
        ASSERT_TRUE(wait_until([&] { return are_carried(); }));
    }
    [[nodiscard]] Flow connect(std::size_t sender, std::size_t receiver, Transport transport) const {
        const Sender &from = senders_[sender];
        const Receiver &to = receivers_[receiver];
        const ip_addr destination = addr(to.pod);
        const Ends ends{from.addr, destination, kOwnPort, kPort};
        Flow flow{sender, receiver, transport,
                  test::connected(*from.ns, transport, {destination, kPort}, {from.addr, kOwnPort})};
        Packet packet = udp(ends);
        if (transport == Transport::tcp) { // a segment that the receiver has had
            to.wire->forget();
            EXPECT_EQ(transfer(flow.socket, 1000), 0);
            packet = tcp(ends, tcp_ack | tcp_psh, 16);
            Numbers numbers = last_numbers_from(*to.wire, from.addr);
            numbers.sequence -= 16;
            put_numbers(packet, numbers);
        }
        flow.frame = frame(from.gateway, from.wire->mac(), packet);
        return flow;
    }
    // A packet of each flow, and what has arrived.
    void send_all() {
        for (const Flow &flow : flows_)
            senders_[flow.sender].wire->send(flow.frame);
        std::this_thread::sleep_for(kBetween);
        for (std::size_t receiver = 0; receiver < receivers_.size(); ++receiver)
            for (const Bytes &one : receivers_[receiver].wire->arrived())
                for (Flow &flow : flows_)
                    if (flow.receiver == receiver && is_of(flow, one)) {
                        flow.last = Clock::now();
                        ++flow.arrived;
                    }
    }
    [[nodiscard]] bool is_of(const Flow &flow, const Bytes &one) const {
        return is_from(one, senders_[flow.sender].addr) &&
               protocol_of(one) == (flow.transport == Transport::tcp ? IPPROTO_TCP : IPPROTO_UDP);
    }
    // All but a few of the packets arrive, on the path that the pods' keys say.
    [[nodiscard]] bool are_carried() {
        constexpr std::size_t kRounds = 10;
        constexpr std::size_t kLost = 2;
        for (Flow &flow : flows_)
            flow.arrived = 0;
        const std::vector<std::uint64_t> before = received();
        for (std::size_t i = 0; i < kRounds; ++i)
            send_all();
        const std::vector<std::uint64_t> after = received();
        for (std::size_t i = 0; i < after.size(); ++i)
            if (is_fast_ ? after[i] + kLost < before[i] + 2 * kRounds : after[i] != before[i])
                return false;
        return std::ranges::all_of(flows_, [](const Flow &flow) { return flow.arrived + kLost >= kRounds; });
    }
    // On the fast path, by each receiver from each sender.
    [[nodiscard]] std::vector<std::uint64_t> received() const {
        std::vector<std::uint64_t> all;
        for (const Receiver &to : receivers_)
            for (const Sender &from : senders_)
                all.push_back(lab_->count(to.pod, from.received));
        return all;
    }
    void expect_closed(const std::function<bool(const Flow &)> &is_closed) {
        const auto start = Clock::now();
        for (Flow &flow : flows_)
            flow.last = start;
        const auto is_silent = [&](const Flow &flow) { return Clock::now() - flow.last > kWindow; };
        while (Clock::now() < start + confirmation() + kWindow &&
               !std::ranges::all_of(flows_, [&](const Flow &flow) { return !is_closed(flow) || is_silent(flow); }))
            send_all();
        for (const Flow &flow : flows_)
            EXPECT_EQ(is_silent(flow), is_closed(flow))
                << name_of(receivers_[flow.receiver].change) << ": " << to_string(flow.transport) << " of "
                << senders_[flow.sender].name;
    }

    void make(const Receiver &at) {
        const std::string to = to_string(addr(at.pod)), pref = " pref " + std::to_string(at.pod.ifindex);
        const auto run = [&](const std::string &command) { lab_->node().run(ip_command() + command); };
        switch (at.change) {
        case Change::blackhole:
            run("route del " + at.route);
            return run("route add blackhole " + to);
        case Change::prohibited:
            return run("rule add to " + to + " prohibit" + pref);
        case Change::from_sender:
            return run("rule add from " + to_string(senders_.front().addr) + " to " + to + " blackhole" + pref);
        case Change::link_down:
            return run("link set " + at.pod.host_ifname + " down");
        }
    }
    void revert(const Receiver &at) {
        switch (at.change) {
        case Change::blackhole:
            lab_->node().run(ip_command() + "route del blackhole " + to_string(addr(at.pod)));
            lab_->node().run(ip_command() + "route add " + at.route);
            return;
        case Change::prohibited:
        case Change::from_sender:
            lab_->node().run(ip_command() + "rule del pref " + std::to_string(at.pod.ifindex));
            return;
        case Change::link_down:
            EXPECT_EQ(lab_->node().podlanectl("repair").rc, 0);
            return;
        }
    }
    void expect_changes_to_hold() {
        for (const Receiver &one : receivers_)
            make(one);
        expect_closed([&](const Flow &flow) {
            return receivers_[flow.receiver].change != Change::from_sender || flow.sender == 0;
        });
        for (const Receiver &one : receivers_)
            revert(one);
        EXPECT_TRUE(wait_until([&] { return are_carried(); })) << "after the changes";
        const std::string forwarding = ipv4() ? "net.ipv4.ip_forward=" : "net.ipv6.conf.all.forwarding=";
        lab_->node().run("sysctl -qw " + forwarding + "0");
        {
            SCOPED_TRACE("forwarding is off");
            expect_closed([](const Flow &) { return true; });
        }
        lab_->node().run("sysctl -qw " + forwarding + "1");
        EXPECT_TRUE(wait_until([&] { return are_carried(); })) << "forwarding is on again";
    }

    bool is_fast_ = true;

  private:
    Pod pod_{};
    std::vector<Sender> senders_;
    std::vector<Receiver> receivers_;
    std::vector<Flow> flows_;
};

} // namespace podlane::test
