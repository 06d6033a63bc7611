// SPDX-License-Identifier: MIT
#include "tools/podlanectl/node/install_options.hpp"

#include "maps/ip.hpp"
#include "maps/text.hpp"
#include "plugin/cni/json.hpp"

#include <array>

namespace podlane::ctl {
namespace {

namespace json = cni::json;

bool overlap(const Prefix &one, const Prefix &other) { return contains(one, other.addr) || contains(other, one.addr); }

// Keys that options write; not "ipam", in place of which --keys may have another plugin's.
struct KeyOption {
    Opt option;
    std::string_view name, key;
};
constexpr std::array<KeyOption, 8> kKeyOptions = {{{Opt::mtu, "mtu", "mtu"},
                                                   {Opt::fast_path, "fast-path", "fastPath"},
                                                   {Opt::uplinks, "uplinks", "uplinks"},
                                                   {Opt::cluster_cidrs, "cluster-cidrs", "clusterCIDRs"},
                                                   {Opt::log_file, "log-file", "log"},
                                                   {Opt::log_level, "log-level", "log"},
                                                   {Opt::no_masquerade, "no-masquerade", "ipMasq"},
                                                   {Opt::bpffs, "bpffs", "bpffs"}}};

} // namespace

Result<std::vector<std::string>> prefixes_in(const Call &call, Opt option, std::string_view name) {
    const std::string text = call.value(option).value_or("");
    if (text.starts_with(',') || text.ends_with(',') || text.find(",,") != std::string::npos)
        return usage_error("--" + std::string(name) + " \"" + text + "\" has an empty item",
                           "write 198.18.1.0/24, separated by single commas");
    std::vector<std::string> all = split<std::string>(text, ",");
    for (const std::string &one : all)
        if (const auto prefix = parse_prefix(one); !prefix || one.find('/') == std::string::npos)
            return usage_error("--" + std::string(name) + " \"" + one + "\" is not a prefix",
                               "write 198.18.1.0/24, separated by commas", prefix ? Error{} : prefix.error());
    return all;
}

Result<std::vector<std::string>> subnets_in(const Call &call) {
    std::vector<std::string> subnets = TRY(prefixes_in(call, Opt::subnets, "subnets"));
    for (std::size_t i = 0; i < subnets.size(); ++i)
        for (std::size_t other = 0; other < i; ++other)
            if (overlap(TRY(parse_prefix(subnets[other])), TRY(parse_prefix(subnets[i]))))
                return usage_error("--subnets: " + subnets[other] + " and " + subnets[i] + " overlap",
                                   "a pod gets an address of each subnet: name a range once");
    return subnets;
}

Result<void> check_keys_option(const Call &call) {
    const auto &text = call.value(Opt::keys);
    if (!text)
        return {};
    const json::Value keys = TRY(json::parse_object(*text, "--keys"));
    for (const std::string &key : json::repeated_keys(*text))
        return usage_error("--keys has " + json::quote(key) + " twice", "leave one of the two");
    for (const KeyOption &one : kKeyOptions)
        if (call.has(one.option) && json::Node(&keys, {}).at_any_case(one.key).present())
            return usage_error("--keys and --" + std::string(one.name) + " both set " + json::quote(one.key),
                               "give one of them");
    return {};
}

} // namespace podlane::ctl
