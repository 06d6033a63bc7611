// SPDX-License-Identifier: MIT
#include "plugin/cni/needs.hpp"

#include <array>
#include <string_view>

namespace podlane::cni {
namespace {

struct Need {
    std::string_view key;   // as it is written
    std::string_view needs; // what it lacks
    bool (*lacks)(const Config &config);
};

bool is_isolated(const Config &config) { return config.isolation.by != IsolateBy::none; }
bool has_groups(const Config &config) { return config.isolation.by == IsolateBy::group; }

bool keeps_addresses(const Config &config) {
    return config.keep_address != KeepAddress::none ||
           config.pod_may.at(static_cast<std::size_t>(PodSetting::keep_address)).granted;
}

constexpr auto kNeeds = std::to_array<Need>({
    {R"("host": "deny")", R"(without "isolation")",
     [](const Config &c) { return !c.isolation.host && !is_isolated(c); }},
    {R"("outside": "allow")", R"(without "isolation")",
     [](const Config &c) { return c.isolation.outside && !is_isolated(c); }},
    {R"("allow")", R"(without "isolation": "group")",
     [](const Config &c) { return !c.isolation.allow.empty() && !has_groups(c); }},
    {R"("groupCIDRs")", R"(without "isolation": "group")",
     [](const Config &c) { return !c.isolation.group_cidrs.empty() && !has_groups(c); }},
    {R"("allowedSources")", R"(with "antiSpoof": false)",
     [](const Config &c) { return !c.allowed_sources.empty() && !c.anti_spoof; }},
    {R"("allowedEtherTypes")", R"(with "antiSpoof": false)",
     [](const Config &c) { return c.allowed_ether_types != 0 && !c.anti_spoof; }},
    {R"("noMasquerade")", R"(without "ipMasq")",
     [](const Config &c) { return !c.no_masquerade.empty() && !c.ip_masq; }},
    {R"("keepAddressSeconds")", R"(without "keepAddress")",
     [](const Config &c) { return c.keep_address_s != Config{}.keep_address_s && !keeps_addresses(c); }},
    {R"("server" of "kubernetes")", R"(with "kubeconfig")",
     [](const Config &c) { return !c.kubernetes.server.empty() && !c.kubernetes.kubeconfig.empty(); }},
    {R"("firstPacket": "direct")", R"(with "fastPath": "off")",
     [](const Config &c) { return c.first_packet_direct && c.fast_path == FastPath::off; }},
});

} // namespace

std::vector<std::string> keys_without_effect(const Config &config) {
    std::vector<std::string> sentences;
    for (const Need &one : kNeeds)
        if (one.lacks(config))
            sentences.push_back(std::string(one.key) + " has no effect " + std::string(one.needs));
    return sentences;
}

} // namespace podlane::cni
