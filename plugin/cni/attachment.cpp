// SPDX-License-Identifier: MIT
#include "plugin/cni/attachment.hpp"

#include "plugin/cni/keys.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/unicast.hpp"
#include "plugin/cni/version.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace podlane::cni {
namespace {

using json::Node;

Result<std::optional<ip_addr>> read_ip(const Node &node) {
    std::string text;
    TRY(json::read(node, text));
    if (text.empty()) // Go reads "" as no address
        return std::optional<ip_addr>{};
    const auto addr = parse_ip(text);
    if (!addr)
        return node.wrong("an IP address", addr.error().hint);
    return std::optional<ip_addr>(*addr);
}

// Go omits these numbers if they are 0, so 0 means that the key is missing.
Result<void> read_nonzero(const Node &node, std::optional<std::uint32_t> &into) {
    TRY(json::read(node, into));
    if (into == 0U)
        into.reset();
    return {};
}

constexpr std::array<std::string_view, 7> kRouteKeys{"dst", "gw", "mtu", "advmss", "priority", "table", "scope"};

Result<Route> read_route(const Node &node) {
    Route route;
    TRY(node.must_be_object(R"({"dst": "192.0.2.0/24"})"));
    const Node destination = node.at_any_case("dst");
    if (!destination.present())
        return destination.wrong("a prefix, as in {\"dst\": \"192.0.2.0/24\", \"gw\": \"198.51.100.1\"}");
    route.destination = TRY(read_prefix(destination, false));
    const Node gateway = node.at_any_case("gw");
    route.gateway = TRY(read_ip(gateway));
    TRY(read_nonzero(node.at_any_case("mtu"), route.mtu));
    TRY(read_nonzero(node.at_any_case("advmss"), route.advmss));
    TRY(read_nonzero(node.at_any_case("priority"), route.priority));
    TRY(json::read(node.at_any_case("table"), route.table));
    TRY(json::read(node.at_any_case("scope"), route.scope));
    if (route.gateway && is_ipv4(*route.gateway) != is_ipv4(route.destination.addr))
        return gateway.wrong("an address of the same family as dst");
    return route;
}

// The kernel accepts a smaller one, and then cannot send by the route. That the interface's is smaller, the plan knows.
Result<void> check_route_mtu(const Node &node, const Route &route) {
    if (route.advmss.value_or(0) > kLargestMss) // the kernel would lower it silently
        return node.at_any_case("advmss").wrong("at most " + std::to_string(kLargestMss));
    const bool ipv4 = is_ipv4(route.destination.addr);
    const std::uint32_t least = ipv4 ? 68 : 1280; // RFC 791, RFC 8200
    if (!route.mtu || *route.mtu >= least)
        return {};
    return node.at_any_case("mtu").wrong("0 for the interface's, or at least " + std::to_string(least) +
                                         (ipv4 ? " with IPv4" : " with IPv6"));
}

Result<Interface> read_interface(const Node &node) {
    Interface interface;
    TRY(node.must_be_object(R"({"name": "eth0"})"));
    TRY(json::read(node.at_any_case("name"), interface.name));
    TRY(json::read(node.at_any_case("mac"), interface.mac));
    TRY(json::read(node.at_any_case("sandbox"), interface.sandbox));
    TRY(read_nonzero(node.at_any_case("mtu"), interface.mtu));
    TRY(json::read(node.at_any_case("socketPath"), interface.socket_path));
    TRY(json::read(node.at_any_case("pciID"), interface.pci_id));
    return interface;
}

Result<void> check_family(const Node &version, const Prefix &prefix) {
    std::string family;
    TRY(json::read(version, family));
    if (!family.empty() && family != (is_ipv4(prefix.addr) ? "4" : "6"))
        return version.wrong("\"4\" or \"6\", the family of " + to_string(prefix));
    return {};
}

// One of "ips", since 0.3.0. The number of an interface says nothing if there are none.
Result<Address> read_address(const Node &node, std::size_t interfaces) {
    Address address;
    TRY(node.must_be_object(R"({"address": "192.0.2.7/24"})"));
    address.prefix = TRY(read_prefix(node.at_any_case("address"), false));
    address.gateway = TRY(read_ip(node.at_any_case("gateway")));
    TRY(check_family(node.at_any_case("version"), address.prefix));
    const Node index = node.at_any_case("interface");
    if (!index.present() || interfaces == 0)
        return address;
    const auto number = index.number(interfaces - 1);
    if (!number)
        return index.wrong("the number of one of the " + std::to_string(interfaces) + " interfaces, from 0");
    address.interface = *number;
    return address;
}

// "ip4" or "ip6", before 0.3.0.
Result<void> read_family(const Node &node, bool ipv4, Attachment &into) {
    if (!node.present())
        return {};
    TRY(node.must_be_object(ipv4 ? R"({"ip": "192.0.2.7/24"})" : R"({"ip": "2001:db8::7/64"})"));
    Address address;
    const Node ip = node.at_any_case("ip");
    address.prefix = TRY(read_prefix(ip, false));
    if (is_ipv4(address.prefix.addr) != ipv4)
        return ip.wrong(ipv4 ? "an IPv4 prefix" : "an IPv6 prefix");
    address.gateway = TRY(read_ip(node.at_any_case("gateway")));
    into.addresses.push_back(address);
    for (Route &route : TRY(read_routes(node.at_any_case("routes"))))
        into.routes.push_back(route);
    return {};
}

// A version whose form is not known may say something else with the same words.
Result<void> check_result_version(const Node &node) {
    std::string text;
    TRY(json::read(node, text));
    const auto version = parse_version(text);
    if (text.empty() || (version && is_supported(*version)))
        return {};
    return node.wrong("one of " + supported_versions_text());
}

// A subnet of two has none (RFC 3021); of IPv6 it is an address of the routers (RFC 4291, 2.6.1).
bool has_network_address(const Prefix &subnet) {
    constexpr std::uint8_t kLongest = 30;
    return is_ipv4(subnet.addr) && subnet.length <= kLongest;
}

// Of an IPAM plugin, which nothing else has checked.
Result<Attachment> read_lease(const Node &node) {
    TRY(check_result_version(node.at_any_case("cniVersion")));
    Attachment lease = TRY(read_attachment(node));
    for (const Address &one : lease.addresses) {
        const auto refuse = [&](std::string_view why) {
            return Error{ErrorCode::decode_failure, "the gateway of " + to_string(one.prefix) + " is " +
                                                        to_string(*one.gateway) + ", " + std::string(why)};
        };
        if (one.gateway && is_ipv4(*one.gateway) != is_ipv4(one.prefix.addr))
            return refuse("an address of the other family");
        if (one.gateway && has_network_address(one.prefix) && *one.gateway == masked(one.prefix).addr)
            return refuse("the network address of the subnet");
    }
    return lease;
}

} // namespace

Result<Prefix> read_prefix(const Node &node, bool or_address) {
    const std::string_view expected =
        or_address ? "an address or prefix such as 192.0.2.1 or 192.0.2.0/24 (up to /32, IPv6 up to /128)"
                   : "a prefix such as 192.0.2.1/24 (up to /32, IPv6 up to /128)";
    const auto text = node.text();
    if (!text)
        return node.wrong(expected);
    const auto prefix = parse_prefix(*text);
    if (!prefix)
        return node.wrong(expected, prefix.error().hint);
    if (!or_address && text->find('/') == std::string::npos)
        return node.wrong(expected);
    return *prefix;
}

Result<std::vector<Route>> read_routes(const Node &list) {
    std::vector<Route> routes;
    if (!list.present())
        return routes;
    for (const Node &element : TRY(list.elements(R"([{"dst": "192.0.2.0/24"}])")))
        routes.push_back(TRY(read_route(element)));
    return routes;
}

// Results of other plugins may have further keys; in a configuration they would be ignored silently.
Result<std::vector<Route>> read_configured_routes(const Node &list) {
    auto routes = TRY(read_routes(list));
    if (!list.present())
        return routes;
    for (const Node &element : TRY(list.elements())) {
        json::Value unknown = json::Value::object();
        for (const auto &[key, value] : element.value().items())
            if (std::ranges::none_of(kRouteKeys,
                                     [&name = key](auto known) { return json::equal_any_case(name, known); }))
                unknown[key] = nullptr;
        if (auto known = check_keys(Node(&unknown, element.path()), kRouteKeys); !known) {
            if (unknown.contains("gateway")) // its name in "ips"
                known.error().hint = "did you mean \"gw\"?";
            return std::move(known).error();
        }
        const Node gateway = element.at_any_case("gw");
        if (const auto addr = TRY(read_ip(gateway)); addr && !is_unicast(*addr))
            return gateway.wrong("a unicast address");
    }
    return routes;
}

Result<void> check_configured_routes(const Node &list) {
    if (list.present())
        for (const Node &element : TRY(list.elements()))
            TRY(check_route_mtu(element, TRY(read_route(element))));
    return {};
}

// "fe80::1%eth0", as in resolv.conf(5), names the link too.
Result<void> check_name_servers(const Node &dns) {
    const Node list = dns.at_any_case("nameservers");
    if (list.present())
        for (const Node &element : TRY(list.elements())) {
            const std::string text = TRY(element.text());
            const std::string address = text.substr(0, text.find('%'));
            if (const auto addr = parse_ip(address); !addr || (address != text && is_ipv4(*addr)))
                return element.wrong("the IP address of a name server", addr ? std::string() : addr.error().hint);
        }
    return {};
}

Result<Dns> read_dns(const Node &node) {
    Dns dns;
    TRY(node.must_be_object(R"({"nameservers": ["192.0.2.53"]})"));
    TRY(json::read(node.at_any_case("nameservers"), dns.nameservers));
    TRY(json::read(node.at_any_case("domain"), dns.domain));
    TRY(json::read(node.at_any_case("search"), dns.search));
    TRY(json::read(node.at_any_case("options"), dns.options));
    return dns;
}

Result<Attachment> read_attachment(const Node &node) {
    Attachment attachment;
    TRY(node.must_be_object(R"({"ips": [{"address": "192.0.2.7/24"}]})"));
    std::string version;
    TRY(json::read(node.at_any_case("cniVersion"), version));
    if (const Node interfaces = node.at_any_case("interfaces"); interfaces.present())
        for (const Node &element : TRY(interfaces.elements(R"([{"name": "eth0"}])")))
            attachment.interfaces.push_back(TRY(read_interface(element)));
    if (const Node ips = node.at_any_case("ips"); ips.present())
        for (const Node &element : TRY(ips.elements(R"([{"address": "192.0.2.7/24"}])")))
            attachment.addresses.push_back(TRY(read_address(element, attachment.interfaces.size())));
    attachment.routes = TRY(read_routes(node.at_any_case("routes")));
    TRY(read_family(node.at_any_case("ip4"), true, attachment));
    TRY(read_family(node.at_any_case("ip6"), false, attachment));
    attachment.dns = TRY(read_dns(node.at_any_case("dns")));
    return attachment;
}

Result<Attachment> parse_lease(std::string_view text) {
    const json::Value value = TRY(json::parse_object(text, "the result"));
    auto read = read_lease(Node(&value, {}));
    if (!read) {
        read.error().code = ErrorCode::decode_failure;
        return read;
    }
    Attachment lease = std::move(read).value();
    lease.interfaces.clear();
    for (Address &one : lease.addresses)
        one.interface.reset();
    return lease;
}

Result<Attachment> parse_attachment(std::string_view text) {
    const json::Value value = TRY(json::parse_object(text, "the result"));
    auto attachment = read_attachment(Node(&value, {}));
    if (!attachment)
        attachment.error().code = ErrorCode::decode_failure;
    return attachment;
}

} // namespace podlane::cni
