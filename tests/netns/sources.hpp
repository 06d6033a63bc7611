// SPDX-License-Identifier: MIT
// A node with three uplinks to three providers, each with a client behind it, and pods with an interface in several
// networks: what the tests of source-based return traffic stand on.
#pragma once

#include "tests/netns/lab.hpp"

namespace podlane::test {

// One interface of a pod: its name, its network's, and the keys on top of Podlane's configuration.
struct Attach {
    std::string ifname;
    std::string network;
    std::vector<Json> plugins;
};

class SourceLab {
  public:
    static constexpr int kProviders = 3;
    // Of the tests with a LAN behind another link.
    static constexpr const char *kLan4 = "192.168.133.0/24";
    static constexpr const char *kLan6 = "2001:db8:133::/64";

    static std::string on_link(int provider, int host, bool ipv4) {
        return ipv4 ? "192.0.2." + std::to_string(provider * 64 + host)
                    : "2001:db8:f" + std::to_string(provider) + "::" + std::to_string(host);
    }
    static std::string client_addr(int provider, bool ipv4) {
        return ipv4 ? "203.0.113." + std::to_string(provider * 64 + 9)
                    : "2001:db8:c" + std::to_string(provider) + "::9";
    }
    // Ranges of pods behind provider N; with `shared` all are parts of the same subnet.
    static std::string range(int provider, bool ipv4, bool shared) {
        if (shared)
            return ipv4 ? "198.18.0.0/24" : "2001:db8:10::/64";
        return ipv4 ? "198.18." + std::to_string(provider) + ".0/24"
                    : "2001:db8:1" + std::to_string(provider) + "::/64";
    }

    // The last number of the first address that provider N's pods have in a shared subnet, as it is written.
    static int first_of_shared(int provider, bool ipv4) { return (ipv4 ? 32 : 20) * (provider + 1); }
    // The addresses of the pods behind provider N.
    static std::string prefix(int provider, bool ipv4, bool shared) {
        if (!shared)
            return range(provider, ipv4, false);
        const std::string first = std::to_string(first_of_shared(provider, ipv4));
        return ipv4 ? "198.18.0." + first + "/27" : "2001:db8:10::" + first + "/123";
    }

    explicit SourceLab(bool shared = false) : shared_(shared) {
        skip_dad(node_);
        for (int number = 0; number < kProviders; ++number)
            add_provider(number);
        route_by_source();
        node_.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=1 "
                  "net.ipv4.conf.default.rp_filter=1");
    }
    ~SourceLab() { del_all(); }
    SourceLab(const SourceLab &) = delete;
    SourceLab &operator=(const SourceLab &) = delete;

    [[nodiscard]] Node &node() { return node_; }
    [[nodiscard]] const Node &node() const { return node_; }
    [[nodiscard]] const Container &provider(int number) const { return *providers_.at(index(number)); }
    [[nodiscard]] const Container &client(int number) const { return *clients_.at(index(number)); }

    void del_all() {
        for (auto one = added_.rbegin(); one != added_.rend(); ++one)
            if (const Reply reply = one->second.chain->del(*one->second.container); reply.rc != 0)
                ADD_FAILURE() << "DEL: " << reply;
        added_.clear();
    }

    // Podlane as the main plugin of a network behind provider N.
    [[nodiscard]] Json network(int provider, const Json &keys = Json::object()) const {
        Json range4 = {{"subnet", range(provider, true, shared_)}};
        Json range6 = {{"subnet", range(provider, false, shared_)}};
        if (shared_) { // parts of one subnet
            const int first4 = first_of_shared(provider, true);
            const int first6 = first_of_shared(provider, false);
            range4.update({{"rangeStart", "198.18.0." + std::to_string(first4)},
                           {"rangeEnd", "198.18.0." + std::to_string(first4 + 31)}});
            range6.update({{"rangeStart", "2001:db8:10::" + std::to_string(first6)},
                           {"rangeEnd", "2001:db8:10::" + std::to_string(first6 + 19)}});
        }
        Json all = {{"uplinks", {"up" + std::to_string(provider)}},
                    {"ipam",
                     {{"type", "host-local"},
                      {"dataDir", node_.leases()},
                      {"ranges", {Json::array({range4}), Json::array({range6})}}}}};
        all.merge_patch(keys);
        return node_.config(all);
    }

    // ADD as multus does it, one network after the other.
    Reply try_add(const std::shared_ptr<Container> &pod, const Attach &attach) {
        auto chain = std::make_shared<Chain>(node_, attach.plugins, "1.0.0", attach.network);
        chain->variables = {{"CNI_IFNAME", attach.ifname}};
        Reply reply = chain->add(*pod);
        if (reply.rc == 0)
            added_.emplace_back(pod->id() + attach.ifname, Added{pod, chain});
        return reply;
    }
    void add(const std::shared_ptr<Container> &pod, const Attach &attach) {
        if (const Reply reply = try_add(pod, attach); reply.rc != 0)
            throw std::runtime_error("ADD of " + attach.ifname + ": " + reply.out + reply.err);
    }
    // Podlane's own interface in the network behind provider N.
    void add(const std::shared_ptr<Container> &pod, const std::string &ifname, int provider,
             const Json &keys = Json::object()) {
        add(pod, {ifname, network_name(provider), {network(provider, keys)}});
    }
    [[nodiscard]] Reply check(const std::shared_ptr<Container> &pod, const std::string &ifname) const {
        return find(pod, ifname).chain->check(*pod);
    }
    Reply del(const std::shared_ptr<Container> &pod, const std::string &ifname) {
        const Added one = find(pod, ifname);
        forget(pod, ifname);
        return one.chain->del(*pod);
    }
    // The end of the lab does no DEL of it.
    void forget(const std::shared_ptr<Container> &pod, const std::string &ifname) {
        std::erase_if(added_, [&](const auto &entry) { return entry.first == pod->id() + ifname; });
    }
    static std::string network_name(int provider) { return "net" + std::to_string(provider); }

    [[nodiscard]] static std::vector<ip_addr> addrs(const Container &pod, const std::string &ifname, bool ipv4) {
        std::vector<ip_addr> found;
        const Json link = Json::parse(pod.run("ip -j addr show " + ifname)).at(0);
        for (const Json &one : link.at("addr_info"))
            if (const ip_addr addr = ip(one.at("local")); is_ipv4(addr) == ipv4 && !is_link_local(addr))
                found.push_back(addr);
        return found;
    }
    [[nodiscard]] static ip_addr addr(const Container &pod, const std::string &ifname, bool ipv4) {
        return addrs(pod, ifname, ipv4).at(0);
    }
    [[nodiscard]] static std::uint32_t host_veth(const Container &pod, const std::string &ifname) {
        return Json::parse(pod.run("ip -j link show " + ifname)).at(0).at("link_index");
    }
    [[nodiscard]] std::uint64_t count(std::uint32_t ifindex, reason why) const {
        return node_.counted(ifindex, why).packets;
    }

  private:
    struct Added {
        std::shared_ptr<Container> container;
        std::shared_ptr<Chain> chain;
    };
    static std::size_t index(int number) { return static_cast<std::size_t>(number); }
    [[nodiscard]] const Added &find(const std::shared_ptr<Container> &pod, const std::string &ifname) const {
        for (const auto &[name, one] : added_)
            if (name == pod->id() + ifname)
                return one;
        throw std::runtime_error(ifname + " was not added");
    }
    // Each link has a /26; the provider checks the way back strictly, as does its client.
    // Nobody asks for a neighbour from a link-local address that is not its own yet: the first packet would be lost.
    static void skip_dad(const auto &here) { (void)here.run("sysctl -qw net.ipv6.conf.default.accept_dad=0"); }
    void add_provider(int number) {
        const std::string n = std::to_string(number);
        const auto provider = node_.container("provider" + n);
        providers_.at(index(number)) = provider;
        skip_dad(*provider);
        node_.run("ip link add up" + n + " type veth peer name eth0 netns " + provider->path());
        node_.run("ip addr add " + on_link(number, 2, true) + "/26 dev up" + n);
        node_.run("ip addr add " + on_link(number, 2, false) + "/64 dev up" + n + " nodad");
        node_.run("ip link set up" + n + " up");
        (void)provider->run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 "
                            "net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.default.rp_filter=1");
        (void)provider->run("ip link set lo up");
        (void)provider->run("ip addr add " + on_link(number, 1, true) + "/26 dev eth0");
        (void)provider->run("ip addr add " + on_link(number, 1, false) + "/64 dev eth0 nodad");
        (void)provider->run("ip link set eth0 up");
        for (const bool ipv4 : {true, false}) {
            (void)provider->run("ip route add " + range(number, ipv4, shared_) + " via " + on_link(number, 2, ipv4));
            node_.run(std::string("ip ") + (ipv4 ? "" : "-6 ") + "route append default via " +
                      on_link(number, 1, ipv4) + " metric " + std::to_string(ipv4 ? 100 + number : 100));
        }
        add_client(number, *provider);
    }
    // As docs/SOURCE-ROUTING.md advises: what pods send to each other and to hosts on the node's links by the main
    // table, the rest by their provider.
    void route_by_source() {
        for (const bool ipv4 : {true, false}) {
            const std::string ip = ipv4 ? "ip " : "ip -6 ";
            for (const std::string &near :
                 ipv4 ? std::vector<std::string>{"198.18.0.0/16", "192.0.2.0/24", kLan4}
                      : std::vector<std::string>{"2001:db8:10::/44", "2001:db8:f0::/44", kLan6})
                node_.run(ip + "rule add pref 1000 to " + near + " lookup main");
            for (int number = 0; number < kProviders; ++number) {
                const std::string table = std::to_string(100 + number);
                node_.run(ip + "rule add pref 1001 from " + prefix(number, ipv4, shared_) + " lookup " + table);
                node_.run(ip + "route add default via " + on_link(number, 1, ipv4) + " dev up" +
                          std::to_string(number) + " table " + table);
            }
        }
    }
    void add_client(int number, const Container &provider) {
        const auto client = node_.container("client" + std::to_string(number));
        clients_.at(index(number)) = client;
        skip_dad(*client);
        (void)provider.run("ip link add customer type veth peer name eth0 netns " + client->path());
        (void)provider.run("ip addr add 203.0.113." + std::to_string(number * 64 + 1) + "/26 dev customer");
        (void)provider.run("ip addr add 2001:db8:c" + std::to_string(number) + "::1/64 dev customer nodad");
        (void)provider.run("ip link set customer up");
        (void)client->run("ip link set lo up");
        (void)client->run("ip addr add " + client_addr(number, true) + "/26 dev eth0");
        (void)client->run("ip addr add " + client_addr(number, false) + "/64 dev eth0 nodad");
        (void)client->run("ip link set eth0 up");
        (void)client->run("ip route add default via 203.0.113." + std::to_string(number * 64 + 1));
        (void)client->run("ip -6 route add default via 2001:db8:c" + std::to_string(number) + "::1");
    }

    bool shared_;
    Node node_;
    std::array<std::shared_ptr<Container>, kProviders> providers_;
    std::array<std::shared_ptr<Container>, kProviders> clients_;
    std::vector<std::pair<std::string, Added>> added_;
};

constexpr std::array<const char *, 3> kHows = {"icmp", "tcp", "udp"};

// One question and a second's wait: for what is likely to stay without an answer.
inline bool is_answered(const net::Namespace &from, const std::string &how, const ip_addr &addr, std::uint16_t port) {
    const std::string to = to_string(addr);
    if (how == "icmp")
        return run(from, words("ping -c 1 -W 1 " + to)).rc == 0;
    const std::string file = "/dev/" + how + "/" + to + "/" + std::to_string(port);
    return run(from, {"timeout", slow() ? "9" : "1", "bash", "-c",
                      "exec 3<>" + file + " && echo question >&3 && head -c 1 <&3 | grep -q q"})
               .rc == 0;
}

// For what must be answered: a link that has just come up takes a moment to find its neighbours.
inline bool gets_answer(const net::Namespace &from, const std::string &how, const ip_addr &addr, std::uint16_t port) {
    return wait_until([&] { return is_answered(from, how, addr, port); });
}

} // namespace podlane::test
