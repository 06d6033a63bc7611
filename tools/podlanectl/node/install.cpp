// SPDX-License-Identifier: MIT
// install: copies the plugin and writes a configuration list for the runtime.
#include "loader/net/legacy_tables.hpp"
#include "loader/net/link.hpp"
#include "maps/errors.hpp"
#include "maps/file.hpp"
#include "maps/ip.hpp"
#include "maps/printable.hpp"
#include "maps/text.hpp"
#include "plugin/cni/list.hpp"
#include "plugin/cni/pod_ranges.hpp"
#include "plugin/cni/request.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/install_options.hpp"
#include "tools/podlanectl/node/installed.hpp"
#include "tools/podlanectl/node/node_object.hpp"
#include "tools/podlanectl/node/nouns.hpp"
#include "tools/podlanectl/views/program_output.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

namespace podlane::ctl {
namespace {

using output::Array;
using output::Object;
using output::Value;

constexpr const char *kFlannelSubnet = "/run/flannel/subnet.env";

// The facts about the node, each with its source.
struct Ranges {
    std::vector<std::string> subnets{};
    std::vector<std::string> clusters{};
    std::optional<std::uint64_t> mtu{};
    std::vector<std::string> story{}; // lines of the plan
};

// flannel's daemon keeps the range, and what all pods have, in a file for its plugin.
Result<void> add_flannel(const std::string &path, Ranges &ranges) {
    const auto text = read_regular_file(path);
    if (!text)
        return text.error().code == ErrorCode::missing ? Result<void>{} : text.error();
    const FlannelSubnet flannel = TRY(read_flannel_subnet(*text, path));
    ranges.story.push_back("flannel: " + path + " has range " + join(flannel.subnets, ",") + " and MTU " +
                           (flannel.mtu ? std::to_string(*flannel.mtu) : "none"));
    if (flannel.masquerades)
        ranges.story.emplace_back("flannel masquerades: with --no-masquerade it is the only one");
    if (ranges.subnets.empty())
        ranges.subnets = flannel.subnets;
    if (ranges.clusters.empty())
        ranges.clusters = flannel.networks;
    if (!ranges.mtu)
        ranges.mtu = flannel.mtu;
    return {};
}

// Without them, packets to pods of other nodes are masqueraded as those to the outside are.
void warn_about_clusters(const Call &call, Ranges &ranges) {
    const auto is_ipv4_text = [](const std::string &prefix) { return prefix.find(':') == std::string::npos; };
    for (const bool ipv4 : {true, false}) {
        const auto is_of = [&](const std::string &prefix) { return is_ipv4_text(prefix) == ipv4; };
        if (!call.has(Opt::no_masquerade) && std::ranges::any_of(ranges.subnets, is_of) &&
            std::ranges::none_of(ranges.clusters, is_of))
            ranges.story.push_back(std::string("warning: --cluster-cidrs has no ") + (ipv4 ? "IPv4" : "IPv6") +
                                   " range: pods of other nodes see this node's address instead of the pod's; name "
                                   "the pod range of the whole cluster");
    }
}

// Several of a family are fine. Packets to them are not masqueraded: with 0.0.0.0/0 none would be.
Result<std::vector<std::string>> clusters_of(const Call &call) {
    std::vector<std::string> clusters = TRY(prefixes_in(call, Opt::cluster_cidrs, "cluster-cidrs"));
    for (const std::string &one : clusters)
        if (const auto checked = cni::checked_ranges({{"a range of --cluster-cidrs", one}}, "install"); !checked)
            return usage_error(checked.error().message,
                               "name the pods' ranges alone (kubeadm init --pod-network-cidr): "
                               "packets to everything in --cluster-cidrs keep the pod's "
                               "address");
    return clusters;
}

Result<Ranges> ranges_of(const Call &call) {
    Ranges ranges;
    ranges.subnets = TRY(subnets_in(call));
    ranges.clusters = TRY(clusters_of(call));
    if (const auto &file = call.value(Opt::from_node)) {
        if (!ranges.subnets.empty())
            return usage_error("--subnets and --from-node both name the pods' addresses", "give one of them");
        ranges.subnets = TRY(pod_ranges_of_node(TRY(read_regular_file(*file)), *file));
        ranges.story.push_back("node object: " + *file + " has range " + join(ranges.subnets, ","));
    }
    TRY(add_flannel(kFlannelSubnet, ranges));
    for (const std::string &one : ranges.subnets) // host-local would refuse it, at each ADD
        if (const auto checked = cni::checked_ranges({{"the range of the pods", one}}, "install"); !checked)
            return usage_error(checked.error().message);
    if (ranges.subnets.empty())
        return usage_error("install needs --subnets or --from-node",
                           "the addresses of this node's pods, as in --subnets 198.18.1.0/24,2001:db8:1::/64");
    warn_about_clusters(call, ranges);
    return ranges;
}

// host-local takes an address of each set of ranges: one a family.
Object ipam_of(const Ranges &known) {
    Array ranges;
    for (const std::string &subnet : known.subnets)
        ranges.emplace_back(Array{Object{{"subnet", subnet}}});
    return Object{{"type", "host-local"}, {"ranges", ranges}};
}

Result<void> add_keys(const Call &call, Object &plugin, const Ranges &ranges) {
    constexpr std::array<std::string_view, 3> kFastPaths = {"on", "local", "off"};
    if (const auto &mtu = call.value(Opt::mtu)) {
        const auto number = parse_number<std::uint64_t>(*mtu);
        if (!number)
            return usage_error("--mtu \"" + *mtu + "\" is not a number");
        plugin.emplace_back("mtu", *number);
    } else if (ranges.mtu) {
        plugin.emplace_back("mtu", *ranges.mtu);
    }
    if (const auto &fast = call.value(Opt::fast_path)) {
        if (std::ranges::find(kFastPaths, *fast) == kFastPaths.end())
            return usage_error("--fast-path \"" + *fast + "\" is not on, local or off");
        plugin.emplace_back("fastPath", *fast);
    }
    if (call.has(Opt::uplinks))
        plugin.emplace_back("uplinks", Value(split<std::string>(*call.value(Opt::uplinks), ",")));
    if (!ranges.clusters.empty())
        plugin.emplace_back("clusterCIDRs", Value(ranges.clusters));
    Object log;
    for (const auto &[option, key] : {std::pair{Opt::log_file, "file"}, std::pair{Opt::log_level, "level"}})
        if (call.has(option))
            log.emplace_back(key, *call.value(option));
    if (!log.empty())
        plugin.emplace_back("log", log);
    if (call.has(Opt::bpffs))
        plugin.emplace_back("bpffs", *call.value(Opt::bpffs));
    return {};
}

// Other software on the node, and the consequences for Podlane.
struct Known {
    const char *link; // by which it is recognised
    const char *line;
};
constexpr auto kKnown = std::to_array<Known>({
    {.link = "kube-ipvs0", .line = "kube-proxy: IPVS mode, which is not tested: use its nftables or iptables mode"},
    {.link = "cilium_host",
     .line = "policy engine: Cilium (cilium_host) attaches programs of its own; drain the node before you change it"},
    {.link = "antrea-gw0",
     .line =
         "policy engine: Antrea (antrea-gw0) forwards by Open vSwitch: its policies do not hold for Podlane's pods"},
    {.link = "kube-bridge", .line = "kube-router (kube-bridge): its routes and policies hold for Podlane's pods"},
    {.link = "vxlan.calico",
     .line = "policy engine: Calico (vxlan.calico): its policies are bound to interfaces of its own pods"},
    {.link = "flannel.1", .line = "flannel: VXLAN device flannel.1: add --uplinks flannel.1"},
});

// By the rules it writes; empty if there are none, or no program that prints them.
Result<std::string> kube_proxy_mode() {
    Errors unread;
    const auto printed = [&](const std::string &program, const std::vector<std::string> &arguments) {
        auto text = output_of(program, arguments);
        if (!text && text.error().code != ErrorCode::missing)
            unread.add(text.error());
        return text ? *std::move(text) : std::string();
    };
    if (printed("nft", {"list", "tables"}).find(" kube-proxy") != std::string::npos)
        return std::string("nftables");
    const auto has_services = [&](const char *program) {
        return printed(program, {"-t", "nat"}).find(":KUBE-SERVICES ") != std::string::npos;
    };
    // The older iptables registers the table that it is to print, and ADD would take it for one in use. Which one has
    // the plain name, only its version says.
    const bool has_older = TRY(net::has_legacy_table(true, "nat"));
    const bool is_newer = printed("iptables-save", {"--version"}).find("nf_tables") != std::string::npos;
    if (has_services("iptables-nft-save") || ((has_older || is_newer) && has_services("iptables-save")) ||
        (has_older && has_services("iptables-legacy-save")))
        return std::string("iptables");
    TRY(std::move(unread).result());
    return std::string();
}

// The installed files do not depend on the mode of kube-proxy.
Result<std::vector<std::string>> networks_of_node() {
    std::vector<std::string> story;
    if (const auto mode = kube_proxy_mode(); !mode)
        story.push_back("kube-proxy: its mode is not known: " + mode.error().message);
    else if (!mode->empty())
        story.push_back("kube-proxy: " + *mode + " mode: Services need nothing else");
    net::Netlink host = TRY(net::Netlink::open());
    for (const Known &known : kKnown)
        if (TRY(net::find_link(host, std::string(known.link))))
            story.emplace_back(known.line);
    return story;
}

// A network that works in a cluster: pods reach the outside, and get the limits and ports that they request.
Result<std::string> main_list(const Call &call, bool with_portmap, const Ranges &ranges) {
    Object plugin = {{"type", "podlane"},
                     {"capabilities", Object{{"bandwidth", true}, {"io.kubernetes.cri.pod-annotations", true}}},
                     {"ipam", ipam_of(ranges)}};
    if (!call.has(Opt::no_masquerade))
        plugin.emplace_back("ipMasq", true);
    TRY(add_keys(call, plugin, ranges));
    Array plugins{plugin};
    if (with_portmap)
        plugins.emplace_back(Object{{"type", "portmap"}, {"capabilities", Object{{"portMappings", true}}}});
    return output::json_text(
        Object{{"cniVersion", "1.0.0"}, {"name", call.value(Opt::network).value_or("pods")}, {"plugins", plugins}});
}

// Beside podlanectl, in the build directory, or where the package has it.
Result<std::string> find_plugin(const Call &call) {
    if (call.has(Opt::plugin))
        return *call.value(Opt::plugin);
    std::array<char, 4096> self{};
    if (readlink("/proc/self/exe", self.data(), self.size() - 1) <= 0)
        return system_error(ErrorCode::io_failure, "reading /proc/self/exe", errno);
    const std::string here = std::string(self.data()).substr(0, std::string(self.data()).rfind('/'));
    for (const std::string &place : {here + "/podlane", here + "/../plugin/podlane", here + "/../lib/cni/podlane"})
        if (TRY(is_program(place)))
            return place;
    return Error{ErrorCode::missing, "the plugin podlane is not beside podlanectl", "name the file with --plugin"};
}

Result<void> must_be_directory(const std::string &directory) {
    if (access((directory + "/.").c_str(), W_OK) == 0) // "/.": a file is not one
        return {};
    Error error = system_error(ErrorCode::missing, "writing to " + directory, errno);
    error.hint = error.system_errno == ENOENT    ? "create it, or name the runtime's own with --bin-dir and --conf-dir"
                 : error.system_errno == ENOTDIR ? "name the runtime's own directories with --bin-dir and --conf-dir"
                                                 : "run it as root";
    return error;
}

std::string line(Written how, const std::string &path) {
    return std::string(how == Written::written ? "wrote " : "unchanged: ") + path + "\n";
}

// Podlane's file is the first in the runtime's order: what was there stays, and is the first again after uninstall.
Result<std::string_view> conflist_name(const std::vector<ForeignNetwork> &others) {
    for (const std::string_view name : kConflists)
        if (others.empty() || name < others.front().file)
            return name;
    return Error{ErrorCode::already_exists,
                 others.front().file + " is in front of " + std::string(kConflists.back()) + " in the runtime's order",
                 "rename it, or move it away"};
}

// The files to be written, each with its reason.
struct Planned {
    std::string conflist{};
    std::string_view name{};
    std::vector<std::string> story{};
};

// The network's own plugins stay as they are; Podlane attaches its programs to what the first one makes.
Result<std::string> chained_list(const Call &call, const std::string &conf_dir,
                                 const std::vector<ForeignNetwork> &others) {
    for (const Opt option : {Opt::subnets, Opt::from_node, Opt::no_masquerade, Opt::mtu, Opt::network})
        if (call.has(option))
            return usage_error("--mode chained takes addresses, name and MTU from the network that is there",
                               "leave out --subnets, --from-node, --no-masquerade, --mtu and --network");
    if (others.empty())
        return Error{ErrorCode::missing, "there is no network in " + conf_dir + " to chain Podlane into",
                     "install that one first, or use --mode main"};
    const std::string path = conf_dir + "/" + others.front().file;
    Object plugin = {{"type", "podlane"},
                     {"capabilities", Object{{"bandwidth", true}, {"io.kubernetes.cri.pod-annotations", true}}}};
    TRY(add_keys(call, plugin, {.clusters = TRY(clusters_of(call))}));
    return with_podlane_behind(TRY(read_network_file(path)), path, output::json_text(plugin));
}

// As ADD reads it: a network that makes each ADD fail is not written.
Result<void> check_list(const std::string &conflist) {
    if (const auto part = TRY(cni::status_input(conflist)))
        TRY(cni::parse_request({{"CNI_COMMAND", "STATUS"}, {"CNI_PATH", "/opt/cni/bin"}}, *part));
    return {};
}

Result<Planned> plan(const Call &call, const std::string &conf_dir, bool with_portmap) {
    const std::string mode = call.value(Opt::mode).value_or("main");
    if (mode != "main" && mode != "chained")
        return usage_error("--mode \"" + mode + "\" is not main or chained");
    TRY(check_keys_option(call));
    std::vector<ForeignNetwork> others = TRY(networks_in(conf_dir));
    std::erase_if(
        others, [](const ForeignNetwork &one) { return std::ranges::find(kConflists, one.file) != kConflists.end(); });
    std::vector<ForeignNetwork> multus;
    std::ranges::partition_copy(std::exchange(others, {}), std::back_inserter(multus), std::back_inserter(others),
                                &ForeignNetwork::is_multus);
    Planned planned{.name = TRY(conflist_name(others))};
    planned.story = TRY(networks_of_node());
    for (const ForeignNetwork &one : multus)
        planned.story.push_back("multus: " + conf_dir + "/" + one.file +
                                (one.file < planned.name
                                     ? " stays in front: its configuration names the networks of a pod"
                                     : " is behind " + std::string(planned.name) + ": the runtime does not use it"));
    for (const ForeignNetwork &one : others)
        planned.story.push_back("network of another: " + conf_dir + "/" + one.file + " (" + join(one.types, ",") +
                                "), kept behind " + std::string(planned.name));
    if (mode == "chained") {
        planned.conflist = TRY(chained_list(call, conf_dir, others));
    } else {
        const Ranges ranges = TRY(ranges_of(call));
        std::ranges::copy(ranges.story, std::back_inserter(planned.story));
        planned.conflist = TRY(main_list(call, with_portmap, ranges));
    }
    if (call.has(Opt::keys))
        planned.conflist = TRY(with_keys(planned.conflist, *call.value(Opt::keys)));
    TRY(check_list(planned.conflist));
    return planned;
}

// Everything is checked before anything is written; the configuration comes last, because the runtime waits for it.
Result<void> write_files(const std::string &bin_dir, const std::string &conf_dir, const std::string &plugin,
                         const Planned &planned, World &world) {
    const Written binary = TRY(install_file(bin_dir, "podlane", plugin, 0755));
    const Written config = TRY(install_file(conf_dir, planned.name, planned.conflist, 0644));
    world.print(line(binary, bin_dir + "/podlane") + line(config, conf_dir + "/" + std::string(planned.name)));
    for (const std::string_view other : kConflists) // of an earlier install, when other files were there
        if (other != planned.name && TRY(remove_file(conf_dir, other)) == Removed::removed)
            world.print("removed " + conf_dir + "/" + std::string(other) + "\n");
    return {};
}

Result<int> install(const Call &call, World &world) {
    const std::string bin_dir = call.value(Opt::bin_dir).value_or(kBinDir);
    const std::string conf_dir = call.value(Opt::conf_dir).value_or(kConfDir);
    const bool is_main = call.value(Opt::mode).value_or("main") == "main";
    const bool with_portmap = is_main && TRY(is_program(bin_dir + "/portmap"));
    const Planned planned = TRY(plan(call, conf_dir, with_portmap));
    const std::string plugin = TRY(read_regular_file(TRY(find_plugin(call)), kLargestInstalled));
    TRY(must_be_directory(bin_dir));
    TRY(must_be_directory(conf_dir));
    TRY(check_file(bin_dir, "podlane", plugin));
    TRY(check_file(conf_dir, planned.name, planned.conflist));
    for (const std::string &one : planned.story)
        world.print(printable(one) + "\n");
    if (call.has(Opt::dry_run))
        world.print("would write " + bin_dir + "/podlane\nwould write " + conf_dir + "/" + std::string(planned.name) +
                    ":\n" + planned.conflist);
    else
        TRY(write_files(bin_dir, conf_dir, plugin, planned, world));
    if (is_main && !with_portmap)
        std::fprintf(world.err, "there is no plugin portmap in %s: pods have no hostPort; install it and repeat this\n",
                     bin_dir.c_str());
    return 0;
}

constexpr std::array<Command, 1> kInstallCommands = {{
    {"",
     "Copy the plugin, and write a configuration list from the options.",
     Opts{Opt::bin_dir, Opt::conf_dir, Opt::subnets, Opt::from_node, Opt::mode, Opt::dry_run, Opt::cluster_cidrs,
          Opt::uplinks, Opt::fast_path, Opt::log_file, Opt::log_level, Opt::no_masquerade, Opt::mtu, Opt::network,
          Opt::keys, Opt::plugin, Opt::bpffs, Opt::help},
     {},
     "Each file is replaced atomically. If a file was not written by podlanectl, or was changed since, nothing is\n"
     "written. --network names the network (default: pods). Networks of others stay behind Podlane's file, and are\n"
     "the runtime's again after uninstall.",
     install,
     true,
     {},
     true},
}};

} // namespace

const Noun kInstallNoun = {"install", "install the plugin and a configuration for the runtime", kInstallCommands};

} // namespace podlane::ctl
