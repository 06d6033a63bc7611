// SPDX-License-Identifier: MIT
#include "plugin/cni/limit_groups.hpp"

#include "maps/abi/limit.h"
#include "maps/abi/limit_math.h"
#include "maps/printable.hpp"
#include "plugin/cni/bandwidth.hpp"
#include "plugin/cni/keys.hpp"

#include <array>

namespace podlane::cni {
namespace {

using json::Node;

constexpr std::size_t kMostGroups = 256;

bool is_name(std::string_view text) {
    return !text.empty() && text.size() < LIMIT_GROUP_NAME_SIZE && is_printable(text) && text[0] != ' ';
}

Result<Bandwidth> read_group(const Node &object) {
    constexpr std::array<std::string_view, 4> kKeys{"ingressRate", "ingressBurst", "egressRate", "egressBurst"};
    Bandwidth limits;
    TRY(object.must_be_object(R"({"egressRate": 100000000})"));
    TRY(check_keys(object, kKeys));
    TRY(json::read(object.at("ingressRate"), limits.ingress_rate));
    TRY(json::read(object.at("ingressBurst"), limits.ingress_burst));
    TRY(json::read(object.at("egressRate"), limits.egress_rate));
    TRY(json::read(object.at("egressBurst"), limits.egress_burst));
    if (limits.ingress_rate == 0 && limits.egress_rate == 0)
        return object.wrong("a rate, such as {\"egressRate\": 100000000}");
    for (auto [rate, burst] :
         {std::pair(&limits.ingress_rate, &limits.ingress_burst), std::pair(&limits.egress_rate, &limits.egress_burst)})
        if (*rate != 0 && *burst == 0)
            *burst = AUTO_BURST_BITS;
        else if (*rate == 0 && *burst != 0)
            return object.wrong("a rate beside each burst");
    return limits;
}

} // namespace

Result<void> read_limit_group(const Node &node, std::string &into) {
    TRY(json::read(node, into));
    return !node.present() || is_name(into) ? Result<void>{} : node.wrong("a name of 1 to 63 printable characters");
}

Result<void> read_limit_groups(const Node &node, LimitGroups &into) {
    TRY(node.must_be_object(R"({"tenant-a": {"egressRate": 100000000}})"));
    if (!node.present())
        return {};
    if (node.value().size() > kMostGroups)
        return node.wrong("at most " + std::to_string(kMostGroups) + " groups");
    for (const auto &[name, value] : node.value().items()) {
        if (!is_name(name))
            return node.wrong("names of 1 to 63 printable characters");
        into[name] = TRY(read_group(node.at(name)));
    }
    return {};
}

Result<void> check_limit_group(const Node &root, const Config &config) {
    if (config.limit_group.empty())
        return {};
    const auto group = config.limit_groups.find(config.limit_group);
    if (group == config.limit_groups.end())
        return Error{ErrorCode::invalid_network_config,
                     "limitGroup " + json::quote(config.limit_group) + " is not in \"limitGroups\"",
                     "define it there, as in "
                     R"("limitGroups": {"tenant-a": {"egressRate": 100000000}})"};
    const Bandwidth configured = TRY(read_configured_limits(root)).value_or(Bandwidth{});
    const auto guaranteed = [](std::uint64_t guarantee, std::uint64_t rate) { return guarantee != 0 || rate == 0; };
    if (!guaranteed(configured.ingress_rate, group->second.ingress_rate) ||
        !guaranteed(configured.egress_rate, group->second.egress_rate))
        return Error{
            ErrorCode::invalid_network_config,
            "limitGroup " + json::quote(config.limit_group) +
                " has a rate in a direction in which the pod has no guarantee",
            "set \"ingressRate\" and \"egressRate\" beside it: each pod's guaranteed part of the group's rate"};
    return {};
}

} // namespace podlane::cni
