// SPDX-License-Identifier: MIT
#include "plugin/conntrack.hpp"

#include "loader/net/nftables.hpp"
#include "loader/net/packet_rules.hpp"
#include "loader/net/sysctl.hpp"
#include "loader/object.hpp"
#include "loader/tracking.hpp"
#include "plugin/isolation.hpp"
#include "plugin/log.hpp"
#include "plugin/node.hpp"
#include "plugin/plan.hpp"

#include <cerrno>
#include <string>

namespace podlane {
namespace {

std::string sentence_of(const std::string &setting, Change change) {
    if (change == Change::kept)
        return setting +
               " is 0 again: another program changed it after Podlane had, and it stays; TCP connections take "
               "the slow path (podlanectl doctor --fix sets it to 1)";
    return setting + " is now 1: conntrack does not see the packets between a connection's first and last ones, which "
                     "take the fast path (\"conntrackLiberal\": false leaves it, and TCP on the slow path; podlanectl "
                     "uninstall restores it)";
}

// The per-packet effects of the node's rules end for a connection when it takes the fast path.
Result<void> log_packet_rules() {
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    for (const net::PacketRules &one : TRY(net::packet_rules(netfilter)))
        log(cni::Log::Level::warning, net::words_of(one) + ": established connections on the fast path do not meet " +
                                          "these rules (docs/ROUTING.md; \"slowPathMark\" or \"fastPath\" changes it)");
    return {};
}

// A node whose programs cannot query conntrack need not track for them. Rules are read for the network's first pod
// only: there may be many.
Result<void> start_if_needed(const cni::Config &config) {
    const bool is_needed = config.isolation.by != cni::IsolateBy::none || TRY(programs_query_conntrack(config.bpffs));
    if (!is_needed || TRY(is_tracking(config.name)))
        return {};
    TRY(start_tracking(config.name));
    if (const auto logged = log_packet_rules(); !logged)
        log(cni::Log::Level::warning, "the node's rules cannot be read: " + logged.error().message);
    return {};
}

// No nf_tables, or none of its expressions for conntrack, or nobody may use it: other failures may be of the moment,
// and the next ADD's.
bool lacks_tracking(const Error &error) {
    return net::lacks_nf_tables(error) || error.system_errno == ENOENT || error.system_errno == EACCES;
}

} // namespace

Result<void> check_tracking(const std::string &root, const endpoint &record) {
    if (!follows_conntrack(record.flags) || (!is_isolated(record) && !TRY(programs_query_conntrack(root))))
        return {};
    const std::string network(field_text(record.network_name));
    const auto tracking = is_tracking(network);
    if (!tracking)
        return lacks_tracking(tracking.error()) ? Result<void>{} : tracking.error();
    if (*tracking)
        return {};
    return Error{ErrorCode::check_failed,
                 "the rule in table inet podlane-" + network + " that has the kernel track connections is missing",
                 "the network's next ADD or `podlanectl repair` restores it"};
}

Result<void> let_conntrack_follow(const cni::Config &config) {
    if (config.fast_path == cni::FastPath::off || !config.conntrack_liberal)
        return {};
    for (const char *name : {"nf_conntrack_tcp_be_liberal", "nf_conntrack_tcp_ignore_invalid_rst"}) {
        const net::SysctlPath path = {"net", "netfilter", name};
        if (TRY(net::read_sysctl(path)).value_or("1") != "0")
            continue;
        const NodeSettings settings = TRY(NodeSettings::open(config.state_dir));
        const Change change = TRY(settings.change(path, "1"));
        log_replaced(settings, change);
        if (change != Change::none)
            log(cni::Log::Level::warning, sentence_of(name, change));
    }
    return {};
}

Result<void> require_replies(const cni::Config &config) {
    if (config.isolation.by == cni::IsolateBy::none || TRY(programs_distinguish_replies(config.bpffs)))
        return {};
    return Error{ErrorCode::plugin_not_available,
                 "\"isolation\": the programs cannot distinguish replies, because the kernel is locked down in "
                 "mode confidentiality",
                 "boot with lockdown=integrity, then podlanectl upgrade"};
}

Result<void> track_connections(const cni::Config &config) {
    TRY(require_replies(config));
    if (!follows_conntrack(config))
        return {};
    const auto started = start_if_needed(config);
    if (started)
        return {};
    const bool is_isolated = config.isolation.by != cni::IsolateBy::none;
    if (is_isolated || !lacks_tracking(started.error())) {
        Error error = started.error();
        error.message = "connection tracking cannot be turned on: " + error.message;
        if (is_isolated)
            error.hint = "\"isolation\" needs it to distinguish replies from other packets";
        return error;
    }
    log(cni::Log::Level::warning, "connection tracking cannot be turned on: " + started.error().message +
                                      "; unless another rule of the node needs it, the network's connections take "
                                      "the slow path (with \"firstPacket\": \"direct\" those between pods do "
                                      "without)");
    return {};
}

} // namespace podlane
