// SPDX-License-Identifier: MIT
#include "plugin/plan_addresses.hpp"

#include "maps/abi/endpoint.h"
#include "plugin/cni/unicast.hpp"

#include <string>

namespace podlane {
namespace {

Error no_address(const cni::Config &config) {
    if (!config.ipam_type.empty())
        return {ErrorCode::ipam, "IPAM plugin \"" + config.ipam_type + "\" gave no address", "correct \"ipam\""};
    return {ErrorCode::invalid_network_config, "prevResult.ips has no address of an interface of the container",
            "add \"ipam\" to the configuration, or chain Podlane after a plugin that gives addresses"};
}

} // namespace

Result<std::vector<ip_addr>> endpoint_addresses(const cni::Config &config, const std::vector<cni::Address> &leased) {
    std::vector<ip_addr> addresses;
    for (const cni::Address &one : leased) {
        const ip_addr &addr = one.prefix.addr;
        const std::string named = "the lease's address " + to_string(one.prefix);
        if (!cni::is_unicast(addr))
            return Error{ErrorCode::ipam, named + " is no unicast address"};
        if (is_link_local(addr))
            return Error{ErrorCode::ipam, named + " is link-local: it reaches nothing beyond the link to the node"};
        addresses.push_back(addr);
    }
    if (addresses.empty())
        return no_address(config);
    if (addresses.size() > ENDPOINT_ADDRESSES)
        return Error{ErrorCode::invalid_network_config, "the lease has " + std::to_string(addresses.size()) +
                                                            " addresses, at most " +
                                                            std::to_string(ENDPOINT_ADDRESSES) + " are supported"};
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

Result<void> check_gateways(const std::vector<cni::Route> &routes) {
    for (const cni::Route &route : routes)
        if (route.gateway && !cni::is_unicast(*route.gateway))
            return Error{ErrorCode::ipam,
                         "the lease's route " + to_string(route.destination) + " has gw " + to_string(*route.gateway) +
                             ", which is no unicast address",
                         "correct \"routes\" in \"ipam\", or the plugin before"};
    return {};
}

} // namespace podlane
