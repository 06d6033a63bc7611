// SPDX-License-Identifier: MIT
#include "plugin/cni/ipam_wishes.hpp"

#include "plugin/cni/labels.hpp"

#include <set>

namespace podlane::cni {
namespace {

// `static` wants a prefix, `host-local` takes both, and others want an address alone.
std::vector<std::string> texts_of(const IpamWishes &wishes, const Config &config) {
    std::vector<std::string> texts;
    for (const Prefix &one : wishes.addresses)
        texts.push_back(config.ipam_type == "static" ? to_string(one) : to_string(one.addr));
    return texts;
}

void put_addresses(json::Value &object, const std::vector<std::string> &texts) {
    json::erase_any_case(object, "ips");
    object["ips"] = texts;
}

void merge(json::Value &ipam, const json::Value &fragment, std::set<std::string> &replaced) {
    for (const auto &[key, value] : fragment.items())
        if (replaced.insert(key).second || !value.is_array() || !ipam[key].is_array())
            ipam[key] = value;
        else
            ipam[key].insert(ipam[key].end(), value.begin(), value.end());
}

} // namespace

IpamWishes wishes_of(const Config &config) {
    return {config.pod_addresses, config.pods_pools, config.calico_pools4, config.calico_pools6};
}

std::string with_wishes(json::Value document, const IpamWishes &wishes, const Config &config) {
    json::Value &ipam = json::member(document, "ipam");
    std::set<std::string> replaced;
    for (const std::string &name : wishes.pools)
        if (const auto fragment = json::parse_object(config.pools.find(name)->second, "a pool"))
            merge(ipam, *fragment, replaced);
    if (!wishes.calico_pools4.empty())
        ipam["ipv4_pools"] = wishes.calico_pools4;
    if (!wishes.calico_pools6.empty())
        ipam["ipv6_pools"] = wishes.calico_pools6;
    if (!wishes.addresses.empty()) {
        put_addresses(json::member(document, "runtimeConfig"), texts_of(wishes, config));
        put_addresses(json::member(json::member(document, "args"), "cni"), texts_of(wishes, config));
    }
    return json::print(document);
}

std::string args_with(const std::string &args, const IpamWishes &wishes, const Config &config) {
    const auto texts = texts_of(wishes, config);
    if (texts.empty() || (texts.size() > 1 && config.ipam_type != "static"))
        return {};
    std::string value;
    for (const std::string &one : texts)
        value += (value.empty() ? "" : ",") + one;
    const bool ignores = args.find("IgnoreUnknown=") != std::string::npos;
    return args + (args.empty() ? "" : ";") + "IP=" + value + (ignores ? "" : ";IgnoreUnknown=1");
}

Result<Request> with_addresses(const Request &request, const std::vector<Prefix> &addresses) {
    Request wishing = request;
    wishing.config.pod_addresses = addresses;
    const IpamWishes wishes = wishes_of(wishing.config);
    wishing.ipam_config =
        with_wishes(TRY(json::parse_object(request.raw_config, "the network configuration")), wishes, wishing.config);
    wishing.ipam_args = args_with(request.args, wishes, wishing.config);
    return wishing;
}

Result<void> read_pools(const json::Node &node, std::map<std::string, std::string, std::less<>> &into) {
    TRY(node.must_be_object(R"({"NAME": {"ranges": [[{"subnet": "198.18.1.0/24"}]]}})"));
    if (!node.present())
        return {};
    for (const auto &[name, fragment] : node.value().items()) {
        if (!is_label_key(name))
            return node.wrong("names of letters, digits and \"._/-\", and not " + json::quote(name));
        if (!fragment.is_object() || fragment.contains("type"))
            return node.wrong("an object without \"type\" for " + json::quote(name));
        into[name] = json::print(fragment);
    }
    return {};
}

} // namespace podlane::cni
