// SPDX-License-Identifier: MIT
// Writes a pod's wishes where IPAM plugins look for them.
#pragma once

#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <string>
#include <vector>

namespace podlane::cni {

struct IpamWishes {
    std::vector<Prefix> addresses;
    std::vector<std::string> pools;                        // names in `pools`
    std::vector<std::string> calico_pools4, calico_pools6; // calico-ipam's own

    [[nodiscard]] bool any() const {
        return !addresses.empty() || !pools.empty() || !calico_pools4.empty() || !calico_pools6.empty();
    }
};
IpamWishes wishes_of(const Config &config);

// The configuration with the fragments of the pools in `ipam`, and the addresses in `runtimeConfig.ips` and
// `args.cni.ips`. A key of the first pool replaces that of `ipam`; lists of further pools are added to it.
std::string with_wishes(json::Value document, const IpamWishes &wishes, const Config &config);

// CNI_ARGS with IP=, if one address is requested: only `static` reads more than one there.
std::string args_with(const std::string &args, const IpamWishes &wishes, const Config &config);

// {"NAME": {…}}: parts of "ipam", as JSON.
Result<void> read_pools(const json::Node &node, std::map<std::string, std::string, std::less<>> &into);

// The request, with these addresses requested from the IPAM plugin.
Result<Request> with_addresses(const Request &request, const std::vector<Prefix> &addresses);

} // namespace podlane::cni
