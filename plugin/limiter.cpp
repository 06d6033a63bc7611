// SPDX-License-Identifier: MIT
#include "plugin/limiter.hpp"

#include "loader/edt.hpp"
#include "loader/limit_group.hpp"
#include "loader/limit.hpp"
#include "loader/pace.hpp"
#include "loader/shaper.hpp"
#include "maps/abi/interface.h"
#include "plugin/log.hpp"
#include "plugin/plan.hpp"

namespace podlane {
namespace {

Error cannot(const std::string &what) {
    return {ErrorCode::plugin_not_available, "kernel: " + what, R"(set "limiter" to "auto" or "bucket")"};
}

Result<std::string> start_edt(const cni::Config &config, const Plan &plan, Rollback &rollback) {
    if (plan.qdisc.empty())
        return std::string();
    // A pod of a group may borrow: what its rate is at a time is the programs' matter.
    const auto &group = plan.network.limit_group;
    const bandwidth own{config.bandwidth->ingress_rate, config.bandwidth->ingress_burst, 0, 0};
    bandwidth most = own;
    if (group) // podlanectl may have changed its rate
        most = with_borrowed(own, TRY(TRY(open_bandwidths(config.bpffs, Access::read_only)).find(group->number))
                                      .value_or(group->entry.configured));
    // Before: it may be there although the call that adds it fails.
    rollback.add("putting a qdisc on the host-side veth", [ifindex = plan.ifindex] { return remove_edt(ifindex); });
    std::string put = TRY(put_edt(plan.ifindex, most.ingress_rate_bits_per_s, most.ingress_burst_bits));
    if (put.empty() && config.limiter == cni::Limiter::edt)
        return cannot("it has no qdisc fq or htb, or another qdisc is on the host-side veth");
    return put;
}

Result<bool> start_shaper(const cni::Config &config, net::Netlink &pod, const Plan &plan) {
    return put_shaper(pod, plan.pod_ifindex, {0, 0, config.bandwidth->egress_rate, config.bandwidth->egress_burst});
}

} // namespace

Result<void> start_limiter(const cni::Config &config, net::Netlink &pod, Plan &plan, Rollback &rollback) {
    if (!config.bandwidth)
        return {};
    const bool pacing = TRY(is_pacing(config.bpffs));
    if (config.limiter == cni::Limiter::pace && !pacing)
        return cannot("TCP senders cannot be paced (sock_ops on cgroup v2)");
    std::uint32_t flags = limiter_flags_of(config.limiter) | unpaced_flags(pacing);
    plan.qdisc = TRY(start_edt(config, plan, rollback));
    if (!plan.qdisc.empty())
        flags |= INTERFACE_LIMIT_EDT;
    plan.flags |= flags;
    if (!plan.pod_qdisc.empty() && !TRY(start_shaper(config, pod, plan))) // it goes with the interface
        plan.pod_qdisc.clear();
    std::string said = "bandwidth is held";
    if (config.bandwidth->ingress_rate != 0)
        said += " to the pod by " + limiter_words(flags, LIMIT_INGRESS, pacing);
    if (config.bandwidth->egress_rate != 0)
        said += std::string(config.bandwidth->ingress_rate != 0 ? "," : "") + " from the pod by " +
                limiter_words(flags, LIMIT_EGRESS, pacing, !plan.pod_qdisc.empty());
    log(cni::Log::Level::info, said);
    return {};
}

} // namespace podlane
