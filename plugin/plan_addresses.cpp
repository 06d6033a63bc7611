// SPDX-License-Identifier: MIT
#include "plugin/plan_addresses.hpp"

#include "maps/abi/endpoint.h"
#include "plugin/cni/unicast.hpp"

#include <algorithm>
#include <string>

namespace podlane {
namespace {

Error no_address(const cni::Config &config) {
    if (!config.ipam_type.empty())
        return {ErrorCode::ipam, "IPAM plugin \"" + config.ipam_type + "\" gave no address", "correct \"ipam\""};
    return {ErrorCode::invalid_network_config, "prevResult.ips has no address of an interface of the container",
            "add \"ipam\" to the configuration, or chain Podlane after a plugin that gives addresses"};
}

std::string way_out(const cni::Config &config) {
    return config.ipam_type.empty() ? "correct the configuration of the plugin before" : "correct \"ipam\"";
}

} // namespace

Result<std::vector<ip_addr>> endpoint_addresses(const cni::Config &config, const std::vector<cni::Address> &leased) {
    std::vector<ip_addr> addresses;
    for (const cni::Address &one : leased) {
        const ip_addr &addr = one.prefix.addr;
        const std::string named = "the lease's address " + to_string(one.prefix);
        if (!cni::is_unicast(addr))
            return Error{ErrorCode::ipam, named + " is no unicast address", way_out(config)};
        if (is_link_local(addr))
            return Error{ErrorCode::ipam, named + " is link-local: it reaches nothing beyond the link to the node",
                         way_out(config)};
        if (one.gateway == addr && std::ranges::find(config.gateways, addr) == config.gateways.end())
            return Error{ErrorCode::ipam, named + " is its own gateway", way_out(config)};
        addresses.push_back(addr);
    }
    if (addresses.empty())
        return no_address(config);
    if (addresses.size() > ENDPOINT_ADDRESSES)
        return Error{ErrorCode::ipam,
                     "the lease has " + std::to_string(addresses.size()) + " addresses, at most " +
                         std::to_string(ENDPOINT_ADDRESSES) + " are supported",
                     way_out(config)};
    return addresses;
}

Result<void> check_adopted(const std::vector<ip_addr> &addresses) {
    for (const ip_addr &addr : addresses)
        if (!cni::is_unicast(addr))
            return Error{ErrorCode::invalid_network_config,
                         "prevResult.ips has " + to_string(addr) + ", which is no unicast address",
                         "correct the configuration of the plugin before"};
    return {};
}

Result<void> check_routes(const std::vector<cni::Route> &routes) {
    constexpr std::uint32_t kLeastMtu = 68, kLeastIpv6Mtu = 1280; // RFC 791, RFC 8200
    for (const cni::Route &route : routes) {
        const auto refuse = [&](const std::string &has) {
            return Error{ErrorCode::ipam, "the lease's route " + to_string(route.destination) + " has " + has,
                         "correct \"routes\" in \"ipam\", or the plugin before"};
        };
        if (route.gateway && !cni::is_unicast(*route.gateway))
            return refuse("gw " + to_string(*route.gateway) + ", which is no unicast address");
        const std::uint32_t least = is_ipv4(route.destination.addr) ? kLeastMtu : kLeastIpv6Mtu;
        if (route.mtu.value_or(0) != 0 && *route.mtu < least)
            return refuse("mtu " + std::to_string(*route.mtu) + ", at least " + std::to_string(least) + " are needed");
    }
    return {};
}

Result<void> check_new_routes(const cni::Config &config, const std::vector<cni::Route> &routes, std::uint32_t mtu) {
    mtu = mtu == 0 ? kVethMtu : mtu;
    for (const cni::Route &route : routes) {
        const bool is_own = std::ranges::find(config.routes, route) != config.routes.end();
        const std::string named = (is_own ? "routes: " : "the lease's route ") + to_string(route.destination);
        const auto code = is_own ? ErrorCode::invalid_network_config : ErrorCode::ipam;
        const std::string place = is_own ? "\"routes\"" : "\"routes\" of \"ipam\", or of the plugin before";
        if (route.mtu.value_or(0) > mtu)
            return Error{code,
                         named + " has mtu " + std::to_string(*route.mtu) + ", and the pod's interface has " +
                             std::to_string(mtu) + ": larger packets would be lost",
                         "lower it in " + place + ", or raise the key \"mtu\""};
        if (route.advmss.value_or(0) > cni::kLargestMss)
            return Error{code,
                         named + " has advmss " + std::to_string(*route.advmss) + ", at most " +
                             std::to_string(cni::kLargestMss) + " is possible",
                         "lower it in " + place};
    }
    return {};
}

} // namespace podlane
