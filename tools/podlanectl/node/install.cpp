// SPDX-License-Identifier: MIT
// install: copies the plugin and writes a configuration list for the runtime.
#include "maps/ip.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/installed.hpp"
#include "tools/podlanectl/node/nouns.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace podlane::ctl {
namespace {

using output::Array;
using output::Object;
using output::Value;

std::vector<std::string> split(const std::string &text) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        if (end > at)
            parts.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

Result<std::vector<std::string>> prefixes(const Call &call, Opt option, std::string_view name) {
    std::vector<std::string> all = split(call.value(option).value_or(""));
    for (const std::string &one : all)
        if (const auto prefix = parse_prefix(one); !prefix || one.find('/') == std::string::npos)
            return usage_error("--" + std::string(name) + " \"" + one + "\" is not a prefix",
                               "write 198.18.1.0/24, separated by commas");
    return all;
}

// host-local takes an address of each set of ranges: one a family.
Result<Object> ipam_of(const Call &call) {
    Array ranges;
    for (const std::string &subnet : TRY(prefixes(call, Opt::subnets, "subnets")))
        ranges.emplace_back(Array{Object{{"subnet", subnet}}});
    if (ranges.empty())
        return usage_error("install needs --subnets",
                           "the addresses of this node's pods, as in --subnets 198.18.1.0/24,2001:db8:1::/64");
    return Object{{"type", "host-local"}, {"ranges", ranges}};
}

Result<void> add_keys(const Call &call, Object &plugin) {
    constexpr std::array<std::string_view, 3> kFastPaths = {"on", "local", "off"};
    if (const auto &mtu = call.value(Opt::mtu)) {
        std::uint64_t number = 0;
        const auto [end, error] = std::from_chars(mtu->data(), mtu->data() + mtu->size(), number);
        if (error != std::errc{} || end != mtu->data() + mtu->size())
            return usage_error("--mtu \"" + *mtu + "\" is not a number");
        plugin.emplace_back("mtu", number);
    }
    if (const auto &fast = call.value(Opt::fast_path)) {
        if (std::ranges::find(kFastPaths, *fast) == kFastPaths.end())
            return usage_error("--fast-path \"" + *fast + "\" is not on, local or off");
        plugin.emplace_back("fastPath", *fast);
    }
    if (call.has(Opt::uplinks))
        plugin.emplace_back("uplinks", Value(split(*call.value(Opt::uplinks))));
    const auto cidrs = TRY(prefixes(call, Opt::cluster_cidrs, "cluster-cidrs"));
    if (!cidrs.empty())
        plugin.emplace_back("clusterCIDRs", Value(cidrs));
    if (call.has(Opt::bpffs))
        plugin.emplace_back("bpffs", *call.value(Opt::bpffs));
    return {};
}

bool has_portmap(const std::string &bin_dir) { return access((bin_dir + "/portmap").c_str(), X_OK) == 0; }

// A network that works in a cluster: pods reach the outside, and get the limits and ports that they ask for.
Result<std::string> conflist_of(const Call &call, bool with_portmap) {
    Object plugin = {{"type", "podlane"},
                     {"capabilities", Object{{"bandwidth", true}, {"io.kubernetes.cri.pod-annotations", true}}},
                     {"ipam", TRY(ipam_of(call))}};
    if (!call.has(Opt::no_masquerade))
        plugin.emplace_back("ipMasq", true);
    TRY(add_keys(call, plugin));
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
        if (access(place.c_str(), X_OK) == 0)
            return place;
    return Error{ErrorCode::missing, "the plugin podlane is not beside podlanectl", "name the file with --plugin"};
}

Result<void> must_be_directory(const std::string &directory) {
    if (access(directory.c_str(), W_OK) == 0)
        return {};
    Error error = system_error(ErrorCode::missing, "writing to " + directory, errno);
    error.hint =
        errno == ENOENT ? "create it, or name the runtime's own with --bin-dir and --conf-dir" : "run it as root";
    return error;
}

std::string line(Written how, const std::string &path) {
    return std::string(how == Written::written ? "wrote " : "unchanged: ") + path + "\n";
}

// Everything is checked before anything is written; the configuration comes last, because the runtime waits for it.
Result<int> install(const Call &call, World &world) {
    const std::string bin_dir = call.value(Opt::bin_dir).value_or(std::string(kBinDir));
    const std::string conf_dir = call.value(Opt::conf_dir).value_or(std::string(kConfDir));
    const bool with_portmap = has_portmap(bin_dir);
    const std::string conflist = TRY(conflist_of(call, with_portmap));
    const std::string plugin = TRY(read_file(TRY(find_plugin(call))));
    TRY(must_be_directory(bin_dir));
    TRY(must_be_directory(conf_dir));
    TRY(check_file(bin_dir, "podlane", plugin));
    TRY(check_file(conf_dir, kConflist, conflist));
    const Written binary = TRY(install_file(bin_dir, "podlane", plugin, 0755));
    const Written config = TRY(install_file(conf_dir, kConflist, conflist, 0644));
    if (!with_portmap)
        std::fprintf(world.err, "there is no plugin portmap in %s: pods have no hostPort; install it and repeat this\n",
                     bin_dir.c_str());
    world.print(line(binary, bin_dir + "/podlane") + line(config, conf_dir + "/" + std::string(kConflist)));
    return 0;
}

constexpr std::array<Command, 1> kCommands = {{
    {"",
     "Copy the plugin, and write 10-podlane.conflist from the options.",
     Opts{Opt::bin_dir, Opt::conf_dir, Opt::subnets, Opt::cluster_cidrs, Opt::uplinks, Opt::fast_path,
          Opt::no_masquerade, Opt::mtu, Opt::network, Opt::plugin, Opt::bpffs, Opt::help},
     {},
     "Each file is replaced atomically. If a file was not written by podlanectl, or was changed since, nothing is\n"
     "written. --network names the network (default: pods).",
     install,
     true,
     {},
     true},
}};

} // namespace

const Noun kInstallNoun = {"install", "install the plugin and a configuration for the runtime", kCommands};

} // namespace podlane::ctl
