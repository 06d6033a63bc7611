// SPDX-License-Identifier: MIT
#include "plugin/conntrack.hpp"

#include "loader/net/sysctl.hpp"
#include "loader/object.hpp"
#include "loader/tracking.hpp"
#include "plugin/log.hpp"

#include <string>

namespace podlane {
namespace {

// A kernel whose programs cannot query conntrack need not track for them.
Result<bool> programs_query_conntrack(const std::string &root) {
    LoadSettings settings;
    TRY(read_constants(TRY(open_program(root, PODLANE_PROGRAM_FROM_POD)).get(), settings));
    return settings.conntrack;
}

Result<void> start_if_needed(const cni::Config &config) {
    if (TRY(is_tracking(config.name)) || !TRY(programs_query_conntrack(config.bpffs)))
        return {};
    return start_tracking(config.name);
}

} // namespace

Result<void> let_conntrack_follow(const cni::Config &config) {
    if (config.fast_path == cni::FastPath::off || !config.conntrack_liberal)
        return {};
    for (const char *name : {"nf_conntrack_tcp_be_liberal", "nf_conntrack_tcp_ignore_invalid_rst"}) {
        const net::SysctlPath path = {"net", "netfilter", name};
        if (TRY(net::read_sysctl(path)).value_or("1") != "0")
            continue;
        TRY(net::write_sysctl_if_different(path, "1"));
        log(cni::Log::Level::warning,
            std::string(name) + " is now 1: conntrack does not see the packets between a connection's first and last "
                                "ones, which take the fast path (\"conntrackLiberal\": false leaves it, and TCP on the "
                                "slow path)");
    }
    return {};
}

void track_connections(const cni::Config &config) {
    if (config.fast_path == cni::FastPath::off || config.first_packet_direct)
        return;
    if (const auto started = start_if_needed(config); !started)
        log(cni::Log::Level::warning, "connection tracking cannot be turned on: " + started.error().message +
                                          "; unless another rule of the node needs it, the network's connections take "
                                          "the slow path (\"firstPacket\": \"direct\" does without)");
}

} // namespace podlane
