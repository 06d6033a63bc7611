// SPDX-License-Identifier: MIT
// Feeds hostile bytes to what is read beside requests: the API server's answers, configurations, files and netfilter
// rules of others on the node, what the kernel lists of its processes and mounts, and to what masks any of it for the
// log.
#include "loader/lock_file.hpp"
#include "maps/ip.hpp"
#include "maps/printable.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/cni/kubernetes.hpp"
#include "plugin/cni/list.hpp"
#include "plugin/cni/masked.hpp"
#include "plugin/cni/pod_ranges.hpp"
#include "plugin/cni/request.hpp"
#include "tools/podlanectl/doctor/forward_policy.hpp"
#include "tools/podlanectl/doctor/forward_rules.hpp"
#include "tools/podlanectl/doctor/nat_rules.hpp"
#include "tools/podlanectl/node/node_object.hpp"
#include "tools/podlanectl/node/runtime_network.hpp"
#include "tools/podlanectl/views/namespaces.hpp"

#include "tests/fuzz/require.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace {

using namespace podlane;

constexpr const char *kConfig = R"({
    "cniVersion": "1.1.0", "name": "pods", "type": "podlane", "ipam": {"type": "host-local", "subnet": "198.18.1.0/24"},
    "identity": ["kubernetes", "annotations"], "kubernetes": {"kubeconfig": "/kubeconfig"},
    "pools": {"blue": {"subnet": "198.18.2.0/24"}},
    "groups": ["namespace", "label:app", "annotation:team"], "isolation": "group",
    "podMay": {"addresses": true, "pools": {"names": ["blue"]}, "mac": true, "bandwidth": true, "mtu": true,
               "fastPath": true, "allowedSources": {"within": ["192.0.2.0/24"]}, "groups": {"names": ["green"]},
               "keepAddress": true}})";

cni::Environment add_of_a_pod() {
    return {{"CNI_COMMAND", "ADD"},          {"CNI_CONTAINERID", "pod-1"},
            {"CNI_NETNS", "/run/netns/pod"}, {"CNI_IFNAME", "eth0"},
            {"CNI_PATH", "/opt/cni/bin"},    {"CNI_ARGS", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"}};
}

void check_ranges(const Result<std::vector<std::string>> &ranges) {
    for (const std::string &range : ranges ? *ranges : std::vector<std::string>{})
        require(parse_prefix(range).has_value());
}

void check_configuration(const Result<std::string> &completed) {
    if (!completed)
        return;
    const auto document = cni::json::parse_object(*completed, "the completed configuration");
    require(!document || cni::families_of_pod_ranges(*document) == 0);
}

void check_line(const std::string &text) { require(text.find('\n') == std::string::npos); }

void check_prefixes(const std::vector<Prefix> &prefixes) {
    for (const Prefix &prefix : prefixes)
        require(prefix == masked(prefix));
}

// A file among the runtime's networks.
void check_network(const std::string &file) {
    constexpr std::size_t kMostRead = 100000;
    if (const auto part = cni::status_input(file); part && *part && (*part)->size() < kMostRead)
        require(cni::json::parse_object(**part, "the part").has_value());
    const ctl::ForeignNetwork network = ctl::foreign_network("10-pods.conflist", file);
    require(is_printable(network.name) && std::ranges::all_of(network.types, is_printable));
    if (const auto own = ctl::podlane_network(network, file, "/nowhere")) {
        check_prefixes(own->ranges);
        check_prefixes(own->clusters);
    }
}

// The kernel's text, in which processes and mounts have chosen names.
void check_proc(const std::string &text) {
    for (const std::string &pid : lock_holders_in(text, "00:2c:17"))
        require(!pid.empty() && pid.find_first_not_of("0123456789") == std::string::npos);
    require(is_printable(command_in(text)));
    for (const auto &[inode, place] : ctl::mounted_namespaces(text))
        require(inode != 0 && place.find_first_of(" \n") == std::string::npos);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char *>(data), size);
    if (const auto config = cni::with_kubernetes(kConfig, input)) {
        require(cni::json::parse_object(*config, "the configuration").has_value());
        if (const auto request = cni::parse_request(add_of_a_pod(), *config); !request)
            require(!request.error().message.empty());
    }
    (void)cni::with_kubernetes_of(kConfig, input);
    check_configuration(cni::with_pod_ranges(input, {"198.18.1.0/24", "2001:db8:1::/64"}));
    check_configuration(cni::with_any_ranges(input));
    (void)cni::find_ipam(input);

    check_ranges(ctl::pod_ranges_of_node(input, "the file"));
    if (const auto kept = cni::parse_kept_ranges(input, "the file")) {
        check_ranges(kept->ranges);
        const auto again = cni::parse_kept_ranges(cni::kept_ranges_text(*kept), "the file");
        require(again && again->question == kept->question && again->ranges == kept->ranges &&
                again->queried_ns == kept->queried_ns);
    }
    if (const auto nodes = ctl::read_cluster_nodes(input, "the file"))
        for (const ctl::ClusterNode &node : *nodes)
            check_line(node.name);
    if (const auto subnet = ctl::read_flannel_subnet(input, "the file"))
        check_ranges(subnet->subnets);
    if (const auto list = ctl::with_podlane_behind(input, "the file", R"({"type": "podlane"})"))
        require(list->find("podlane") != std::string::npos);

    check_network(std::string(input));
    check_proc(std::string(input));

    static const Prefix pods = *parse_prefix("198.18.1.0/24");
    (void)ctl::dropping_chains_of_nft(input);
    (void)ctl::dropping_chains_of_iptables(input, "iptables");
    const ctl::forwarding::Pods forwarded{{"cali0"}, {"eth0"}, {pods}, true, true};
    (void)ctl::forwarding::refusing_chains_of_nft(input, forwarded);
    (void)ctl::forwarding::refusing_chains_of_iptables(input, "iptables", forwarded);
    (void)ctl::cluster_ips_of(input);
    (void)ctl::masquerades_in(input, pods);

    check_line(cni::masked(input));
    (void)cni::masked_text(input);
    (void)cni::masked_pairs(input);
    return 0;
}
