// SPDX-License-Identifier: MIT
#include "plugin/cni/result.hpp"

#include "plugin/cni/json.hpp"
#include "plugin/cni/version.hpp"

#include <algorithm>

namespace podlane::cni {
namespace {

using json::Printable;

void put(Printable &object, const char *key, const std::string &text) {
    if (!text.empty())
        object[key] = text;
}

void put(Printable &object, const char *key, const std::optional<std::uint32_t> &number) {
    if (number)
        object[key] = *number;
}

void put(Printable &object, const char *key, const std::optional<ip_addr> &addr) {
    if (addr)
        object[key] = to_string(*addr);
}

void put(Printable &object, const char *key, const std::vector<std::string> &texts) {
    if (!texts.empty())
        object[key] = texts;
}

void put_list(Printable &object, const char *key, Printable list) {
    if (!list.empty())
        object[key] = std::move(list);
}

Printable printed(const Interface &interface, Version version) {
    Printable object{{"name", interface.name}};
    put(object, "mac", interface.mac);
    if (version >= kFirstWithGc)
        put(object, "mtu", interface.mtu);
    put(object, "sandbox", interface.sandbox);
    if (version >= kFirstWithGc) {
        put(object, "socketPath", interface.socket_path);
        put(object, "pciID", interface.pci_id);
    }
    return object;
}

Printable printed(const Address &address, Version version) {
    Printable object = Printable::object();
    if (version < kFirstWithoutIpVersion)
        object["version"] = is_ipv4(address.prefix.addr) ? "4" : "6";
    if (address.interface)
        object["interface"] = *address.interface;
    object["address"] = to_string(address.prefix);
    put(object, "gateway", address.gateway);
    return object;
}

Printable printed(const Route &route, Version version) {
    Printable object{{"dst", to_string(route.destination)}};
    put(object, "gw", route.gateway);
    if (version < kFirstWithGc)
        return object;
    put(object, "mtu", route.mtu);
    put(object, "advmss", route.advmss);
    put(object, "priority", route.priority);
    put(object, "table", route.table);
    put(object, "scope", route.scope);
    return object;
}

void put_dns(Printable &object, const Dns &dns) {
    Printable printed_dns = Printable::object();
    put(printed_dns, "nameservers", dns.nameservers);
    put(printed_dns, "domain", dns.domain);
    put(printed_dns, "search", dns.search);
    put(printed_dns, "options", dns.options);
    put_list(object, "dns", std::move(printed_dns));
}

// "ip4" and "ip6" hold one address each.
void put_family(Printable &object, const char *key, bool ipv4, const Attachment &attachment, Version version) {
    const auto first = std::ranges::find_if(
        attachment.addresses, [ipv4](const Address &address) { return is_ipv4(address.prefix.addr) == ipv4; });
    if (first == attachment.addresses.end())
        return;
    Printable family{{"ip", to_string(first->prefix)}};
    put(family, "gateway", first->gateway);
    Printable routes = Printable::array();
    for (const Route &route : attachment.routes)
        if (is_ipv4(route.destination.addr) == ipv4)
            routes.push_back(printed(route, version));
    put_list(family, "routes", std::move(routes));
    object[key] = std::move(family);
}

} // namespace

std::string to_json(const Attachment &attachment, Version version) {
    Printable object{{"cniVersion", to_string(version)}};
    if (version < kFirstWithInterfaces) {
        put_family(object, "ip4", true, attachment, version);
        put_family(object, "ip6", false, attachment, version);
        put_dns(object, attachment.dns);
        return json::print(object);
    }
    Printable interfaces = Printable::array();
    for (const Interface &interface : attachment.interfaces)
        interfaces.push_back(printed(interface, version));
    Printable addresses = Printable::array();
    for (const Address &address : attachment.addresses)
        addresses.push_back(printed(address, version));
    Printable routes = Printable::array();
    for (const Route &route : attachment.routes)
        routes.push_back(printed(route, version));
    put_list(object, "interfaces", std::move(interfaces));
    put_list(object, "ips", std::move(addresses));
    put_list(object, "routes", std::move(routes));
    put_dns(object, attachment.dns);
    return json::print(object);
}

std::string version_json(Version requested) {
    Printable versions = Printable::array();
    for (const Version version : kSupportedVersions)
        versions.push_back(to_string(version));
    return json::print(Printable{{"cniVersion", to_string(is_supported(requested) ? requested : kNewestVersion)},
                                 {"supportedVersions", std::move(versions)}});
}

} // namespace podlane::cni
