// SPDX-License-Identifier: MIT
// Random conversations of sockets, step by step: the same steps can be run on two nodes, and what both ends of every
// connection see is text to compare.
#pragma once

#include "tests/netns/conntrack.hpp"
#include "tests/netns/conversation_step.hpp"
#include "tests/netns/kube_proxy.hpp"
#include "tests/netns/lab.hpp"

namespace podlane::test {

class Conversation {
  public:
    static constexpr std::uint16_t kPort = 80;
    static constexpr std::uint16_t kBackendPort = 8080;
    static constexpr std::uint16_t kNodePort = 30080;
    static constexpr std::uint16_t kHostPort = 8081;

    Conversation(const Json &keys, bool nftables, bool ipv4) : v4_(ipv4) {
        pods_.push_back(lab_.add_pod(keys));
        pods_.push_back(
            lab_.add_pod({lab_.node().config(keys), {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}}},
                         port_mappings(kHostPort, kBackendPort)));
        for (int i = 0; i < 2; ++i)
            pods_.push_back(lab_.add_pod(keys));
        const KubeProxy proxy = services();
        if (nftables)
            lab_.node().run("nft -f -", proxy.nftables());
        else
            lab_.node().run(ipv4 ? "iptables-restore --noflush" : "ip6tables-restore --noflush", proxy.iptables());
        // The end of every connection is still there to be compared.
        lab_.node().run("sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_close=" + std::to_string(kLong) +
                        " net.netfilter.nf_conntrack_tcp_timeout_last_ack=" + std::to_string(kLong) +
                        " net.netfilter.nf_conntrack_tcp_timeout_close_wait=" + std::to_string(kLong) +
                        " net.netfilter.nf_conntrack_tcp_timeout_time_wait=" + std::to_string(kLong) +
                        " net.netfilter.nf_conntrack_udp_timeout=" + std::to_string(kLong));
        for (const net::Namespace *where : {&lab_.node().ns(), &pods_.at(0).ns(), &pods_.at(1).ns(), &pods_.at(2).ns()})
            (void)must_run(*where, words("sysctl -qw net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0"));
        for (const net::Namespace *where : servers()) {
            listeners_.push_back(open_socket(*where, Transport::tcp, v4_, {any(), kBackendPort}));
            datagrams_.push_back(open_socket(*where, Transport::udp, v4_, {any(), kBackendPort}));
            must_not(listen(listeners_.back().get(), SOMAXCONN) != 0, "listen");
        }
    }

    // The bytes that both ends see.
    std::string run(const Step &step) {
        Slot &slot = slots_.at(static_cast<std::size_t>(step.slot));
        switch (step.verb) {
        case Verb::open:
            return slot.transport ? "busy" : open(step, slot);
        case Verb::talk:
            return talk(slot, step);
        case Verb::shut:
            return shut(slot, step.side);
        case Verb::close:
            return close(slot, step.side, false);
        case Verb::reset:
            return close(slot, step.side, true);
        case Verb::close_both:
            return close(slot, step.side, false) + ", " + close(slot, other(step.side), false);
        case Verb::evict:
            evict();
            return "";
        case Verb::pause:
            std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        }
        return "";
    }
    // Both ends close before either hears of it: the FINs are lost once.
    std::string close_at_once(int number) {
        Slot &slot = slots_.at(static_cast<std::size_t>(number));
        const std::string rule = " FORWARD -p tcp --tcp-flags FIN FIN -j DROP";
        const std::string iptables = v4_ ? "iptables -w" : "ip6tables -w";
        lab_.node().run(iptables + " -I" + rule);
        must_not(shutdown(slot.client.get(), SHUT_WR) != 0 || shutdown(slot.server.get(), SHUT_WR) != 0, "shutdown");
        lab_.node().run(iptables + " -D" + rule);
        return seen_by(slot.client) + ", " + seen_by(slot.server);
    }
    void close_all() {
        for (Slot &slot : slots_)
            for (const Side side : {Side::client, Side::server})
                (void)close(slot, side, false);
    }
    void evict() {
        const Flows flows = require(open_flows(lab_.node().bpffs(), Access::read_write));
        for (const auto &[key, value] : require(flows.entries()))
            (void)require(flows.remove(key));
    }
    // conntrack's table but for ports that the kernel chose.
    [[nodiscard]] std::multiset<std::string> states() {
        std::multiset<std::string> all;
        for (const Tracked &one : tracked(lab_.node().ns())) {
            const bool was_reset = one.state == "ESTABLISHED" && one.seconds <= kLong;
            all.insert(to_string(one.transport) + " " + (was_reset ? "CLOSE" : one.state) + " " +
                       to_string(one.source) + " to " + to_string(one.destination) + ", replies from " +
                       to_string(one.reply_source) + " to " + podlane::to_string(one.reply_destination.addr) +
                       (one.assured ? ", assured" : "") + (one.replied ? "" : ", unreplied"));
        }
        return all;
    }
    [[nodiscard]] std::uint64_t fast_packets() const {
        std::uint64_t sum = 0;
        for (const Pod &pod : pods_)
            sum += lab_.count(pod, REASON_SENT_DIRECT) + lab_.count(pod, REASON_SENT_UPLINK) +
                   lab_.count(pod, REASON_RECEIVED_UPLINK);
        return sum;
    }

  private:
    static constexpr std::uint64_t kLong = 3000; // seconds

    struct Slot {
        std::optional<Transport> transport{};
        Fd client{};
        Fd server{};            // TCP
        std::size_t number = 0; // of the server
        sockaddr_storage peer{};
        socklen_t peer_size = 0;
        bool was_reset = false;
    };

    static void must_not(bool failed, const char *what) {
        if (failed)
            throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
    }
    static Side other(Side side) { return side == Side::client ? Side::server : Side::client; }
    [[nodiscard]] ip_addr any() const { return v4_ ? ipv4_from_host_order(0) : ip_addr{}; }
    [[nodiscard]] ip_addr address(const Pod &pod) const { return v4_ ? pod.v4 : pod.v6; }
    [[nodiscard]] std::array<const net::Namespace *, 4> servers() const {
        return {&pods_.at(1).ns(), &pods_.at(2).ns(), &pods_.at(3).ns(), &lab_.outside()};
    }
    [[nodiscard]] const net::Namespace &place(Caller caller) {
        switch (caller) {
        case Caller::pod:
            return pods_.at(0).ns();
        case Caller::endpoint:
            return pods_.at(1).ns();
        case Caller::outside:
            return lab_.outside();
        case Caller::node:
            break;
        }
        return lab_.node().ns();
    }
    [[nodiscard]] ip_addr cluster_ip(int number) const {
        return ip((v4_ ? "198.19.0." : "2001:db8:5e::") + std::to_string(number));
    }
    [[nodiscard]] KubeProxy services() const {
        const std::vector<ip_addr> endpoints = {address(pods_.at(1)), address(pods_.at(2)), address(pods_.at(3))};
        return {{{"A", cluster_ip(1), kPort, endpoints, kBackendPort, false, kNodePort},
                 {"B", cluster_ip(2), kPort, endpoints, kBackendPort, true},
                 {"C", cluster_ip(3), kPort}},
                v4_ ? Lab::kPods4 : Lab::kPods6,
                true};
    }
    [[nodiscard]] Endpoint endpoint(Target target) const {
        const ip_addr node = ip(v4_ ? Lab::kNode4 : Lab::kNode6);
        switch (target) {
        case Target::service:
            return {cluster_ip(1), kPort};
        case Target::sticky:
            return {cluster_ip(2), kPort};
        case Target::refused:
            return {cluster_ip(3), kPort};
        case Target::pod:
            return {address(pods_.at(3)), kBackendPort};
        case Target::node_port:
            return {node, kNodePort};
        case Target::host_port:
            return {node, kHostPort};
        case Target::outside:
            return {ip(v4_ ? Lab::kOutside4 : Lab::kOutside6), kBackendPort};
        case Target::closed:
            break;
        }
        return {address(pods_.at(2)), 9};
    }

    // The first of the sockets, or the client's, that has something to say; the client's last.
    static std::optional<std::size_t> ready(const std::vector<Fd> &sockets, const Fd &client) {
        std::vector<pollfd> all;
        for (const Fd &one : sockets)
            all.push_back({one.get(), POLLIN, 0});
        all.push_back({client.get(), POLLIN, 0});
        if (poll(all.data(), all.size(), static_cast<int>(patience().count())) <= 0)
            return {};
        for (std::size_t i = 0; i < all.size(); ++i)
            if (all[i].revents != 0)
                return i;
        return {};
    }
    [[nodiscard]] std::string name_of(const sockaddr_storage &peer) const {
        ip_addr addr{};
        if (v4_)
            addr = {{0, 0, htonl(0xffff), reinterpret_cast<const sockaddr_in &>(peer).sin_addr.s_addr}};
        else
            std::memcpy(&addr, &reinterpret_cast<const sockaddr_in6 &>(peer).sin6_addr, sizeof addr);
        return podlane::to_string(addr);
    }

    std::string open(const Step &step, Slot &slot) {
        // Two sockets of one port would share what arrives.
        for (const auto &[caller, transport, port] : ports_)
            if (caller == step.caller && transport == step.transport && port == step.port)
                return "port in use";
        Fd client = open_socket(place(step.caller), step.transport, v4_, {any(), step.port});
        const int error = connect_to(client, endpoint(step.target));
        if (error != 0)
            return "error " + std::to_string(error);
        slot.client = std::move(client);
        const std::string answer = step.transport == Transport::tcp ? accept(slot) : ask(slot);
        if (answer.starts_with("error")) {
            slot = {};
            return answer;
        }
        slot.transport = step.transport;
        ports_.insert({step.caller, step.transport, step.port});
        slot_ports_[&slot] = {step.caller, step.transport, step.port};
        return answer;
    }
    std::string accept(Slot &slot) {
        const auto number = ready(listeners_, slot.client);
        if (!number || *number == listeners_.size())
            return "error: not accepted";
        slot.peer_size = sizeof slot.peer;
        slot.number = *number;
        slot.server = Fd(accept4(listeners_.at(*number).get(), reinterpret_cast<sockaddr *>(&slot.peer),
                                 &slot.peer_size, SOCK_CLOEXEC | SOCK_NONBLOCK));
        return "server " + std::to_string(*number) + " accepts " + name_of(slot.peer);
    }
    std::string ask(Slot &slot) {
        if (const int error = send_text(slot.client, "hello"); error != 0)
            return "error " + std::to_string(error);
        std::string answer = receive_datagram(slot, 5);
        return answer.starts_with("error") ? answer : answer + ", " + reply(slot, "hi");
    }
    std::string receive_datagram(Slot &slot, std::size_t bytes) {
        const auto number = ready(datagrams_, slot.client);
        if (!number)
            return "error: lost";
        if (*number == datagrams_.size())
            return "error " + std::to_string(receive(slot.client).error);
        slot.number = *number;
        slot.peer_size = sizeof slot.peer;
        std::string text(70000, '\0');
        const ssize_t got = recvfrom(datagrams_.at(*number).get(), text.data(), text.size(), 0,
                                     reinterpret_cast<sockaddr *>(&slot.peer), &slot.peer_size);
        const bool whole = got == static_cast<ssize_t>(bytes);
        return "server " + std::to_string(*number) + " hears " + name_of(slot.peer) + (whole ? "" : ", cut");
    }
    std::string reply(const Slot &slot, const std::string &text) {
        sendto(datagrams_.at(slot.number).get(), text.data(), text.size(), 0,
               reinterpret_cast<const sockaddr *>(&slot.peer), slot.peer_size);
        const Received got = receive(slot.client, 70000);
        return got.error != 0 ? "error " + std::to_string(got.error) : got.text == text ? "answered" : "other bytes";
    }

    std::string talk(Slot &slot, const Step &step) {
        if (!slot.transport)
            return "";
        const Bytes data = pattern(slot.transport == Transport::udp ? step.bytes % 5000 : step.bytes);
        const std::string text(data.begin(), data.end());
        if (slot.transport == Transport::udp) {
            if (!slot.client)
                return "";
            if (step.side == Side::server)
                return reply(slot, text);
            if (const int error = send_text(slot.client, text); error != 0)
                return "error " + std::to_string(error);
            return receive_datagram(slot, text.size());
        }
        return stream(step.side == Side::client ? slot.client : slot.server,
                      step.side == Side::client ? slot.server : slot.client, text);
    }
    // All of it from one end to the other; the end that has nobody to listen waits for its error.
    static std::string stream(const Fd &from, const Fd &to, const std::string &text) {
        if (!from)
            return "";
        std::size_t sent = 0;
        std::string got;
        while (got.size() < text.size()) {
            if (sent < text.size()) {
                const ssize_t now = send(from.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
                if (now < 0 && errno != EAGAIN)
                    return "error " + std::to_string(errno);
                sent += now > 0 ? static_cast<std::size_t>(now) : 0;
            }
            if (!to && sent == text.size())
                return "into nothing: " + std::to_string(receive(from).error);
            pollfd one{to ? to.get() : from.get(), static_cast<short>(to ? POLLIN : POLLOUT), 0};
            if (poll(&one, 1, static_cast<int>(patience().count())) <= 0)
                return "stuck after " + std::to_string(got.size());
            if (!to)
                continue;
            std::string part(65536, '\0');
            const ssize_t now = recv(to.get(), part.data(), part.size(), 0);
            if (now == 0 || (now < 0 && errno != EAGAIN))
                return now == 0 ? "ended" : "error " + std::to_string(errno);
            got.append(part, 0, now > 0 ? static_cast<std::size_t>(now) : 0);
        }
        return got == text ? "heard " + std::to_string(got.size()) : "other bytes";
    }

    static std::string seen_by(const Fd &socket) {
        if (!socket)
            return "nobody sees";
        const Received got = receive(socket);
        return got.error != 0 ? "other end sees error " + std::to_string(got.error)
                              : "other end sees " + std::to_string(got.text.size()) + " bytes";
    }
    static std::string shut(Slot &slot, Side side) {
        Fd &here = side == Side::client ? slot.client : slot.server;
        if (slot.transport != Transport::tcp || !here || shutdown(here.get(), SHUT_WR) != 0)
            return "";
        return seen_by(side == Side::client ? slot.server : slot.client);
    }
    std::string close(Slot &slot, Side side, bool reset) {
        Fd &here = side == Side::client ? slot.client : slot.server;
        Fd &there = side == Side::client ? slot.server : slot.client;
        if (!slot.transport || !here)
            return "";
        if (reset) {
            const linger now{1, 0};
            setsockopt(here.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
        }
        here.reset();
        const std::string seen = slot.transport == Transport::tcp ? seen_by(there) : "";
        if (!there) {
            if (!reset && !slot.was_reset)
                ports_.erase(slot_ports_.at(&slot));
            slot = {};
        } else {
            slot.was_reset |= reset;
        }
        return seen;
    }

    using Port = std::tuple<Caller, Transport, std::uint16_t>;

    bool v4_;
    Lab lab_;
    std::vector<Pod> pods_; // a caller, and three endpoints
    std::vector<Fd> listeners_;
    std::vector<Fd> datagrams_;
    std::array<Slot, kSlots> slots_;
    std::set<Port> ports_; // not to be used
    std::map<const Slot *, Port> slot_ports_;
};

} // namespace podlane::test
