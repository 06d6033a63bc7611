// SPDX-License-Identifier: MIT
// A complete request, and what the tests change of it.
#pragma once

#include "plugin/cni/request.hpp"
#include "tests/harness/test.hpp"

namespace podlane::cni {

inline Environment complete_environment(const std::string &command = "ADD") {
    return {{"CNI_COMMAND", command},
            {"CNI_CONTAINERID", "0a1b2c"},
            {"CNI_IFNAME", "eth0"},
            {"CNI_NETNS", "/run/netns/a"},
            {"CNI_PATH", "/opt/cni/bin"}};
}

// A configuration with some more keys, "\"mtu\": 1500", of which the first may replace one.
inline std::string config_with(const std::string &more, const std::string &version = "1.1.0") {
    std::string text = "{\"cniVersion\": \"" + version + "\"";
    for (const std::string one : {R"("name": "pods")", R"("type": "podlane")", R"("ipam": {"type": "host-local"})"})
        if (!more.starts_with(one.substr(0, one.find(':'))))
            text += ", " + one;
    return text + (more.empty() ? "" : ", ") + more + "}";
}

inline Result<Request> parse(const std::string &text, const std::string &command = "ADD") {
    return parse_request(complete_environment(command), text);
}

inline std::string why(const Result<Request> &request) { return request ? "accepted" : request.error().message; }

} // namespace podlane::cni
