// SPDX-License-Identifier: MIT
// doctor: what the fast path and limits need of the node.
#include "loader/net/ipsec.hpp"
#include "loader/net/sysctl.hpp"
#include "loader/object.hpp"
#include "loader/probe.hpp"
#include "loader/pace.hpp"
#include "loader/settings.hpp"
#include "loader/tracking.hpp"
#include "tools/podlanectl/doctor/doctor.hpp"
#include "tools/podlanectl/views/fast_path.hpp"

#include <algorithm>
#include <array>

namespace podlane::ctl::doctor {
namespace {

Result<void> look_at_lookup(const NodeView &node, Findings &findings) {
    if (!node.loaded || TRY(programs_query_conntrack(node.world.bpffs)))
        return {};
    if (TRY(kernel_has_ct_lookup()))
        report(findings, "the programs were loaded before the kernel had bpf_skb_ct_lookup", {}, "podlanectl upgrade");
    else
        report(findings, "this kernel has no bpf_skb_ct_lookup, or no type information of the module nf_conntrack");
    return {};
}

Result<void> look_at_replies(const NodeView &node, Findings &findings) {
    if (!node.loaded || TRY(programs_distinguish_replies(node.world.bpffs)))
        return {};
    if (TRY(kernel_is_readable()))
        report(findings, "the programs were loaded while the kernel refused bpf_probe_read_kernel", {},
               "podlanectl upgrade");
    else
        report(findings, "this kernel is locked down in mode confidentiality");
    return {};
}

Result<void> look_at_tracking(const NodeView &node, Findings &findings) {
    if (!node.loaded || !TRY(programs_query_conntrack(node.world.bpffs)))
        return {};
    for (const std::string &network : TRY(networks_without_tracking(node.endpoints)))
        report(findings,
               "the rule in table inet podlane-" + network + " that has the kernel track connections is missing",
               [network] { return start_tracking(network); });
    return {};
}

Result<void> look_at_ipsec(const NodeView &, Findings &findings) {
    if (const std::uint32_t policies = TRY(net::count_ipsec_policies()); policies != 0)
        report(findings,
               "the node has " + std::to_string(policies) + " IPsec " + (policies == 1 ? "policy" : "policies"));
    return {};
}

// What Podlane set, and has another value by now. A damaged file is a finding of its own (record_checks.cpp).
Result<void> look_at_settings(const NodeView &node, Findings &findings) {
    auto listed = TRY(NodeSettings::open(node.state_directory)).list();
    if (!listed && listed.error().code == ErrorCode::decode_failure)
        return {};
    for (const ChangedSetting &one : TRY(std::move(listed))) {
        const auto now = TRY(net::read_sysctl(one.path()));
        std::string name = one.name;
        std::ranges::replace(name, '/', '.');
        if (one.path()[1] == "netfilter" && now && *now != one.set)
            report(findings, name + " is " + *now + ", Podlane had set it to " + one.set, [one]() -> Result<void> {
                TRY(net::write_sysctl_if_different(one.path(), one.set));
                return {};
            });
    }
    return {};
}

Result<void> look_at_pacing(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs;
    if (auto fault = TRY(pacing_fault(root)))
        report(findings, *std::move(fault), [root] { return restore_pacing(root); });
    return {};
}

Result<void> look_at_expedited_rcu(const NodeView &node, Findings &findings) {
    if (node.world.cleaned_rcu)
        report(findings, "/sys/kernel/rcu_expedited was on");
    return {};
}

constexpr std::array<Check, 7> kFastPathChecks = {{
    {"conntrack-lookup", Severity::notice,
     "the programs cannot query conntrack: connections take the slow path, except those of networks with an "
     "\"uplink\" of their own",
     "boot Linux 6.1 or newer, with type information (BTF) of its modules", &look_at_lookup},
    {"isolation-refused", Severity::notice,
     "the programs cannot distinguish replies: ADD refuses \"isolation\", and pods that are isolated "
     "already "
     "get no answers from others",
     "boot with lockdown=integrity, if pods are to be isolated", &look_at_replies},
    {"ipsec", Severity::notice,
     "only the host stack applies them, so all connections take the slow path, except those of a network with an "
     "\"uplink\" of its own by which no route of the node leads: these bypass the policies",
     "none if they are intended; if they are to hold on such an uplink, give the node an address or a route there",
     &look_at_ipsec},
    {"conntrack-off", Severity::wrong,
     "the rules were flushed: unless another rule needs it, the kernel tracks no connections, and they take the slow "
     "path",
     "podlanectl doctor --fix", &look_at_tracking},
    {"conntrack-settings", Severity::wrong,
     "an administrator or agent changed it back: conntrack finds the end of connections invalid that took the fast "
     "path, "
     "and new TCP connections take the slow path",
     "podlanectl doctor --fix; or set \"conntrackLiberal\" to false, for TCP on the slow path", &look_at_settings},
    {"pacing", Severity::wrong,
     "attaching it to the root of cgroup v2 failed when the programs were loaded, or a pin was removed: without it "
     "limits of TCP senders hold by dropping packets",
     "podlanectl doctor --fix, or the next ADD with a limit", &look_at_pacing},
    {"expedited-rcu", Severity::notice,
     "a call of Podlane was killed while it had the kernel expedite grace periods, which costs interrupts on all CPUs",
     "none: this call has switched it off", &look_at_expedited_rcu},
}};

} // namespace

std::span<const Check> fast_path_checks() { return kFastPathChecks; }

} // namespace podlane::ctl::doctor
