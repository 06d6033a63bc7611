// SPDX-License-Identifier: MIT
// Three nodes on a switch, each with pods, a bpffs and CNI state of its own: namespaces, all gone with the test.
#pragma once

#include "tests/harness/pod.hpp"
#include "tests/harness/talk.hpp"

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace podlane::test {

std::string with_bits(const std::string &addr); // as a prefix of this one address

// A program that runs in a namespace until this object goes, or the test does, however it ends.
class Daemon {
  public:
    Daemon(const net::Namespace &where, const std::vector<std::string> &argv, const std::string &log);
    ~Daemon();
    Daemon(Daemon &&other) noexcept : pid_(other.pid_) { other.pid_ = 0; }
    Daemon(const Daemon &) = delete;
    Daemon &operator=(const Daemon &) = delete;
    Daemon &operator=(Daemon &&) = delete;

    // Returns when it has ended by itself.
    void wait();

  private:
    pid_t pid_;
};

// Node N (1 to 3) has 192.0.2.1N on up0, 198.51.100.1N on up1, and pods in 198.18.N.0/24; and the like in IPv6. The
// outside is one more host on the network of up0, the nodes' default gateway; it knows nothing of pods.
class Cluster {
  public:
    static constexpr int kNodes = 3;
    static constexpr const char *kPods4 = "198.18.0.0/16";
    static constexpr const char *kPods6 = "2001:db8:10::/48";

    explicit Cluster(int networks = 1);
    ~Cluster();
    Cluster(const Cluster &) = delete;
    Cluster &operator=(const Cluster &) = delete;

    [[nodiscard]] const Node &node(int number) const { return *nodes_.at(static_cast<std::size_t>(number - 1)); }
    [[nodiscard]] const Container &outside() const { return *outside_; }
    [[nodiscard]] const Container &wiring() const { return *switch_; } // the switch itself

    static std::string node_addr(int node, bool ipv4, int network = 0);
    static std::string outside_addr(bool ipv4);
    static std::string pods(int node, bool ipv4);
    static std::string first_pod(int node, bool ipv4); // network address of pods()

    // Podlane with the node's ranges and the cluster's; `keys` are put on top.
    [[nodiscard]] Json config(int node, const Json &keys = Json::object()) const;
    Pod add_pod(int node, const Json &keys = Json::object()) { return add_chain(node, {config(node, keys)}); }
    Pod add_chain(int node, const std::vector<Json> &plugins, const Json &arguments = Json::object());
    // A DEL that must succeed; those of the others come with the end of the cluster.
    void del_pod(const Pod &pod);

    // Each node's routes to the pods of the others.
    void route_by_hosts() const; // by the other node's address on up0
    // Through a VXLAN device on up0, as flannel does it; `id` may say more of the device.
    void route_over_vxlan(const std::string &device = "vx0", const std::string &id = "42 dstport 4789") const;
    // Whether a node has a route to all pods of another, by this protocol (`ip route`), with so many ways.
    [[nodiscard]] bool has_next_hops(const std::string &protocol, int node, int other, std::size_t next_hops) const;
    // Waits until every node has so many ways to each other one.
    [[nodiscard]] bool settle(const std::string &protocol, std::size_t next_hops) const;
    // Pulls or plugs the cable of an uplink; neither end sees its link go.
    void cable(int node, int network, bool plugged) const;

    [[nodiscard]] std::uint64_t count(const Pod &pod, reason why) const {
        return node(pod.node).counted(pod.ifindex, why).packets;
    }
    [[nodiscard]] std::uint64_t count(int number, const std::string &ifname, reason why) const {
        return node(number).counted(ifname, why).packets;
    }
    [[nodiscard]] std::vector<std::pair<path_key, flow_path>> paths(int node) const;
    void erase_paths() const; // on all nodes that have any

  private:
    std::array<std::unique_ptr<Node>, kNodes> nodes_;
    std::shared_ptr<Container> switch_;
    std::shared_ptr<Container> outside_;
    std::vector<Pod> pods_;
};

// A file of docs/examples, which is node 1's, as another node has it.
std::string example_of(int node, const std::string &file);

// BIRD on every node, with the documented example as node 1 has it, and the addresses of the others put in.
class Birds {
  public:
    explicit Birds(const Cluster &cluster);
    Birds(const Birds &) = delete;
    Birds &operator=(const Birds &) = delete;

    void start(int node, bool recover = false);
    // Asks for a graceful restart, waits for the end of the old one and starts a new one.
    void restart(int node);
    // What `birdc` says.
    [[nodiscard]] std::string ask(int node, const std::string &command) const;
    [[nodiscard]] bool has_next_hops(int node, int other, std::size_t next_hops) const {
        return cluster_.has_next_hops("bird", node, other, next_hops);
    }
    [[nodiscard]] bool settle(std::size_t next_hops) const { return cluster_.settle("bird", next_hops); }

  private:
    const Cluster &cluster_;
    std::array<std::optional<Daemon>, Cluster::kNodes> daemons_;
};

} // namespace podlane::test
