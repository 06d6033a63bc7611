// SPDX-License-Identifier: MIT
// The interface an ADD makes, as the kernel shows it on both ends.
#include "loader/net/link.hpp"
#include "tests/netns/verbs.hpp"

#include <bpf/bpf.h>
#include <sys/wait.h>

namespace podlane::test {
namespace {

class AddTest : public VerbsTest {
  protected:
    using Rates = std::vector<std::uint64_t>; // to the pod and from it
    [[nodiscard]] Rates rates_of(const Pod &made) const {
        const auto limits = limits_of(made.ifindex);
        return limits ? Rates{limits->ingress_rate_bits_per_s, limits->egress_rate_bits_per_s} : Rates{};
    }
};

// A configuration with the `static` plugin in place of host-local.
class StaticAddTest : public VerbsTest {
  protected:
    Reply add_static(const Container &container, const Json &addresses, const Json &ipam = Json::object(),
                     const Json &keys = Json::object()) const {
        Json config = node_.config(keys);
        config["ipam"] = {{"type", "static"}, {"addresses", addresses}};
        config["ipam"].update(ipam);
        return node_.cni("ADD", config, container);
    }
    Pod make_static(const Json &addresses, const Json &ipam = Json::object(), const Json &keys = Json::object()) {
        auto container = node_.container();
        const Reply reply = add_static(*container, addresses, ipam, keys);
        if (reply.rc != 0)
            throw std::runtime_error("ADD failed: " + reply.out);
        return look_at(container, reply.json);
    }
};

TEST_F(AddTest, MakesAVethWithTheMacsOfTheResult) {
    const Pod made = make();
    Json pod = pod_link(*made.container);
    Json host = host_link(made);
    EXPECT_THAT(made.result["interfaces"][0], has_members({{"name", made.host_ifname}, {"mac", kHostMac}}));
    EXPECT_EQ(made.result["interfaces"][0].value("sandbox", ""), "");
    EXPECT_THAT(made.result["interfaces"][1],
                has_members({{"name", "eth0"}, {"mac", pod["address"]}, {"sandbox", made.container->path()}}));
    EXPECT_EQ(host["address"], kHostMac);
    EXPECT_EQ(host["linkinfo"]["info_kind"], "veth");
    EXPECT_EQ(host["operstate"], "UP");
    EXPECT_EQ(pod["operstate"], "UP");
    const Mac mac = require(parse_mac(pod["address"].get<std::string>()));
    EXPECT_EQ(mac[0] & 0x03, 0x02) << "locally administered, unicast";
}

TEST_F(AddTest, NamesTheHostVethByContainerAndInterface) {
    const Pod a = make();
    const Pod b = make();
    EXPECT_THAT(a.host_ifname, testing::StartsWith("cali"));
    EXPECT_LE(a.host_ifname.size(), 15U);
    EXPECT_NE(a.host_ifname, b.host_ifname);
    const Reply second = succeeded(node_.cni("ADD", node_.config(), *a.container, {{"CNI_IFNAME", "net1"}}));
    EXPECT_NE(second.json["interfaces"][0]["name"], a.host_ifname);
    const Pod prefixed = make({{"hostInterfacePrefix", "pl-"}});
    EXPECT_THAT(prefixed.host_ifname, testing::StartsWith("pl-"));
    ASSERT_EQ(del(*a.container).rc, 0);
    EXPECT_EQ(add(*a.container).json["interfaces"][0]["name"], a.host_ifname) << "not the same at every ADD";
}

TEST_F(AddTest, TakesTheMtuOfTheUplinkOrOfTheConfiguration) {
    const Pod of_uplink = make({{"cniVersion", "1.0.0"}});
    EXPECT_EQ(host_link(of_uplink)["mtu"], 1420);
    EXPECT_EQ(pod_link(*of_uplink.container)["mtu"], 1420);
    EXPECT_EQ(record(of_uplink).mtu, 1420U);
    const Pod configured = make({{"mtu", 1300}});
    EXPECT_EQ(host_link(configured)["mtu"], 1300);
    EXPECT_EQ(pod_link(*configured.container)["mtu"], 1300);
    EXPECT_EQ(record(configured).mtu, 1300U);
}

TEST_F(AddTest, GivesHostPrefixesWithoutDuplicateAddressDetection) {
    const Pod made = make();
    Json addresses = find(ip_json(made.container->ns(), "addr show dev eth0"), "ifname", "eth0")["addr_info"];
    Json v4 = find(addresses, "family", "inet");
    EXPECT_THAT(v4, has_members({{"local", made.text4()}, {"prefixlen", 32}}));
    Json v6 = find(addresses, "local", made.text6());
    EXPECT_THAT(v6, has_members({{"prefixlen", 128}, {"nodad", true}}));
    for (Json &one : addresses)
        EXPECT_FALSE(one.contains("tentative")) << one;
    Json link_local = find(addresses, "scope", "link");
    const Mac mac = require(parse_mac(made.result["interfaces"][1]["mac"].get<std::string>()));
    EXPECT_EQ(link_local["local"], to_string(link_local_from_mac(mac)));
    Json lo = find(ip_json(made.container->ns(), "addr show dev lo"), "ifname", "lo");
    EXPECT_THAT(lo["flags"], testing::Contains("UP"));
    EXPECT_EQ(find(lo["addr_info"], "local", "127.0.0.1")["prefixlen"], 8);
}

TEST_F(AddTest, RoutesThePodThroughTheGatewaysByPermanentNeighbours) {
    const Pod made = make();
    Json v4 = ip_json(made.container->ns(), "-4 route show");
    EXPECT_EQ(find(v4, "dst", "default")["gateway"], kGateway4);
    EXPECT_EQ(find(v4, "dst", kGateway4)["scope"], "link");
    EXPECT_EQ(find(v4, "dst", "198.18.9.1")["scope"], "link") << "the lease's gateway";
    EXPECT_EQ(v4.size(), 3U) << v4;
    EXPECT_EQ(find(ip_json(made.container->ns(), "-6 route show"), "dst", "default")["gateway"], kGateway6);
    Json neighbours = ip_json(made.container->ns(), "neigh show dev eth0 nud permanent");
    for (const char *gateway : {kGateway4, kGateway6, "198.18.9.1", "2001:db8:9::1"})
        EXPECT_EQ(find(neighbours, "dst", gateway)["lladdr"], kHostMac) << gateway;
    ASSERT_EQ(made.result["ips"].size(), 2U);
    EXPECT_EQ(find(made.result["ips"], "address", made.text4() + "/32")["interface"], 1);
    EXPECT_EQ(find(made.result["ips"], "address", made.text6() + "/128")["interface"], 1);
    EXPECT_EQ(find(made.result["routes"], "dst", "0.0.0.0/0")["gw"], kGateway4);
    EXPECT_EQ(find(made.result["routes"], "dst", "::/0")["gw"], kGateway6);
}

TEST_F(AddTest, RoutesTheHostToThePodByPermanentNeighbours) {
    const Pod made = make();
    Json v4 = find(ip_json(node_.ns(), "-4 route show"), "dst", made.text4());
    EXPECT_THAT(v4, has_members({{"dev", made.host_ifname}, {"scope", "link"}}));
    EXPECT_EQ(find(ip_json(node_.ns(), "-6 route show"), "dst", made.text6())["dev"], made.host_ifname);
    // The kernel looks at all of them whenever a link comes or goes: its own of the link, and two that are needed.
    EXPECT_EQ(ip_json(node_.ns(), "-6 route show table all dev " + made.host_ifname).size(), 4U);
    Json neighbours = ip_json(node_.ns(), "neigh show nud permanent dev " + made.host_ifname);
    for (const std::string &addr : {made.text4(), made.text6()})
        EXPECT_EQ(find(neighbours, "dst", addr)["lladdr"], made.result["interfaces"][1]["mac"]) << addr;
}

// As udev and systemd do when they see a new link. The neighbours of a link go with its MAC.
TEST_F(AddTest, MacsThatAreChangedMeanwhileAreSetAgain) {
    const std::string log = node_.dir() + "/log";
    const Json keys = {{"log", {{"file", log}, {"level", "warning"}}}};
    Pod made = make(keys);
    const auto change_when_it_comes = [](const net::Namespace &where, const std::string &ifname) {
        return std::thread([&where, ifname] {
            net::Netlink netlink = require(net::Netlink::open_in(where));
            std::optional<net::Link> link;
            while (!link)
                link = require(net::find_link(netlink, ifname));
            require(net::set_link(netlink, link->ifindex, {.mac = Mac{2, 0, 0, 0, 0, 0x99}}));
        });
    };
    const auto said = [&] {
        std::ifstream file(log);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    const auto both = [&] {
        ASSERT_EQ(del(*made.container, keys).rc, 0);
        std::filesystem::remove(log); // both in one ADD, or one of them came too late
        std::thread host = change_when_it_comes(node_.ns(), made.host_ifname);
        std::thread pod = change_when_it_comes(made.container->ns(), "eth0");
        const Reply reply = add(*made.container, keys);
        host.join();
        pod.join();
        ASSERT_EQ(reply.rc, 0) << reply;
        made.result = reply.json;
    };
    const auto seen = [&] {
        return said().find("MAC of eth0;") != std::string::npos &&
               said().find("MAC of " + made.host_ifname) != std::string::npos;
    };
    for (int attempt = 0; attempt < 20 && !seen(); ++attempt)
        both();
    ASSERT_TRUE(seen()) << said();
    EXPECT_THAT(check(made, keys), succeeds());
}

TEST_F(AddTest, LinkLocalAddressesReachEachOtherWithoutAnAnycastOne) {
    const Pod made = make();
    Json pod = find(ip_json(made.container->ns(), "addr show dev eth0 scope link")[0]["addr_info"], "scope", "link");
    Json host = find(ip_json(node_.ns(), "addr show dev " + made.host_ifname)[0]["addr_info"], "scope", "link");
    EXPECT_EQ(host["local"], kGateway6);
    const auto reaches = [](const net::Namespace &from, const std::string &to) {
        return run(from, words("ping -6 -n -q -c 1 -W 5 " + to)).rc == 0;
    };
    EXPECT_TRUE(reaches(made.container->ns(), std::string(kGateway6) + "%eth0"));
    EXPECT_TRUE(reaches(node_.ns(), pod["local"].get<std::string>() + "%" + made.host_ifname));
    EXPECT_THAT(must_run(node_.ns(), {"cat", "/proc/net/anycast6"}),
                testing::Not(testing::HasSubstr(made.host_ifname)));
}

// To a link that is up, the kernel would add its multicast route a second time, and walk those of all links for it.
TEST_F(AddTest, TheHostVethHasItsLinkLocalAddressBeforeItIsUp) {
    const auto container = node_.container();
    const std::string trace = node_.dir() + "/trace";
    Variables variables = attachment(*container);
    variables.insert({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
    const Output added =
        run(node_.ns(), {"strace", "-qq", "-e", "trace=sendmsg", "-o", trace, node_.plugins() + "/podlane"},
            node_.config().dump(), variables);
    ASSERT_EQ(added.rc, 0) << added.out;
    const std::string calls = read_file(trace);
    const std::size_t address = calls.find(R"(\n\200\0\375)"); // of its ifaddrmsg: IPv6, /128, of the link
    const std::size_t up =
        calls.rfind(R"(\1\0\0\0\1\0\0\0")"); // IFF_UP, the end of an ifinfomsg: the pod's end is first
    ASSERT_NE(address, std::string::npos) << calls;
    ASSERT_NE(up, std::string::npos) << calls;
    EXPECT_LT(address, up) << calls;
    EXPECT_THAT(del(*container), succeeds());
}

TEST_F(AddTest, SwitchesForwardingOnAndNothingElse) {
    const std::vector<std::string> kept = {"net.ipv4.conf.all.proxy_arp",     "net.ipv4.conf.default.proxy_arp",
                                           "net.ipv4.conf.up0.proxy_arp",     "net.ipv4.conf.all.rp_filter",
                                           "net.ipv4.conf.default.rp_filter", "net.ipv4.conf.up0.rp_filter",
                                           "net.ipv6.conf.all.proxy_ndp",     "net.ipv6.conf.default.accept_ra"};
    std::vector<std::string> before;
    for (const std::string &name : kept)
        before.push_back(sysctl(node_.ns(), name));
    set_sysctl(node_.ns(), "net.ipv4.ip_forward", "0");
    set_sysctl(node_.ns(), "net.ipv6.conf.all.forwarding", "0");
    const Pod made = make();
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv4.ip_forward"), "1");
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv6.conf.all.forwarding"), "1");
    for (std::size_t i = 0; i < kept.size(); ++i)
        EXPECT_EQ(sysctl(node_.ns(), kept[i]), before[i]) << kept[i];
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv4.conf." + made.host_ifname + ".proxy_arp"), "0");
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.2"));
    EXPECT_TRUE(ping(made.container->ns(), "2001:db8:cafe::2"));
}

// The DAD wait of other plugins is what makes their dual-stack ADD take a second or two.
TEST_F(AddTest, AddressesAreOfUseAtOnce) {
    const Pod server = make();
    const EchoServer v4(server.container->ns(), true, 8080);
    const EchoServer v6(server.container->ns(), false, 8080);
    const Pod made = make();
    const ip_addr own = made.v6;
    EXPECT_EQ(ask(made.container->ns(), Transport::tcp, {server.v6, 8080}, "hello", {own, 0}), 0);
    EXPECT_EQ(ask(made.container->ns(), Transport::tcp, {server.v4, 8080}), 0);
}

TEST_F(AddTest, OneFamilyLeavesTheOtherAlone) {
    Json v4_only = node_.config({{"name", "four"}});
    v4_only["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}};
    Json v6_only = node_.config({{"name", "six"}});
    v6_only["ipam"]["ranges"] = {{{{"subnet", "2001:db8:10::/64"}}}};
    set_sysctl(node_.ns(), "net.ipv4.ip_forward", "0");
    set_sysctl(node_.ns(), "net.ipv6.conf.all.forwarding", "0");

    auto four = node_.container();
    const Reply made = succeeded(node_.cni("ADD", v4_only, *four));
    const std::string host_veth = Json::parse(made.out).at("interfaces").at(0).at("name");
    EXPECT_EQ(ip_json(node_.ns(), "-6 route show table all dev " + host_veth).size(), 0U) << "each would cost an ADD";
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv6.conf.all.forwarding"), "0");
    EXPECT_EQ(ip_json(four->ns(), "-6 addr show dev eth0").size(), 0U);
    EXPECT_EQ(find(ip_json(four->ns(), "-6 route show"), "dst", "default"), nullptr);
    EXPECT_TRUE(ping(four->ns(), "203.0.113.2"));

    set_sysctl(node_.ns(), "net.ipv4.ip_forward", "0");
    auto six = node_.container();
    ASSERT_EQ(node_.cni("ADD", v6_only, *six).rc, 0);
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv4.ip_forward"), "0");
    EXPECT_EQ(ip_json(six->ns(), "-4 addr show dev eth0").size(), 0U);
    EXPECT_EQ(ip_json(six->ns(), "-4 route show").size(), 0U);
    EXPECT_TRUE(ping(six->ns(), "2001:db8:cafe::2"));
}

TEST_F(AddTest, ANamespaceWithoutIpv6GetsItForItsOwnInterface) {
    auto container = node_.container();
    for (const char *name : {"net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"})
        set_sysctl(container->ns(), name, "1");
    ASSERT_THAT(add(*container), succeeds());
    EXPECT_TRUE(ping(container->ns(), "2001:db8:cafe::2"));
}

TEST_F(StaticAddTest, SetsSeveralAddressesOfAFamily) {
    const std::vector<std::string> addresses = {"198.18.9.5", "198.18.9.6", "2001:db8:9::5", "2001:db8:9::6"};
    const Pod made = make_static({{{"address", "198.18.9.5/24"}},
                                  {{"address", "198.18.9.6/24"}},
                                  {{"address", "2001:db8:9::5/64"}},
                                  {{"address", "2001:db8:9::6/64"}}});
    EXPECT_EQ(made.result["ips"].size(), 4U);
    for (const std::string &addr : addresses) {
        EXPECT_TRUE(ping(node_.ns(), addr)) << addr;
        EXPECT_EQ(run(made.container->ns(), {"ping", "-n", "-c1", "-W5", "-I", addr,
                                             addr.find(':') == std::string::npos ? "203.0.113.2" : "2001:db8:cafe::2"})
                      .rc,
                  0)
            << "from " << addr;
    }
    EXPECT_EQ(record(made).address_count, 4);
}

TEST_F(StaticAddTest, TakesGatewayRoutesAndDnsOfTheIpamResult) {
    const Json dns = {{"nameservers", {"198.18.0.53"}},
                      {"domain", "example.net"},
                      {"search", {"a.example.net"}},
                      {"options", {"ndots:5"}}};
    const Pod made = make_static(
        {{{"address", "198.18.9.5/24"}, {"gateway", "198.18.9.1"}}},
        {{"routes", {{{"dst", "192.0.2.0/24"}}, {{"dst", "198.51.100.0/24"}, {"gw", "198.18.9.254"}}}}, {"dns", dns}});
    EXPECT_EQ(made.result["dns"], dns);
    EXPECT_EQ(made.result["ips"][0]["gateway"], "198.18.9.1");
    Json routes = ip_json(made.container->ns(), "-4 route show");
    EXPECT_EQ(find(routes, "dst", "192.0.2.0/24")["gateway"], kGateway4);
    EXPECT_EQ(find(routes, "dst", "198.51.100.0/24")["gateway"], "198.18.9.254");
    EXPECT_EQ(find(routes, "dst", "198.18.9.0/24")["gateway"], kGateway4) << "the subnet is not on the link";
    EXPECT_EQ(find(routes, "dst", "default"), nullptr) << "the lease's routes say what is reached";
    Json neighbours = ip_json(made.container->ns(), "neigh show dev eth0 nud permanent");
    EXPECT_EQ(find(neighbours, "dst", "198.18.9.254")["lladdr"], kHostMac);
    EXPECT_EQ(find(made.result["routes"], "dst", "192.0.2.0/24")["dst"], "192.0.2.0/24");
}

TEST_F(StaticAddTest, AddsTheConfiguredRoutesAndNoDefaultRoute) {
    const Pod made = make_static({{{"address", "198.18.9.5/24"}}}, Json::object(),
                                 {{"defaultRoute", false}, {"routes", {{{"dst", "203.0.113.0/24"}}}}});
    Json routes = ip_json(made.container->ns(), "-4 route show");
    EXPECT_EQ(find(routes, "dst", "203.0.113.0/24")["gateway"], kGateway4);
    EXPECT_EQ(find(routes, "dst", "default"), nullptr);
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.2"));
}

TEST_F(StaticAddTest, RoutesOfAFamilyWithoutAnAddressAreLeftOut) {
    const Pod made = make_static({{{"address", "198.18.9.5/24"}}}, Json::object(),
                                 {{"routes", {{{"dst", "203.0.113.0/24"}}, {{"dst", "2001:db8:77::/64"}}}}});
    EXPECT_NE(find(made.result["routes"], "dst", "203.0.113.0/24"), nullptr);
    EXPECT_EQ(find(made.result["routes"], "dst", "2001:db8:77::/64"), nullptr);
    EXPECT_EQ(ip_json(made.container->ns(), "-6 route show"), Json::array());
}

TEST_F(StaticAddTest, RefusesAnMtuTooSmallForIpv6) {
    const std::string before = node_.state();
    EXPECT_THAT(add_static(*node_.container(), {{{"address", "2001:db8:9::5/64"}}}, Json::object(), {{"mtu", 1279}}),
                fails_with(7, {"1279"}));
    EXPECT_EQ(node_.state(), before);
    EXPECT_EQ(add_static(*node_.container(), {{{"address", "198.18.9.5/24"}}}, Json::object(), {{"mtu", 576}}).rc, 0);
}

// The pod would take the gateway for itself.
TEST_F(AddTest, RefusesTheMacOfTheGateway) {
    const Json keys = {{"runtimeConfig", {{"mac", kHostMac}}}, {"capabilities", {{"mac", true}}}};
    EXPECT_THAT(add(*node_.container(), keys), fails_with(7, {"runtimeConfig.mac", kHostMac, "not the gateway's"}));
    EXPECT_TRUE(node_.leased().empty());
}

TEST_F(AddTest, SetsTheMacAndAddressesOfTheRuntime) {
    const Pod made = make({{"runtimeConfig", {{"mac", "02:00:00:00:00:17"}, {"ips", {"198.18.9.77/24"}}}},
                           {"capabilities", {{"mac", true}, {"ips", true}}}});
    EXPECT_EQ(pod_link(*made.container)["address"], "02:00:00:00:00:17");
    EXPECT_EQ(made.text4(), "198.18.9.77");
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.2"));
}

TEST_F(AddTest, StoresThePodsIdentityAndLimits) {
    const Pod made =
        make({{"allowedSources", {"192.0.2.0/24", "2001:db8:77::/64"}},
              {"runtimeConfig",
               {{"bandwidth",
                 {{"IngressRate", 8000000},
                  {"IngressBurst", 64000000},
                  {"egressRate", 4000000},
                  {"egressBurst", 32000000}}}}}},
             {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=u-1;X=y"}});
    const endpoint stored = record(made);
    EXPECT_EQ(field_text(stored.pod_name), "web-0");
    EXPECT_EQ(field_text(stored.pod_namespace), "shop");
    EXPECT_EQ(field_text(stored.pod_uid), "u-1");
    EXPECT_EQ(field_text(stored.network_name), "pods");
    EXPECT_EQ(stored.ifindex, made.ifindex);
    EXPECT_EQ(stored.netns_inode, made.container->ns().inode());
    EXPECT_EQ(stored.mode, ENDPOINT_MAIN);
    EXPECT_EQ(stored.allowed_source_count, 2);
    EXPECT_EQ(rates_of(made), (Rates{8000000, 4000000}));
    const Pod annotated =
        make({{"runtimeConfig",
               {{"io.kubernetes.cri.pod-annotations",
                 {{"kubernetes.io/ingress-bandwidth", "10M"}, {"kubernetes.io/egress-bandwidth", "5M"}}}}}});
    EXPECT_EQ(rates_of(annotated), (Rates{10000000, 5000000}));
    const auto sources = open(&open_allowed_sources);
    for (const char *prefix : {"192.0.2.0/24", "2001:db8:77::/64"})
        EXPECT_TRUE(require(sources.find(make_allowed_source_key(made.ifindex, require(parse_prefix(prefix))))))
            << prefix;
}

TEST_F(AddTest, AMapOfAnotherLayoutIsAnErrorAndTakesNoLease) {
    ASSERT_EQ(del(*make().container).rc, 0);
    const std::string path = pin_path(node_.bpffs(), PODLANE_MAP_BANDWIDTHS);
    ASSERT_EQ(std::remove(path.c_str()), 0);
    const Fd other(bpf_map_create(BPF_MAP_TYPE_HASH, "other", 4, 8, 1, nullptr));
    ASSERT_EQ(bpf_obj_pin(other.get(), path.c_str()), 0);
    const auto container = node_.container();
    const Reply reply = add(*container);
    EXPECT_EQ(reply.rc, 1);
    EXPECT_THAT(reply.message(), HasSubstr(path + " has keys of 4 and values of 8 bytes"));
    EXPECT_THAT(node_.leased(), testing::IsEmpty());
}

TEST_F(AddTest, LogsEachLineWithThePodsIdentity) {
    const Json log = {{"log", {{"file", node_.dir() + "/log"}, {"level", "info"}}}};
    const Pod made = make(log, {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"}});
    ASSERT_EQ(del(*made.container, log, {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"}}).rc,
              0);
    std::ifstream file(node_.dir() + "/log");
    std::size_t lines = 0;
    for (std::string line; std::getline(file, line); ++lines)
        for (const std::string &part : {std::string("pod=shop/web-0"), "container=" + made.container->id(),
                                        std::string("interface=eth0"), std::string("network=pods")})
            EXPECT_THAT(line, HasSubstr(part));
    EXPECT_GE(lines, 2U);
}

TEST_F(AddTest, LeavesTheIpamPluginOnlyTheCapabilitiesOfTheCall) {
    node_.put_plugin("curious-ipam", "#!/bin/sh\ngrep -E '^(CapPrm|NoNewPrivs)' /proc/$$/status >" + node_.dir() +
                                         "/status\nexec " + node_.plugins() + "/host-local\n");
    auto container = node_.container();
    ASSERT_THAT(add(*container, {{"ipam", {{"type", "curious-ipam"}}}}), succeeds());
    unsigned long long kept = 0;
    const std::string status = node_.run("cat " + node_.dir() + "/status");
    ASSERT_EQ(std::sscanf(status.c_str(), "CapPrm:\t%llx\nNoNewPrivs:\t1", &kept), 1) << status;
    // BPF, PERFMON, SYS_RESOURCE, SYS_ADMIN, SYS_PTRACE, NET_RAW, NET_ADMIN, DAC_OVERRIDE
    EXPECT_EQ(kept & ~0xc001283002ULL, 0U) << status;
    EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1\n"));
}

TEST_F(AddTest, LoadsNothingAfterTheFirst) {
    const Pod first = make();
    const auto before = programs(first.ifindex, Hook::ingress);
    const Pod second = make();
    const auto after = programs(second.ifindex, Hook::ingress);
    ASSERT_EQ(before.size(), 1U);
    ASSERT_EQ(after.size(), 1U);
    EXPECT_EQ(before[0].program_id, after[0].program_id);
}

// CNI spec, ADD: what is there stays as it is.
TEST_F(AddTest, ASecondAddOfTheSameAttachmentIsRefused) {
    const Pod made = make();
    const std::string before = node_.state();
    EXPECT_THAT(add(*made.container), fails_with(104, {made.container->id(), "eth0"}));
    EXPECT_EQ(node_.state(), before);
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.2"));
    EXPECT_EQ(check(made).rc, 0);
}

// As for a pod of the host's network: both ends are on the node, and all of it goes again.
TEST_F(AddTest, TakesItsOwnNamespaceWithAnOverrideOnly) {
    Variables own = attachment(*node_.container());
    own["CNI_NETNS"] = "/proc/self/ns/net";
    EXPECT_THAT(node_.cni("podlane", "ADD", node_.config(), own), fails_with(4, {"CNI_NETNS"}));
    EXPECT_TRUE(node_.leased().empty());
    for (const std::string value : {"1", "true"}) {
        SCOPED_TRACE(value);
        own["CNI_NETNS_OVERRIDE"] = value;
        const std::string before = node_.state();
        const Reply added = succeeded(node_.cni("podlane", "ADD", node_.config(), own));
        const Json links = ip_json(node_.ns(), "addr show");
        const Json pod = find(links, "ifname", "eth0");
        const Json host = find(links, "ifname", added.json["interfaces"][0]["name"]);
        ASSERT_FALSE(pod.is_null());
        ASSERT_FALSE(host.is_null());
        EXPECT_EQ(pod["link"], host["ifname"]);
        EXPECT_EQ(host["link"], pod["ifname"]);
        EXPECT_EQ(pod["addr_info"][0]["local"].get<std::string>() + "/32", added.json["ips"][0]["address"]);
        EXPECT_FALSE(programs(host["ifindex"], Hook::ingress).empty());
        EXPECT_TRUE(ping(outside_->ns(), "203.0.113.2")) << "the node's own traffic goes on";
        EXPECT_EQ(sysctl(node_.ns(), "net.ipv4.ip_forward"), "1") << "a pod's setting is not the node's";
        EXPECT_THAT(node_.cni("podlane", "CHECK", node_.config({{"prevResult", added.json}}), own), succeeds());
        EXPECT_THAT(node_.cni("podlane", "DEL", node_.config({{"prevResult", added.json}}), own), succeeds());
        EXPECT_EQ(node_.state(), before);
    }
}

} // namespace
} // namespace podlane::test
