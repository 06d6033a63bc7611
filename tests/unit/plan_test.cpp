// SPDX-License-Identifier: MIT
// From request and lease to what is to be made, and what a configuration asks of the programs.
#include "plugin/plan.hpp"
#include "plugin/plan_addresses.hpp"

#include "loader/net/address.hpp"
#include "tests/harness/test.hpp"

namespace podlane {
namespace {

constexpr const char *kGateway4 = "169.254.1.1";
constexpr const char *kGateway6 = "fe80::ecee:eeff:feee:eeee";

ip_addr ip(const std::string &text) { return parse_ip(text).value(); }
Prefix prefix(const std::string &text) { return parse_prefix(text).value(); }

cni::Request request_of(const std::string &container_id = "demo-client", const std::string &ifname = "eth0") {
    cni::Request request;
    request.container_id = container_id;
    request.ifname = ifname;
    request.netns = "/run/netns/demo";
    request.config.name = "pods";
    request.config.ipam_type = "host-local";
    return request;
}

cni::Attachment lease_of(const std::vector<std::string> &addresses) {
    cni::Attachment lease;
    for (const std::string &one : addresses)
        lease.addresses.push_back({prefix(one), {}, {}});
    return lease;
}

Plan plan_of(const cni::Request &request, const cni::Attachment &lease, std::uint32_t mtu = 1500) {
    auto plan = make_plan(request, lease, {.mtu = mtu});
    if (!plan)
        throw std::runtime_error(plan.error().message);
    return std::move(plan).value();
}

Error refusal(const cni::Request &request, const cni::Attachment &lease, std::uint32_t mtu = 1500) {
    const auto plan = make_plan(request, lease, {.mtu = mtu});
    return plan ? Error{} : plan.error();
}

// "0.0.0.0/0 via 169.254.1.1", in the order in which they are added.
std::vector<std::string> pod_routes(const Plan &plan) {
    std::vector<std::string> all;
    for (const net::RouteSpec &one : plan.pod_routes)
        all.push_back(to_string(one.destination) + (one.gateway ? " via " + to_string(*one.gateway) : ""));
    return all;
}

std::vector<std::string> pod_neighbours(const Plan &plan) {
    std::vector<std::string> all;
    for (const net::Neighbour &one : plan.pod_neighbours) {
        EXPECT_EQ(to_string(one.mac), "ee:ee:ee:ee:ee:ee") << "all of them are the host-side veth";
        all.push_back(to_string(one.addr));
    }
    return all;
}

cni::Interface in_container(const std::string &name) { return {.name = name, .sandbox = "/run/netns/demo"}; }

TEST(PlanMode, IsThatOfIpamPrevResultAndItsInterfaces) {
    cni::Request request = request_of();
    EXPECT_EQ(mode_of(request).value(), ENDPOINT_MAIN);
    request.config.prev_result = cni::Attachment{};
    EXPECT_EQ(mode_of(request).value(), ENDPOINT_MAIN) << "its own IPAM plugin counts first";
    request.config.ipam_type.clear();
    EXPECT_EQ(mode_of(request).value(), ENDPOINT_AFTER_IPAM);
    request.config.prev_result->interfaces = {in_container("net1"), {.name = "eth0"}};
    EXPECT_EQ(mode_of(request).value(), ENDPOINT_AFTER_IPAM) << "another's, and one of the host";
    request.config.prev_result->interfaces.push_back(in_container("eth0"));
    EXPECT_EQ(mode_of(request).value(), ENDPOINT_AFTER_MAIN);
    request.config.prev_result.reset();
    const auto none = mode_of(request);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::invalid_network_config);
    EXPECT_THAT(none.error().message, HasSubstr("neither \"ipam\" nor \"prevResult\""));
}

// DEL finds the host-side veth by this name, whichever version made it.
TEST(PlanNames, StayAsTheyAre) {
    EXPECT_EQ(host_ifname(request_of("demo-client", "eth0")), "caligknsanhxs7u");
    EXPECT_EQ(host_ifname(request_of("demo-server", "eth0")), "calisgsowcbyom5");
    EXPECT_NE(host_ifname(request_of("demo-client", "net1")), host_ifname(request_of("demo-client", "eth0")));
    cni::Request request = request_of();
    request.config.host_interface_prefix = "p";
    EXPECT_EQ(host_ifname(request).size(), std::size_t{ENDPOINT_IFNAME_SIZE} - 1);
    EXPECT_THAT(host_ifname(request), testing::StartsWith("pgknsanhxs7u"));
    EXPECT_EQ(alias_of(request), "podlane demo-client eth0");
}

// In the kernel, each interface with IPv6 makes the next ADD a little slower.
TEST(PlanHostVeth, HasNoIpv6IfThePodCannotSendAny) {
    const auto switches_off = [](const cni::Request &request, const cni::Attachment &lease) {
        const Plan plan = plan_of(request, lease);
        for (const Setting &one : plan.host_settings)
            EXPECT_EQ(one.path, (net::SysctlPath{"net", "ipv6", "conf", plan.host_ifname, "disable_ipv6"}));
        return plan.host_settings.size() == 1 && plan.host_settings.front().value == "1";
    };
    const auto ipv4 = lease_of({"198.18.1.2/24"});
    cni::Request request = request_of();
    EXPECT_TRUE(switches_off(request, ipv4));
    EXPECT_FALSE(switches_off(request, lease_of({"198.18.1.2/24", "2001:db8::2/64"})));
    request.config.allowed_sources = {prefix("192.0.2.0/24")};
    EXPECT_TRUE(switches_off(request, ipv4));
    request.config.allowed_sources.push_back(prefix("2001:db8:1::/64"));
    EXPECT_FALSE(switches_off(request, ipv4));
    request = request_of();
    request.config.anti_spoof = false;
    EXPECT_FALSE(switches_off(request, ipv4));
}

TEST(PlanFlags, AreThoseOfTheConfiguration) {
    constexpr std::uint32_t kFast = INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK;
    cni::Config config;
    EXPECT_EQ(interface_flags_of(config, 1), kFast | INTERFACE_ANTI_SPOOF);
    EXPECT_EQ(interface_flags_of(config, 2), kFast | INTERFACE_ANTI_SPOOF | INTERFACE_MORE_ADDRESSES);
    config.anti_spoof = false;
    EXPECT_EQ(interface_flags_of(config, 1), kFast);
    config.fast_path = cni::FastPath::local;
    EXPECT_EQ(interface_flags_of(config, 1), INTERFACE_FAST_LOCAL);
    config.fast_path = cni::FastPath::off;
    EXPECT_EQ(interface_flags_of(config, 1), 0U);
    config.allowed_sources = {prefix("198.51.100.0/24")};
    EXPECT_EQ(interface_flags_of(config, 1), INTERFACE_ALLOWED_SOURCES);
}

TEST(PlanFlags, FollowTheLimits) {
    cni::Config config;
    config.fast_path = cni::FastPath::off;
    config.anti_spoof = false;
    config.bandwidth = {.ingress_rate = 0, .ingress_burst = 5, .egress_rate = 0, .egress_burst = 5};
    EXPECT_EQ(interface_flags_of(config, 1), 0U) << "a rate of 0 is no limit";
    config.bandwidth->ingress_rate = 1;
    EXPECT_EQ(interface_flags_of(config, 1), INTERFACE_LIMIT_INGRESS);
    config.bandwidth->egress_rate = 1;
    EXPECT_EQ(interface_flags_of(config, 1), INTERFACE_LIMIT_INGRESS | INTERFACE_LIMIT_EGRESS);
    config.bandwidth.reset();
    for (std::vector<Prefix> cni::LimitedPrefixes::*list :
         {&cni::LimitedPrefixes::shaped, &cni::LimitedPrefixes::unshaped})
        for (cni::LimitedPrefixes &direction : config.limited_prefixes) {
            direction.*list = {prefix("::/0")};
            EXPECT_EQ(interface_flags_of(config, 1), INTERFACE_LIMIT_EXEMPT);
            (direction.*list).clear();
        }
    config.limiter = cni::Limiter::pace;
    EXPECT_EQ(interface_flags_of(config, 1), INTERFACE_LIMIT_NO_EDT);
    config.limiter = cni::Limiter::edt;
    EXPECT_EQ(interface_flags_of(config, 1), INTERFACE_LIMIT_UNPACED_INGRESS);
    config.limiter = cni::Limiter::bucket;
    EXPECT_EQ(interface_flags_of(config, 1),
              INTERFACE_LIMIT_NO_EDT | INTERFACE_LIMIT_UNPACED_INGRESS | INTERFACE_LIMIT_UNPACED_EGRESS);
}

TEST(PlanAddresses, AreThoseOfTheInterfaceAndOfNone) {
    cni::Attachment result = lease_of({"198.18.1.2/24", "198.18.1.3/24", "198.18.1.4/24", "198.18.1.5/24"});
    result.interfaces = {{.name = "eth0"}, in_container("eth0"), in_container("net1")};
    for (std::size_t i = 0; i < 3; ++i)
        result.addresses[i].interface = i;
    EXPECT_THAT(prefixes_of(result, "eth0"), ElementsAre(prefix("198.18.1.3/24"), prefix("198.18.1.5/24")));
    EXPECT_THAT(prefixes_of(result, "net1"), ElementsAre(prefix("198.18.1.4/24"), prefix("198.18.1.5/24")));
    EXPECT_THAT(prefixes_of(result, "lo"), ElementsAre(prefix("198.18.1.5/24")));
}

TEST(PlanAddresses, AreKeptOnceAndRefusedByName) {
    const Plan plan = plan_of(request_of(), lease_of({"198.18.1.2/24", "2001:db8:1::2/64", "198.18.1.2/16"}));
    EXPECT_THAT(plan.addresses, ElementsAre(ip("198.18.1.2"), ip("2001:db8:1::2")));
    EXPECT_EQ(plan.result.addresses.size(), 2U);
    EXPECT_NE(plan.flags & INTERFACE_MORE_ADDRESSES, 0U);
    for (const auto &[bad, why] : std::vector<std::pair<std::string, std::string>>{{"169.254.1.1/32", "link-local"},
                                                                                   {"fe80::1/64", "link-local"},
                                                                                   {"127.0.0.1/8", "no unicast"},
                                                                                   {"224.0.0.5/24", "no unicast"},
                                                                                   {"::/128", "no unicast"}}) {
        const Error error = refusal(request_of(), lease_of({"198.18.1.2/24", bad}));
        EXPECT_EQ(error.code, ErrorCode::ipam) << bad;
        EXPECT_THAT(error.message, testing::AllOf(HasSubstr(bad), HasSubstr(why)));
    }
    EXPECT_EQ(refusal(request_of(), {}).code, ErrorCode::ipam);
    std::vector<std::string> many;
    for (int i = 1; i <= ENDPOINT_ADDRESSES; ++i)
        many.push_back("198.18.1." + std::to_string(i) + "/24");
    EXPECT_EQ(plan_of(request_of(), lease_of(many)).addresses.size(), many.size());
    many.emplace_back("198.18.1.200/24");
    EXPECT_THAT(refusal(request_of(), lease_of(many)).message, HasSubstr("17 addresses, at most 16"));
}

TEST(PlanAddresses, OfAnotherPluginsInterfaceAreUnicast) {
    cni::Request request = request_of();
    request.config.ipam_type.clear();
    const auto adopted = [&](const char *address) {
        request.config.prev_result = lease_of({address});
        return adopted_addresses(request);
    };
    for (const char *used : {"198.18.1.0/24", "169.254.7.7/32", "fe80::7/64"}) // its plugin knows why
        EXPECT_TRUE(adopted(used)) << used;
    for (const char *bad : {"0.0.0.0/0", "127.0.0.1/8", "ff02::1/128"})
        EXPECT_EQ(adopted(bad).error().code, ErrorCode::invalid_network_config) << bad;
}

TEST(PlanMtu, IsThatOfTheConfigurationElseOfTheUplink) {
    cni::Request request = request_of();
    EXPECT_EQ(plan_of(request, lease_of({"198.18.1.2/24"}), 1420).mtu, 1420U);
    request.config.mtu = 1279;
    EXPECT_EQ(plan_of(request, lease_of({"198.18.1.2/24"}), 1420).mtu, 1279U);
    EXPECT_THAT(refusal(request, lease_of({"2001:db8:1::2/64"})).message, HasSubstr("mtu 1279 is too small"));
    request.config.mtu = 1280;
    EXPECT_EQ(plan_of(request, lease_of({"2001:db8:1::2/64"})).mtu, 1280U);
}

TEST(PlanMtu, OfARouteIsAtMostTheInterfaces) {
    cni::Request request = request_of();
    const auto refused = [&](const cni::Route &route, std::uint32_t mtu) {
        const auto checked = check_new_routes(request.config, {{.destination = prefix("203.0.113.0/24")}, route}, mtu);
        return checked ? Error{} : checked.error();
    };
    cni::Route route{.destination = prefix("198.51.100.0/24"), .mtu = 1500, .advmss = 65495};
    EXPECT_EQ(refused(route, 1500).message, "");
    EXPECT_EQ(refused({.destination = route.destination, .mtu = 0}, 1500).message, "");
    EXPECT_EQ(refused(route, 0).message, "") << "a node without a default route";
    for (const std::uint32_t mtu : {1501U, 9000U, 70000U}) {
        route.mtu = mtu;
        EXPECT_EQ(refused(route, 0).message, refused(route, 1500).message);
        EXPECT_EQ(refused(route, 1500).code, ErrorCode::ipam);
        EXPECT_EQ(refused(route, 1500).message, "the lease's route 198.51.100.0/24 has mtu " + std::to_string(mtu) +
                                                    ", and the pod's interface has 1500: larger packets would be lost");
    }
    request.config.routes = {route};
    EXPECT_EQ(refused(route, 9000).code, ErrorCode::invalid_network_config);
    EXPECT_EQ(refused(route, 9000).message.substr(0, 39), "routes: 198.51.100.0/24 has mtu 70000, ");
    EXPECT_EQ(refused(route, 9000).hint, "lower it in \"routes\", or raise the key \"mtu\"");
    EXPECT_EQ(refused({.destination = route.destination, .advmss = 65496}, 1500).message,
              "the lease's route 198.51.100.0/24 has advmss 65496, at most 65495 is possible");
}

TEST(PlanMtu, OfARouteIsLoweredWithTheInterfacesByThePod) {
    cni::Request request = request_of();
    request.config.routes = {{.destination = prefix("198.51.100.0/24"), .mtu = 1450},
                             {.destination = prefix("203.0.113.0/24"), .mtu = 1300},
                             {.destination = prefix("192.0.2.0/24")}};
    const auto mtus = [&] {
        const Plan plan = plan_of(request, lease_of({"198.18.1.2/24"}));
        std::vector<std::uint32_t> all;
        for (const net::RouteSpec &one : plan.pod_routes)
            if (one.destination.length == 24 && one.destination != prefix("198.18.1.0/24"))
                all.push_back(one.mtu.value_or(0));
        return all;
    };
    EXPECT_THAT(mtus(), ElementsAre(1450, 1300, 0));
    request.config.pod_mtu = 1400;
    EXPECT_THAT(mtus(), ElementsAre(1400, 1300, 0));
    EXPECT_EQ(plan_of(request, lease_of({"198.18.1.2/24"}), 0).mtu, 1400U) << "a node without a default route";
    request.config.routes = {{.destination = prefix("2001:db8:9::/48"), .mtu = 1500}};
    request.config.pod_mtu = 1200;
    EXPECT_THAT(refusal(request, lease_of({"198.18.1.2/24", "2001:db8:1::2/64"})).message,
                testing::HasSubstr("mtu 1200 is too small"));
}

TEST(PlanMacs, StayAsTheyAreUnlessOneIsRequested) {
    const cni::Attachment lease = lease_of({"2001:db8:1::2/64"});
    const Plan plan = plan_of(request_of(), lease);
    EXPECT_EQ(plan.pod_mac[0] & 0x03U, 0x02U) << "locally administered, and nobody's group";
    EXPECT_EQ(plan.pod_mac, plan_of(request_of(), lease).pod_mac);
    EXPECT_NE(plan.pod_mac, plan_of(request_of("demo-server"), lease).pod_mac);
    EXPECT_NE(plan.pod_mac, plan_of(request_of("demo-client", "net1"), lease).pod_mac);
    EXPECT_EQ(plan.link_local, link_local_from_mac(plan.pod_mac));
    EXPECT_EQ(to_string(plan.host_mac), "ee:ee:ee:ee:ee:ee");
    cni::Request request = request_of();
    request.config.requested_mac = parse_mac("02:00:00:00:00:07").value();
    EXPECT_EQ(to_string(plan_of(request, lease).pod_mac), "02:00:00:00:00:07");
    EXPECT_EQ(to_string(plan_of(request, lease).link_local), "fe80::ff:fe00:7");
    EXPECT_TRUE(is_none(plan_of(request, lease_of({"198.18.1.2/24"})).link_local)) << "without IPv6 there is none";
}

TEST(PlanRoutes, LeadToOwnGatewaysIfTheLeaseHasNone) {
    const Plan plan = plan_of(request_of(), lease_of({"198.18.1.2/24", "2001:db8:1::2/64"}));
    EXPECT_THAT(pod_routes(plan),
                ElementsAre("169.254.1.1/32", "0.0.0.0/0 via 169.254.1.1", "::/0 via fe80::ecee:eeff:feee:eeee"));
    EXPECT_THAT(pod_neighbours(plan), ElementsAre(kGateway4, kGateway6));
    EXPECT_EQ(plan.pod_routes[0].scope, net::kScopeLink);
    EXPECT_TRUE(plan.pod_routes[1].onlink);
    ASSERT_EQ(plan.result.routes.size(), 2U);
    EXPECT_EQ(plan.result.routes[0].gateway, ip(kGateway4));
    EXPECT_EQ(plan.result.routes[1].gateway, ip(kGateway6));
    const Plan one_family = plan_of(request_of(), lease_of({"2001:db8:1::2/64"}));
    EXPECT_THAT(pod_routes(one_family), ElementsAre("::/0 via fe80::ecee:eeff:feee:eeee"));
}

// Without a default route the lease's subnet, which is not on the link, has one of its own.
TEST(PlanRoutes, AreThoseOfTheLeaseAndTheConfiguration) {
    cni::Request request = request_of();
    request.config.routes = {{.destination = prefix("203.0.113.9/24"), .mtu = 1300, .priority = 7, .table = 133}};
    cni::Attachment lease = lease_of({"198.18.1.2/24", "2001:db8:1::2/64"});
    lease.addresses[0].gateway = ip("198.18.1.1");
    lease.routes = {{.destination = prefix("198.51.100.0/24"), .gateway = ip("198.18.1.254")},
                    {.destination = prefix("192.0.2.0/24"), .gateway = ip("2001:db8:1::1")}};
    const Plan plan = plan_of(request, lease);
    EXPECT_THAT(pod_routes(plan), ElementsAre("169.254.1.1/32", "198.18.1.1/32", "198.18.1.0/24 via 169.254.1.1",
                                              "198.51.100.0/24 via 198.18.1.254", "192.0.2.0/24 via 169.254.1.1",
                                              "203.0.113.0/24 via 169.254.1.1", "::/0 via fe80::ecee:eeff:feee:eeee"));
    EXPECT_THAT(pod_neighbours(plan), ElementsAre(kGateway4, "198.18.1.1", "198.18.1.254", kGateway6));
    const net::RouteSpec &configured = plan.pod_routes[5];
    EXPECT_EQ(configured.mtu, 1300U);
    EXPECT_EQ(configured.table, 133U);
    EXPECT_EQ(configured.priority, 7U);
    EXPECT_EQ(plan.result.routes.size(), 4U) << "with the default route of IPv6";
}

TEST(PlanRoutes, LackTheDefaultOneIfItIsNotWanted) {
    cni::Request request = request_of();
    request.config.default_route = false;
    const Plan plan = plan_of(request, lease_of({"198.18.1.2/24", "198.18.2.2/32"}));
    EXPECT_THAT(pod_routes(plan), ElementsAre("169.254.1.1/32", "198.18.1.0/24 via 169.254.1.1"));
    EXPECT_THAT(plan.result.routes, IsEmpty());
    // With a way out of its own, the network's neighbours are asked here whoever has the default route.
    request.config.default_route = true;
    request.config.uplink = "lan0";
    EXPECT_THAT(pod_routes(plan_of(request, lease_of({"198.18.1.2/24"}))),
                ElementsAre("169.254.1.1/32", "198.18.1.0/24 via 169.254.1.1", "0.0.0.0/0 via 169.254.1.1"));
}

// flannel's plugin hands down the network's route in the lease, and no default route.
TEST(PlanRoutes, HaveADefaultOneBesideTheLeasesIfItIsWanted) {
    cni::Request request = request_of();
    cni::Attachment lease = lease_of({"198.18.1.2/24", "2001:db8:1::2/64"});
    lease.routes = {{.destination = prefix("198.18.0.0/16")}, {.destination = prefix("::/0")}};
    EXPECT_THAT(pod_routes(plan_of(request, lease)),
                ElementsAre("169.254.1.1/32", "198.18.1.0/24 via 169.254.1.1", "198.18.0.0/16 via 169.254.1.1",
                            "::/0 via fe80::ecee:eeff:feee:eeee"));
    request.config.default_route = true;
    const Plan plan = plan_of(request, lease);
    EXPECT_THAT(pod_routes(plan), ElementsAre("169.254.1.1/32", "198.18.0.0/16 via 169.254.1.1",
                                              "0.0.0.0/0 via 169.254.1.1", "::/0 via fe80::ecee:eeff:feee:eeee"));
    EXPECT_EQ(plan.result.routes.size(), 3U) << "the lease's default route is not doubled";
}

// A second default route is refused by some sandboxes, and no connection takes it.
TEST(PlanRoutes, LackTheDefaultOneIfAnotherInterfaceHasIt) {
    cni::Request request = request_of("demo-client", "net1");
    const cni::Attachment lease = lease_of({"198.18.1.2/24", "2001:db8:1::2/64"});
    const auto plan = [&] { return make_plan(request, lease, {.flags = INTERFACE_NO_DEFAULT_IPV4}).value(); };
    EXPECT_THAT(pod_routes(plan()),
                ElementsAre("169.254.1.1/32", "198.18.1.0/24 via 169.254.1.1", "::/0 via fe80::ecee:eeff:feee:eeee"));
    EXPECT_NE(plan().flags & INTERFACE_NO_DEFAULT_IPV4, 0U) << "CHECK and repairs plan by it";
    request.config.default_route = true;
    EXPECT_THAT(pod_routes(plan()),
                ElementsAre("169.254.1.1/32", "0.0.0.0/0 via 169.254.1.1", "::/0 via fe80::ecee:eeff:feee:eeee"));
}

TEST(PlanResult, NamesBothEndsBehindWhatWasThere) {
    cni::Request request = request_of();
    request.config.dns = {.nameservers = {"198.18.0.53"}, .domain = "example.net", .search = {}, .options = {}};
    cni::Attachment lease = lease_of({"198.18.1.2/24", "2001:db8:1::2/64"});
    lease.interfaces = {{.name = "br0"}};
    lease.addresses[0].gateway = ip("198.18.1.1");
    const Plan plan = plan_of(request, lease, 1420);
    ASSERT_EQ(plan.result.interfaces.size(), 3U);
    EXPECT_EQ(plan.result.interfaces[0].name, "br0");
    const cni::Interface &host = plan.result.interfaces[1];
    EXPECT_EQ(host.name, plan.host_ifname);
    EXPECT_EQ(host.mac, "ee:ee:ee:ee:ee:ee");
    EXPECT_EQ(host.sandbox, "");
    const cni::Interface &pod = plan.result.interfaces[2];
    EXPECT_EQ(pod.name, "eth0");
    EXPECT_EQ(pod.mac, to_string(plan.pod_mac));
    EXPECT_EQ(pod.sandbox, request.netns);
    EXPECT_EQ(pod.mtu, 1420U);
    ASSERT_EQ(plan.result.addresses.size(), 2U);
    EXPECT_EQ(to_string(plan.result.addresses[0].prefix), "198.18.1.2/32");
    EXPECT_EQ(plan.result.addresses[0].gateway, ip("198.18.1.1"));
    EXPECT_EQ(to_string(plan.result.addresses[1].prefix), "2001:db8:1::2/128");
    EXPECT_EQ(plan.result.addresses[1].gateway, ip(kGateway6));
    for (const cni::Address &one : plan.result.addresses)
        EXPECT_EQ(one.interface, 2U);
    EXPECT_EQ(plan.result.dns.domain, "example.net");
    lease.dns.nameservers = {"198.18.0.1"};
    EXPECT_THAT(plan_of(request, lease).result.dns.nameservers, ElementsAre("198.18.0.1"));
}

} // namespace
} // namespace podlane
