// SPDX-License-Identifier: MIT
#include "tests/harness/cluster.hpp"

#include "tests/harness/throw_errno.hpp"
#include "tests/harness/environment.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace podlane::test {
namespace {

constexpr int kOutside = 1; // its host number on the networks

std::string network4(int network) { return network == 0 ? "192.0.2." : "198.51.100."; }
std::string network6(int network) { return "2001:db8:f" + std::to_string(network) + "::"; }

std::string port_name(const std::string &of, int network) { return "p" + of + "-" + std::to_string(network); }

void exchange(std::string &text, const std::string &a, const std::string &b) {
    const auto replace = [&text](const std::string &from, const std::string &to) {
        for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
            text.replace(at, from.size(), to);
    };
    replace(a, "\x01");
    replace(b, a);
    replace("\x01", b);
}

// Node 1's configuration as another node has it: both change places.
std::string as_node(std::string text, int node) {
    if (node == 1)
        return text;
    for (int network = 0; network < 2; ++network)
        for (const bool ipv4 : {true, false})
            for (const std::string end : {" ", ";", "\n"})
                exchange(text, Cluster::node_addr(1, ipv4, network) + end,
                         Cluster::node_addr(node, ipv4, network) + end);
    for (const bool ipv4 : {true, false})
        exchange(text, Cluster::pods(1, ipv4), Cluster::pods(node, ipv4));
    exchange(text, "bgp 64511\n", "bgp " + std::to_string(64510 + node) + "\n"); // FRR's has one AS a node
    return text;
}

void set(const Container &where, const std::string &command) { (void)where.run(command); }

std::size_t occurrences(const std::string &text, const std::string &of) {
    std::size_t count = 0;
    for (std::size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1))
        ++count;
    return count;
}

} // namespace

std::string with_bits(const std::string &addr) { return addr + (is_ipv4(ip(addr)) ? "/32" : "/128"); }

Daemon::Daemon(const net::Namespace &where, const std::vector<std::string> &argv, const std::string &log) {
    std::vector<std::string> copy = argv;
    std::vector<char *> arguments;
    for (std::string &argument : copy)
        arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0)
        throw_errno("fork");
    if (pid_ > 0)
        return;
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    constexpr int kCannotRun = 127;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent || setns(where.fd(), CLONE_NEWNET) != 0 ||
        dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(kCannotRun);
    execv(arguments.front(), arguments.data());
    _exit(kCannotRun);
}

Daemon::~Daemon() {
    if (pid_ > 0)
        kill(pid_, SIGKILL);
    wait();
}

void Daemon::wait() {
    if (pid_ > 0)
        while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    pid_ = 0;
}

std::string Cluster::node_addr(int node, bool ipv4, int network) {
    return (ipv4 ? network4(network) : network6(network)) + std::to_string(10 + node);
}

std::string Cluster::outside_addr(bool ipv4) { return (ipv4 ? network4(0) : network6(0)) + std::to_string(kOutside); }

std::string Cluster::first_pod(int node, bool ipv4) {
    return ipv4 ? "198.18." + std::to_string(node) + ".0" : "2001:db8:10:" + std::to_string(node) + "::";
}

std::string Cluster::pods(int node, bool ipv4) { return first_pod(node, ipv4) + (ipv4 ? "/24" : "/64"); }

Cluster::Cluster(int networks) {
    for (auto &node : nodes_)
        node = std::make_unique<Node>();
    switch_ = nodes_.front()->container("switch");
    outside_ = nodes_.front()->container("outside");
    for (int network = 0; network < networks; ++network) {
        const std::string bridge = "br" + std::to_string(network);
        set(*switch_, "ip link add " + bridge + " type bridge mcast_snooping 0");
        set(*switch_, "ip link set " + bridge + " up");
    }
    for (int number = 1; number <= kNodes; ++number) {
        const Node &one = node(number);
        for (int network = 0; network < networks; ++network) {
            const std::string up = "up" + std::to_string(network);
            const std::string port = port_name(std::to_string(number), network);
            one.run("ip link add " + up + " type veth peer name " + port + " netns " + switch_->path());
            // Until its link-local address is usable, a node asks for no neighbour of packets that it forwards.
            one.run("sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf." + up + ".accept_dad=0");
            for (const bool ipv4 : {true, false})
                one.run("ip addr add " + node_addr(number, ipv4, network) + (ipv4 ? "/24" : "/64") + " dev " + up +
                        (ipv4 ? "" : " nodad"));
            one.run("ip link set " + up + " up");
            cable(number, network, true);
        }
        one.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.fib_multipath_hash_policy=1 "
                "net.ipv6.fib_multipath_hash_policy=1");
        one.run("ip route add default via " + outside_addr(true));
        one.run("ip -6 route add default via " + outside_addr(false));
    }
    set(*outside_, "ip link set lo up");
    set(*outside_, "ip link add eth0 type veth peer name outside netns " + switch_->path());
    set(*outside_, "ip addr add " + outside_addr(true) + "/24 dev eth0");
    set(*outside_, "ip addr add " + outside_addr(false) + "/64 dev eth0 nodad");
    set(*outside_, "ip link set eth0 up");
    set(*switch_, "ip link set outside master br0 up");
}

Cluster::~Cluster() {
    for (const Pod &pod : pods_)
        if (const Reply reply = pod.chain->del(*pod.container); reply.rc != 0)
            ADD_FAILURE() << "DEL: " << reply;
}

void Cluster::cable(int node, int network, bool plugged) const {
    const std::string port = port_name(std::to_string(node), network);
    set(*switch_, "ip link set " + port + (plugged ? " master br" + std::to_string(network) + " up" : " nomaster"));
}

Json Cluster::config(int number, const Json &keys) const {
    Json all = node(number).config(
        {{"ipam", {{"ranges", {{{{"subnet", pods(number, true)}}}, {{{"subnet", pods(number, false)}}}}}}},
         {"clusterCIDRs", {kPods4, kPods6}}});
    all.merge_patch(keys);
    return all;
}

Pod Cluster::add_chain(int number, const std::vector<Json> &plugins, const Json &arguments) {
    Pod pod =
        attach_pod(node(number), nodes_.at(static_cast<std::size_t>(number - 1))->container(), plugins, arguments);
    pod.node = number;
    pods_.push_back(pod);
    return pod;
}

void Cluster::del_pod(const Pod &pod) {
    detach_pod(pod);
    std::erase_if(pods_, [&pod](const Pod &other) { return other.container == pod.container; });
}

void Cluster::route_by_hosts() const {
    for (int from = 1; from <= kNodes; ++from)
        for (int to = 1; to <= kNodes; ++to)
            for (const bool ipv4 : {true, false})
                if (from != to)
                    node(from).run("ip route add " + pods(to, ipv4) + " via " + node_addr(to, ipv4));
}

void Cluster::route_over_vxlan(const std::string &device, const std::string &id) const {
    const auto mac = [](int number) { return "02:00:00:00:00:0" + std::to_string(number); };
    for (int from = 1; from <= kNodes; ++from) {
        const Node &here = node(from);
        here.run("ip link add " + device + " address " + std::string(mac(from)) + " mtu 1450 type vxlan id " + id +
                 " local " + node_addr(from, true) + " dev up0 nolearning");
        here.run("ip addr add " + first_pod(from, true) + "/32 dev " + device);
        here.run("ip addr add " + first_pod(from, false) + "/128 dev " + device + " nodad");
        here.run("ip link set " + device + " up");
        for (int to = 1; to <= kNodes; ++to) {
            if (from == to)
                continue;
            here.run("bridge fdb append " + std::string(mac(to)) + " dev " + device + " dst " + node_addr(to, true));
            for (const bool ipv4 : {true, false}) {
                here.run("ip neigh add " + first_pod(to, ipv4) + " lladdr " + mac(to) + " dev " + device +
                         " nud permanent");
                here.run("ip route add " + pods(to, ipv4) + " via " + first_pod(to, ipv4) + " dev " + device +
                         " onlink");
            }
        }
    }
}

bool Cluster::has_next_hops(const std::string &protocol, int number, int other, std::size_t next_hops) const {
    for (const std::string family : {"ip -4 ", "ip -6 "}) {
        const std::string to = pods(other, family == "ip -4 ");
        const std::string routes = node(number).run(family + "route show exact " + to + " proto " + protocol);
        if (occurrences(routes, " dev up") != next_hops)
            return false;
    }
    return true;
}

bool Cluster::settle(const std::string &protocol, std::size_t next_hops) const {
    constexpr auto kConvergence = std::chrono::seconds(60);
    return wait_until(
        [&] {
            for (int from = 1; from <= kNodes; ++from)
                for (int to = 1; to <= kNodes; ++to)
                    if (from != to && !has_next_hops(protocol, from, to, next_hops))
                        return false;
            return true;
        },
        kConvergence);
}

std::vector<std::pair<path_key, flow_path>> Cluster::paths(int number) const {
    return require(require(open_paths(node(number).bpffs(), Access::read_only)).entries());
}

void Cluster::erase_paths() const {
    for (const auto &node : nodes_)
        if (const auto all = open_flows(node->bpffs(), Access::read_write))
            for (const auto &[key, path] : require(all->entries()))
                (void)require(all->remove(key));
}

std::string example_of(int node, const std::string &file) {
    return as_node(source_text("docs/examples/" + file), node);
}

Birds::Birds(const Cluster &cluster) : cluster_(cluster) {
    for (int node = 1; node <= Cluster::kNodes; ++node)
        start(node);
}

void Birds::start(int number, bool recover) {
    const Node &node = cluster_.node(number);
    const std::string config = node.dir() + "/bird.conf";
    std::ofstream(config) << example_of(number, "bird.conf");
    std::vector<std::string> argv = {"/usr/sbin/bird", "-f", "-c", config, "-s", node.dir() + "/bird.ctl"};
    if (recover)
        argv.emplace_back("-R");
    daemons_.at(static_cast<std::size_t>(number - 1)).emplace(node.ns(), argv, node.dir() + "/bird.log");
}

void Birds::restart(int number) {
    auto &daemon = daemons_.at(static_cast<std::size_t>(number - 1));
    (void)ask(number, "graceful restart");
    daemon->wait();
    daemon.reset();
    start(number, true);
}

std::string Birds::ask(int number, const std::string &command) const {
    const Node &node = cluster_.node(number);
    std::vector<std::string> argv = words("birdc -r -s " + node.dir() + "/bird.ctl " + command);
    if (command == "graceful restart")
        argv.erase(argv.begin() + 1);
    return run(node.ns(), argv).out;
}

} // namespace podlane::test
