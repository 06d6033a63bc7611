// SPDX-License-Identifier: MIT
// doctor: kernel, bpffs, cgroup v2 and the settings of the node.
#include "loader/net/forwarding.hpp"
#include "loader/net/sysctl.hpp"
#include "loader/pins.hpp"
#include "loader/probe.hpp"
#include "maps/entries.hpp"
#include "maps/file.hpp"
#include "maps/text.hpp"
#include "tools/podlanectl/doctor/doctor.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace podlane::ctl::doctor {
namespace {

using net::SysctlPath;

Result<std::optional<std::uint64_t>> number(const SysctlPath &path) {
    const auto text = TRY(net::read_sysctl(path));
    return text ? parse_number<std::uint64_t>(*text) : std::nullopt;
}

std::string spelled(const SysctlPath &path) { return join(path, "."); }

// Enables again what ADD had enabled.
Finding must_be_on(const SysctlPath &path) {
    return {spelled(path) + " is 0",
            [path]() -> Result<void> {
                TRY(net::write_sysctl_if_different(path, "1"));
                return {};
            },
            {}};
}

Result<void> look_at_bpffs(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs;
    auto live = check_live_directory(root);
    if (!live && live.error().code != ErrorCode::missing)
        return live;
    if (!live && live.error().system_errno == 0) {
        report(
            findings, live.error().message, [root] { return prepare_root(root); }, live.error().hint);
        return {};
    }
    struct stat facts {};
    if (stat(root.c_str(), &facts) != 0) // nothing was loaded yet
        return errno == ENOENT ? Result<void>{} : system_error(ErrorCode::bpf, "looking at " + root, errno);
    if (facts.st_uid != 0 || (facts.st_mode & 077U) != 0)
        report(
            findings, root + " is accessible to users other than root",
            [root]() -> Result<void> {
                if (chown(root.c_str(), 0, 0) != 0 || chmod(root.c_str(), 0700) != 0)
                    return system_error(ErrorCode::bpf, "closing " + root, errno);
                return {};
            },
            "chown root " + root + "; chmod 0700 " + root);
    return {};
}

Result<void> look_at_features(const NodeView &, Findings &findings) {
    for (const Feature &feature : TRY(missing_features()))
        report(findings, "this kernel lacks " + std::string(feature.name), {},
               "boot a newer kernel: " + std::string(feature.since) + " has it");
    return {};
}

Result<void> look_at_btf(const NodeView &, Findings &findings) {
    const std::string types = "/sys/kernel/btf/vmlinux";
    if (access(types.c_str(), R_OK) == 0)
        return {};
    if (errno != ENOENT && errno != ENOTDIR)
        return system_error(ErrorCode::io_failure, "reading " + types, errno);
    report(findings, types + " is missing");
    return {};
}

Result<void> look_at_cgroup(const NodeView &, Findings &findings) {
    if (TRY(read_file("/proc/self/mountinfo")).find(" - cgroup2 ") == std::string::npos)
        report(findings, "no cgroup v2 hierarchy is mounted");
    return {};
}

Result<void> look_at_jit(const NodeView &, Findings &findings) {
    if (TRY(number({"net", "core", "bpf_jit_enable"})) == 0U)
        report(findings, "net.core.bpf_jit_enable is 0");
    return {};
}

Result<void> look_at_forwarding(const NodeView &node, Findings &findings) {
    const SysctlPath ipv4 = {"net", "ipv4", "ip_forward"};
    const SysctlPath ipv6 = {"net", "ipv6", "conf", "all", "forwarding"};
    if (node.uses(true) && TRY(number(ipv4)) == 0U)
        findings.push_back(must_be_on(ipv4));
    if (node.uses(false) && TRY(number(ipv6)) == 0U)
        findings.push_back(must_be_on(ipv6));
    return {};
}

Result<void> look_at_interface_forwarding(const NodeView &node, Findings &findings) {
    for (const bool ipv4 : {true, false}) {
        const char *family = ipv4 ? "ipv4" : "ipv6";
        if (!node.uses(ipv4) || TRY(number({"net", family, "conf", "all", "forwarding"})) != 1U)
            continue;
        const auto forwards = TRY(net::list_forwarding(*node.host, net::family_of(ipv4)));
        for (const auto &[ifindex, name] : node.interfaces())
            if (const auto own = forwards.find(ifindex); own != forwards.end() && !own->second)
                findings.push_back(must_be_on({"net", family, "conf", name, "forwarding"}));
    }
    return {};
}

// The kernel takes the larger of the two.
Result<bool> is_strict(const std::string &interface) {
    const auto all = TRY(number({"net", "ipv4", "conf", "all", "rp_filter"}));
    const auto own = TRY(number({"net", "ipv4", "conf", interface, "rp_filter"}));
    return std::max(all.value_or(0), own.value_or(0)) == 1;
}

// With one uplink and one interface a pod, packets arrive where replies leave.
Result<void> look_at_rp_filter(const NodeView &node, Findings &findings) {
    constexpr std::uint32_t kFromElsewhere = INTERFACE_PEERS | INTERFACE_EGRESS_ROUTE | INTERFACE_ALLOWED_SOURCES;
    std::vector<std::string> names;
    for (const UplinkReport &one : node.uplinks)
        if (node.uplinks.size() > 1 && !one.name.empty())
            names.push_back(one.name);
    for (const auto &[key, record] : node.endpoints)
        if (const auto there = node.links.find(record.ifindex);
            (record.flags & kFromElsewhere) != 0 && there != node.links.end())
            names.push_back(there->second.name);
    for (const std::string &name : names)
        if (TRY(is_strict(name)))
            report(findings, "rp_filter is strict on " + name, {},
                   "sysctl -w net.ipv4.conf." + name + ".rp_filter=2 (and conf.all, if that is 1)");
    return {};
}

Result<void> look_at_conntrack(const NodeView &, Findings &findings) {
    const auto count = TRY(number({"net", "netfilter", "nf_conntrack_count"}));
    const auto most = TRY(number({"net", "netfilter", "nf_conntrack_max"}));
    if (count && most && *most != 0 && *count * 10 >= *most * 9)
        report(findings, "the host stack's connection tracking is nearly full: " + std::to_string(*count) + " of " +
                             std::to_string(*most));
    return {};
}

constexpr std::array<Check, 9> kHostChecks = {{
    {"bpffs", Severity::wrong,
     "all of Podlane's state is pinned on a BPF file system accessible to root only; without it an ADD fails", "",
     &look_at_bpffs},
    {"kernel", Severity::wrong, "the programs use features the kernel lacks: the verifier rejects them at the next ADD",
     "boot a newer kernel", &look_at_features},
    {"btf", Severity::wrong, "loading relocates the programs by the kernel's type information",
     "boot a kernel with CONFIG_DEBUG_INFO_BTF", &look_at_btf},
    {"cgroup", Severity::notice, "TCP senders of limited pods are paced by a program on the root of cgroup v2",
     "mount -t cgroup2 cgroup2 /sys/fs/cgroup, if bandwidth limits are used", &look_at_cgroup},
    {"jit", Severity::wrong, "programs loaded meanwhile are interpreted: each packet costs several times as much",
     "sysctl -w net.core.bpf_jit_enable=1, then load the programs again", &look_at_jit},
    {"forwarding", Severity::wrong,
     "it was disabled after an ADD had enabled it: packets on the slow path do not leave the node",
     "podlanectl doctor --fix; and find the agent that writes this setting", &look_at_forwarding},
    {"interface-forwarding", Severity::wrong,
     "it was disabled on one interface: the host stack does not forward packets from it",
     "podlanectl doctor --fix; and find the agent that writes this setting", &look_at_interface_forwarding},
    {"rp-filter", Severity::wrong,
     "packets arrive on it whose replies leave elsewhere (several uplinks, interfaces or sources); the host stack "
     "drops "
     "them silently",
     "", &look_at_rp_filter},
    {"conntrack", Severity::wrong,
     "new connections that need NAT or stateful rules (ClusterIPs, masquerading) are about to be dropped",
     "raise net.netfilter.nf_conntrack_max, or find the source of so many connections", &look_at_conntrack},
}};

} // namespace

std::span<const Check> host_checks() { return kHostChecks; }

std::map<std::uint32_t, std::string> NodeView::interfaces() const {
    std::map<std::uint32_t, std::string> all;
    for (const auto &[key, record] : endpoints)
        if (const auto there = links.find(record.ifindex);
            there != links.end() && there->second.name == field_text(record.host_ifname))
            all.emplace(there->first, there->second.name);
    for (const UplinkReport &one : uplinks)
        if (!one.name.empty())
            all.emplace(one.ifindex, one.name);
    return all;
}

bool NodeView::uses(bool ipv4) const {
    return std::ranges::any_of(endpoints, [&](const EndpointEntry &entry) {
        const auto own = addresses_in(entry.second);
        return std::ranges::any_of(own, [&](const ip_addr &addr) { return is_ipv4(addr) == ipv4; });
    });
}

} // namespace podlane::ctl::doctor
