// SPDX-License-Identifier: MIT
#include "plugin/cni/request.hpp"

#include "plugin/cni/attachment.hpp"
#include "plugin/cni/bandwidth.hpp"
#include "plugin/cni/config.hpp"
#include "plugin/cni/egress_route.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/ipam_wishes.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/labels.hpp"
#include "plugin/cni/limit_groups.hpp"
#include "plugin/cni/needs.hpp"
#include "plugin/cni/pod_settings.hpp"
#include "plugin/cni/keys.hpp"
#include "plugin/cni/values.hpp"
#include "plugin/cni/version.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace podlane::cni {
namespace {

constexpr std::string_view kVersionKey = "\"cniVersion\"";

// The text behind the first "cniVersion" of input that is no JSON.
std::string_view version_text(std::string_view text) {
    constexpr std::string_view kBetween = " \t\r\n:";
    const auto key = text.find(kVersionKey);
    if (key == std::string_view::npos)
        return {};
    text.remove_prefix(key + kVersionKey.size());
    const auto open = text.find_first_not_of(kBetween);
    if (open == std::string_view::npos || text[open] != '"')
        return {};
    text.remove_prefix(open + 1);
    return text.substr(0, text.find('"'));
}

// A GC removes all pods but these.
bool names_living(std::string_view key) {
    constexpr std::array<std::string_view, 4> kOfLists = {"cni.dev/valid-attachments", "cni.dev/attachments",
                                                          "containerID", "ifname"};
    return std::ranges::any_of(kOfLists, [key](std::string_view one) { return json::equal_any_case(key, one); });
}

// A key given twice: which one counts differs between parsers.
Result<void> check_repeated(std::string_view text, Request &request) {
    for (const std::string &key : json::repeated_keys(text)) {
        Error repeated{ErrorCode::invalid_network_config,
                       "key " + json::quote(key) + " appears twice in one object of the network configuration",
                       "remove one of the two"};
        const bool removes = request.command == Command::del || request.command == Command::gc;
        if (!removes || (request.command == Command::gc && names_living(key)))
            return repeated;
        request.ignored.push_back(repeated.message + ", of which the last one counts");
    }
    return {};
}

// As with JSON: plugins differ in which one counts. An earlier version accepted it: what that made stays as it is.
Result<void> check_repeated_argument(const Arguments &arguments, Request &request) {
    if (arguments.repeated.empty())
        return {};
    Error repeated{ErrorCode::invalid_environment, "CNI_ARGS has " + json::quote(arguments.repeated) + " twice",
                   "CNI_ARGS: leave one of the two"};
    if (request.command == Command::add || request.command == Command::status)
        return repeated;
    request.ignored.push_back(repeated.message);
    return {};
}

void warn_of_rate(std::string_view key, std::uint64_t rate, std::vector<std::string> &warnings) {
    constexpr std::uint64_t kLeast = 1000; // what the kubelet accepts of an annotation
    if (rate != 0 && rate < kLeast)
        warnings.push_back(std::string(key) + " is " + std::to_string(rate) +
                           " bit/s, less than a packet a second: rates are in bits per second");
}

// Whoever wrote them may have meant the one address.
void warn_of_host_bits(std::string_view key, const std::vector<Prefix> &prefixes, std::vector<std::string> &warnings) {
    for (const Prefix &one : prefixes)
        if (one != masked(one))
            warnings.push_back(std::string(key) + " has " + to_string(one) + ", which counts as all of " +
                               to_string(masked(one)) + ": write that, or the address alone");
}

void warn_of_prefixes(const Config &config, std::vector<std::string> &warnings) {
    warn_of_host_bits("clusterCIDRs", config.cluster_cidrs, warnings);
    warn_of_host_bits("noMasquerade", config.no_masquerade, warnings);
    warn_of_host_bits("allowedSources", config.allowed_sources, warnings);
    std::vector<Prefix> destinations;
    std::ranges::transform(config.routes, std::back_inserter(destinations), &Route::destination);
    warn_of_host_bits("routes", destinations, warnings);
    const auto &[ingress, egress] = config.limited_prefixes;
    warn_of_host_bits("unshapedSubnets", ingress.unshaped, warnings);
    warn_of_host_bits("shapedSubnets", ingress.shaped, warnings);
    if (egress.unshaped != ingress.unshaped) // no list for both directions
        warn_of_host_bits("unshapedSubnets", egress.unshaped, warnings);
    if (egress.shaped != ingress.shaped)
        warn_of_host_bits("shapedSubnets", egress.shaped, warnings);
    for (const Prefix &one : config.cluster_cidrs)
        if (one.length == 0)
            warnings.push_back("clusterCIDRs has " + to_string(masked(one)) + ", every " +
                               (is_ipv4(one.addr) ? "IPv4" : "IPv6") +
                               " address: \"ipMasq\" masquerades none of them, \"egress\": \"cluster\" lets all pass, "
                               "and with \"firstPacket\": \"direct\" no rule of the host sees what is sent to them: "
                               "name the ranges of the pods on all nodes");
}

// Warnings of a key without effect are logged when a pod is attached and when it is removed.
std::vector<std::string> warnings_of(const json::Value &document, const Config &config, Command command) {
    std::vector<std::string> warnings;
    if (command == Command::add || command == Command::del)
        warnings = foreign_keys(document);
    if (command != Command::add)
        return warnings;
    if (!config.ipam_type.empty() && config.prev_result)
        warnings.emplace_back("both ipam and prevResult are there: the addresses come from the IPAM plugin, and the "
                              "result of the plugin before is dropped");
    if (config.bandwidth) {
        warn_of_rate("ingressRate", config.bandwidth->ingress_rate, warnings);
        warn_of_rate("egressRate", config.bandwidth->egress_rate, warnings);
    }
    warn_of_unread_limits(json::Node(&document, {}), warnings);
    warn_of_prefixes(config, warnings);
    std::ranges::move(keys_without_effect(config), std::back_inserter(warnings));
    return warnings;
}

// DEL goes by what ADD has recorded, not by later changes of the annotations.
Result<void> apply_pods_word(const json::Value &document, Request &request) {
    if (request.command != Command::add && request.command != Command::check)
        return {};
    std::vector<std::string> warnings;
    TRY(apply_annotations(json::Node(&document, {}), request.config, warnings));
    TRY(check_limit_group(json::Node(&document, {}), request.config));
    if (request.command == Command::add)
        std::ranges::move(warnings, std::back_inserter(request.warnings));
    const IpamWishes wishes = wishes_of(request.config);
    if (wishes.any()) {
        request.ipam_config = with_wishes(document, wishes, request.config);
        request.ipam_args = args_with(request.args, wishes, request.config);
    }
    return {};
}

Result<Request> parse(const Environment &environment, std::string_view stdin_text, bool is_recorded) {
    Request request;
    request.command = TRY(read_command(environment));
    const Arguments arguments = TRY(read_environment(environment, request));
    if (!is_recorded)
        TRY(check_repeated_argument(arguments, request));
    request.pod = arguments.pod;
    request.raw_config = stdin_text;
    if (request.command == Command::version) {
        request.config.cni_version = version_of(stdin_text).value_or(kNewestVersion);
        return request;
    }
    auto document = json::parse_object(stdin_text, "the network configuration on standard input");
    if (!document && request.command == Command::del) {
        request.unreadable = true;
        request.config.cni_version = kNewestVersion;
        request.ignored.push_back(document.error().message);
        return request;
    }
    json::Value read = TRY(std::move(document));
    TRY(check_repeated(stdin_text, request));
    add_settings_of_attachment(read);
    request.config = TRY(read_config(read, request.command, arguments, request.ignored));
    if (!is_recorded && (request.command == Command::add || request.command == Command::status)) {
        const json::Node root(&read, {});
        TRY(check_uplink(root.at("uplink")));
        TRY(check_uplinks(root.at("uplinks")));
        TRY(check_configured_routes(root.at("routes")));
        TRY(check_name_servers(root.at_any_case("dns")));
        TRY(check_capabilities(root.at_any_case("capabilities")));
        TRY(check_state_directory(root.at("stateDir"), request.config));
    }
    std::ranges::move(warnings_of(read, request.config, request.command), std::back_inserter(request.warnings));
    if (request.command == Command::add) {
        read_identity(read, request.config.identity, request.pod);
        request.config.groups = groups_of(request.config.group_sources, request.config.name, request.pod);
    }
    TRY(apply_pods_word(read, request));
    return request;
}

} // namespace

std::optional<Version> version_of(std::string_view stdin_text) {
    std::optional<Version> version;
    if (const auto document = json::parse_object(stdin_text, "the network configuration")) {
        if (const auto named = read_version(json::Node(&*document, {})))
            version = *named;
    } else {
        version = parse_version(version_text(stdin_text.substr(0, json::kLongestText)));
    }
    return version && is_supported(*version) ? version : std::nullopt;
}

Result<Request> parse_request(const Environment &environment, std::string_view stdin_text) {
    return parse(environment, stdin_text, false);
}

Result<Request> parse_recorded(const Environment &environment, std::string_view stdin_text) {
    return parse(environment, stdin_text, true);
}

} // namespace podlane::cni
