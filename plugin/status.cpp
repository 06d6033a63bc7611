// SPDX-License-Identifier: MIT
#include "loader/object.hpp"
#include "loader/pace.hpp"
#include "loader/tracking.hpp"
#include "loader/upgrade.hpp"
#include "plugin/conntrack.hpp"
#include "plugin/egress_route.hpp"
#include "plugin/ipam.hpp"
#include "plugin/log.hpp"
#include "plugin/node.hpp"
#include "plugin/state.hpp"
#include "plugin/verbs.hpp"

namespace podlane {
namespace {

// A missing part that pods work without: logged, not reported to the runtime.
void log_what_is_missing(const cni::Config &config) {
    const auto warn = [](const std::string &sentence) { log(cni::Log::Level::warning, sentence); };
    if (const auto query = programs_query_conntrack(config.bpffs);
        query && !*query && config.fast_path != cni::FastPath::off)
        warn("the programs do not query conntrack: connections take the slow path (Linux 6.1 or newer has "
             "bpf_skb_ct_lookup, and its type information; podlanectl upgrade loads the programs again)");
    if (follows_conntrack(config))
        if (const auto loaded = load_conntrack(); !loaded)
            warn("connection tracking cannot be turned on: " + loaded.error().message +
                 "; unless another rule of the node needs it, connections take the slow path");
    if (const auto fault = pacing_fault(config.bpffs); fault && *fault)
        warn(**fault + "; the next ADD with a limit tries again");
}

// STATUS knows one code for a plugin that can serve no ADD (CNI spec, section 2).
template <typename T> Result<T> as_unavailable(Result<T> done) {
    if (!done)
        done.error().code = ErrorCode::plugin_not_available;
    return done;
}

Result<void> open_maps(const cni::Config &config) {
    auto tables = open_node(config);
    return tables ? Result<void>{} : std::move(tables).error();
}

} // namespace

// Does what the first ADD would do to the node, and nothing else: what it could not do, STATUS says now.
Result<std::string> status(const cni::Request &request) {
    TRY(prepare_node(request.config));
    TRY(as_unavailable(complete_pins(request.config.bpffs)));
    TRY(as_unavailable(open_maps(request.config)));
    TRY(as_unavailable(records_of(request.config).prepare()));
    TRY(choose_hook_kind(request.config));
    TRY(require_replies(request.config));
    net::Netlink host = TRY(net::Netlink::open());
    TRY(as_unavailable(find_egress_route(request.config, host)));
    if (!request.config.ipam_type.empty())
        TRY(ipam::status(request));
    log_what_is_missing(request.config);
    return std::string{};
}

} // namespace podlane
