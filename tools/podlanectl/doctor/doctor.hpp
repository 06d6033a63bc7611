// SPDX-License-Identifier: MIT
// The doctor's table: one check a row, which examines the node or one endpoint, and repairs what Podlane owns.
#pragma once

#include "loader/attach.hpp"
#include "loader/host_route.hpp"
#include "loader/net/link.hpp"
#include "loader/net/namespace.hpp"
#include "loader/net/netlink.hpp"
#include "loader/record.hpp"
#include "plugin/network_keys.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/node_object.hpp"
#include "tools/podlanectl/node/runtime_network.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "tools/podlanectl/views/uplink.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl::doctor {

enum class Severity {
    wrong,  // something does not work, or will not at the next ADD
    notice, // works, and is worth knowing
};

struct Finding {
    std::string what;                       // a sentence without its full stop
    std::function<Result<void>()> repair{}; // empty: Podlane cannot repair it
    std::string remedy{};                   // empty: that of the check
    bool by_record = false;                 // the record on disk says what is to be there, and is repaired from
    bool is_unchecked = false;              // a system call failed: it says nothing about the node
};
using Findings = std::vector<Finding>;
void report(Findings &findings, std::string what, std::function<Result<void>()> repair = {}, std::string remedy = {});

// The state that every endpoint is compared with, opened and read once.
struct LiveState {
    Interfaces interfaces;
    Counters counters;
    Addresses addresses;
    SourceRoutes source_routes;
    Networks networks;
    std::map<std::uint32_t, std::size_t> allowed_sources{}; // entries by ifindex
    std::uint32_t from_pod_id = 0, to_pod_id = 0;           // of the pinned programs

    static Result<LiveState> open(const std::string &root);
};

// The node as the checks see it. Checks do not change it.
struct NodeView {
    const World &world;
    std::unique_ptr<net::Netlink> host;
    std::string state_directory; // of the records of attachments
    std::string bin_dir;         // of the runtime's plugins
    std::string conf_dir;        // of its networks
    Result<std::vector<RuntimeNetwork>> networks;
    std::span<const ClusterNode> cluster; // as far as a file lists them
    bool loaded = false;                  // the live directory is there
    bool other_version = false;           // whose maps are not complete, beside maps of another version
    std::vector<EndpointEntry> endpoints{};
    std::vector<UplinkReport> uplinks{};
    std::optional<LiveState> live{}; // if `loaded` and the pins are complete
    std::optional<Tables> tables{};  // the same
    // Read after `endpoints`: all interfaces by their number, and what can be on their hooks.
    std::map<std::uint32_t, net::Link> links{};
    std::unique_ptr<HookSurvey> hooks{};
    Result<std::vector<AttachmentRecord>> records = std::vector<AttachmentRecord>{}; // of all roots, read once
    Result<void> unread_records{};                                                   // which `records` is without
    std::shared_ptr<LivingPods> living = std::make_shared<LivingPods>(); // for the repairs, one after the other

    // Existing host-side veths and uplinks, by number, with their names.
    [[nodiscard]] std::map<std::uint32_t, std::string> interfaces() const;
    [[nodiscard]] bool uses(bool ipv4) const; // whether an endpoint has an address of this family
};

struct EndpointView {
    const NodeView &node;
    net::Netlink &host; // of the thread that examines the endpoint, as the next
    HookSurvey &hooks;
    HostRoutes &routes;
    const endpoint_key &key;
    const endpoint &record;
    std::optional<net::Link> link{};     // the host-side veth, if it is the recorded one
    std::optional<net::Link> pod_link{}; // the container's end
    net::Netlink *pod = nullptr;         // in its namespace; null if that cannot be found
    Result<void> unseen_pod{};           // why, if it may be there
    std::string namespace_path{};
    std::optional<AttachmentRecord> disk{}; // of the ADD; none if it is torn
    bool is_torn = false;                   // the record on disk
    Result<void> unread_record{};           // why it counts as none
    Result<void> verified{};                // as CHECK judges, if it is on disk and its container is there

    // An interface such as macvlan has none: rules in the container do its source routing.
    [[nodiscard]] bool has_host_veth() const { return record.ifindex != 0; }
    [[nodiscard]] bool is_ours() const { return record.mode != ENDPOINT_AFTER_MAIN; } // Podlane made the interface
    [[nodiscard]] std::string host_ifname() const { return std::string(field_text(record.host_ifname)); }
    [[nodiscard]] std::string ifname() const { return std::string(field_text(key.ifname)); }
};

struct Check {
    std::string_view name; // stable, for programs
    Severity severity;
    std::string_view cause;  // why it happens, and the consequence
    std::string_view remedy; // what to do, unless the finding says otherwise
    Result<void> (*node)(const NodeView &node, Findings &findings);
    Result<void> (*endpoint)(const EndpointView &endpoint, Findings &findings) = nullptr;
};

// Requirements of Podlane on the node: these checks need no state of Podlane.
std::span<const Check> host_checks();
// Requirements of the runtime's networks: these need no state of Podlane either.
std::span<const Check> network_checks();
// Foreign programs and rules that affect packets of pods.
std::span<const Check> foreign_checks();
// Records on disk of attachments that the maps have lost: these checks need no pins.
std::span<const Check> record_checks();
// Requirements of the fast path and of limits.
std::span<const Check> fast_path_checks();
// Our maps, programs, pins and uplinks.
std::span<const Check> state_checks();
std::span<const Check> endpoint_checks();
// These checks name what the verifier found, with its cause; of an endpoint without a record on disk they are all there
// is. Runs last, and only on an endpoint on which the others found nothing: has what they have no name for.
inline constexpr std::string_view kPlanCheck = "plan";

} // namespace podlane::ctl::doctor
