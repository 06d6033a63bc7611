// SPDX-License-Identifier: MIT
// Addresses that an ADD refuses: those that the node has or reaches others by, and those that no machine has. The lease
// is released, and nothing else has changed.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The way out that an error shows.
std::string details(const Reply &reply) { return reply.json.value("details", ""); }

class RefusedLeaseTest : public VerbsTest {
  protected:
    // Of an IPAM plugin that prints this, and notes its calls.
    [[nodiscard]] Json printed(const std::string &result) const {
        node_.put_plugin("printing-ipam", "#!/bin/sh\ncat >/dev/null\necho $CNI_COMMAND >>" + node_.dir() +
                                              "/calls\n[ $CNI_COMMAND != ADD ] || echo '" + result + "'\n");
        return {{"ipam", {{"type", "printing-ipam"}}}};
    }
    [[nodiscard]] Json leasing(const std::string &address) const {
        return printed(R"({"cniVersion": "1.0.0", "ips": [{"address": ")" + address + "\"}]}");
    }
    [[nodiscard]] static Json given_before(const std::string &address) {
        return {{"ipam", nullptr}, {"prevResult", {{"cniVersion", "1.0.0"}, {"ips", {{{"address", address}}}}}}};
    }
    // By both ways in which Podlane gets a lease.
    void expect_refused(const std::string &address, int code, const Parts &parts) {
        SCOPED_TRACE(address);
        const std::string before = node_.state();
        fs::remove(node_.dir() + "/calls");
        EXPECT_THAT(add(*node_.container(), leasing(address)), fails_with(code, parts));
        EXPECT_EQ(node_.run("cat " + node_.dir() + "/calls"), "ADD\nDEL\n") << "the lease is released";
        EXPECT_THAT(add(*node_.container(), given_before(address)), fails_with(code, parts));
        EXPECT_EQ(node_.state(), before);
    }
    void expect_accepted(const std::string &address) {
        SCOPED_TRACE(address);
        for (const Json &keys : {leasing(address), given_before(address)}) {
            const auto container = node_.container();
            EXPECT_THAT(add(*container, keys), succeeds());
            EXPECT_THAT(del(*container, keys), succeeds());
        }
    }
};

TEST_F(RefusedLeaseTest, AddressesOfTheNodeStayTheNodes) {
    node_.run("ip link add vip0 type bridge");
    node_.run("ip addr add 198.18.200.1/32 dev vip0");
    node_.run("ip link set vip0 up");
    node_.run("ip route add local 198.51.100.0/24 dev vip0");
    expect_refused("203.0.113.2/24", 104, {"203.0.113.2", "node's own", "up0"});
    expect_refused("2001:db8:cafe::2/64", 104, {"2001:db8:cafe::2", "node's own"});
    expect_refused("198.18.200.1/32", 104, {"198.18.200.1", "node's own", "vip0"});
    expect_refused("198.51.100.7/32", 104, {"198.51.100.7", "local 198.51.100.0/24", "vip0"});
    expect_refused("203.0.113.255/32", 104, {"203.0.113.255", "broadcast", "up0"});
    expect_refused("2001:db8:cafe::/128", 104, {"2001:db8:cafe::", "anycast"});
    EXPECT_TRUE(ping(outside_->ns(), "203.0.113.2"));
}

TEST_F(RefusedLeaseTest, TheRangeOfHostLocalIsNamed) {
    const Json range = {{"subnet", "203.0.113.0/24"},
                        {"rangeStart", "203.0.113.1"},
                        {"rangeEnd", "203.0.113.3"},
                        {"gateway", "203.0.113.254"}};
    const Json keys = {
        {"ipam",
         {{"type", "host-local"}, {"dataDir", node_.leases()}, {"ranges", Json::array({Json::array({range})})}}}};
    for (const std::string taken : {"203.0.113.1", "203.0.113.2"}) {
        const Reply reply = add(*node_.container(), keys);
        EXPECT_THAT(reply, fails_with(104, {taken}));
        EXPECT_THAT(details(reply), HasSubstr("rangeStart"));
    }
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_THAT(make(keys).text4(), "203.0.113.3") << "host-local goes on to the next one";
}

TEST_F(RefusedLeaseTest, NextHopsOfTheNodeAreReachedOnTheirLinks) {
    node_.run("ip route add 198.51.100.0/24 via 203.0.113.77");
    node_.run("ip route add 198.51.101.0/24 nexthop via 203.0.113.78 nexthop via 203.0.113.79");
    node_.run("ip route add 192.0.2.9 dev up0 metric 100"); // of a cloud: the gateway is in no subnet
    node_.run("ip route add 198.51.102.0/24 via 192.0.2.9");
    expect_refused("203.0.113.1/24", 104, {"203.0.113.1", "next hop", "0.0.0.0/0", "up0"});
    expect_refused("2001:db8:cafe::1/64", 104, {"2001:db8:cafe::1", "next hop", "::/0", "up0"});
    expect_refused("203.0.113.77/32", 104, {"203.0.113.77", "198.51.100.0/24"});
    expect_refused("203.0.113.79/32", 104, {"203.0.113.79", "198.51.101.0/24"});
    expect_refused("192.0.2.9/32", 104, {"192.0.2.9", "198.51.102.0/24"});
    expect_accepted("203.0.113.80/24");
    node_.run("ip route del default");
    node_.run("ip route add default via 192.0.2.1 dev up0 onlink");
    expect_refused("192.0.2.1/32", 104, {"192.0.2.1", "next hop", "0.0.0.0/0"});
    node_.run("ip route del default");
    expect_accepted("192.0.2.1/32");
}

TEST_F(RefusedLeaseTest, AGatewayOfTheNetworkIsNoPods) {
    Json keys = given_before("192.0.2.33/32");
    keys.update(Json{{"uplink", "up0"}, {"gateway", "192.0.2.33"}});
    EXPECT_THAT(add(*node_.container(), keys), fails_with(104, {"192.0.2.33", "\"gateway\""}));
}

// A pod through which the node reaches others is recreated with its address.
TEST_F(RefusedLeaseTest, APodMayBeTheNodesNextHop) {
    const Json keys = leasing("198.18.9.40/32");
    for (int i = 0; i < 2; ++i) {
        const Pod router = make(keys);
        node_.run("ip route add 198.51.100.0/24 via 198.18.9.40");
        EXPECT_THAT(check(router, keys), succeeds());
        EXPECT_THAT(del(*router.container, keys), succeeds());
    }
}

TEST_F(RefusedLeaseTest, NetworkAndBroadcastAddressesAreOfAllHosts) {
    expect_refused("198.18.9.0/24", 103, {"198.18.9.0/24", "network address"});
    expect_refused("198.18.9.255/24", 103, {"198.18.9.255/24", "broadcast address"});
    expect_refused("198.18.9.7/30", 103, {"198.18.9.7/30", "broadcast address"});
    for (const char *usable :
         {"198.18.9.0/32", "198.18.9.0/31", "198.18.9.255/31", "198.18.9.255/16", "240.9.0.7/24", "2001:db8:9::/64"})
        expect_accepted(usable);
}

TEST_F(RefusedLeaseTest, APodHasAUnicastAddressBeyondItsLink) {
    for (const char *bad : {"0.0.0.0/0", "0.1.2.3/24", "127.0.0.1/8", "224.0.0.5/24", "239.1.2.3/32",
                            "255.255.255.255/32", "::/128", "::1/128", "ff02::1/128"})
        expect_refused(bad, 103, {bad, "no unicast address"});
    for (const char *bad : {"169.254.1.1/32", "fe80::7/64"})
        expect_refused(bad, 103, {bad, "link-local"});
}

TEST_F(RefusedLeaseTest, AnIpv4AddressInTheFormOfIpv6IsNamed) {
    const std::string before = node_.state();
    const auto refuses = [&](const Json &keys, int code, const std::string &key) {
        const Reply reply = add(*node_.container(), keys);
        EXPECT_THAT(reply, fails_with(code, {key + "ips[0].address", "::ffff:10.1.2.3/24"}));
        EXPECT_THAT(details(reply), HasSubstr("write the IPv4 address, 10.1.2.3"));
    };
    refuses(leasing("::ffff:10.1.2.3/24"), 6, "printing-ipam\": ");
    EXPECT_EQ(node_.run("cat " + node_.dir() + "/calls"), "ADD\nDEL\n") << "the lease is released";
    refuses(given_before("::ffff:10.1.2.3/24"), 7, "prevResult.");
    EXPECT_EQ(node_.state(), before);
}

TEST_F(RefusedLeaseTest, WithoutAnAddressThePluginIsNamed) {
    for (const std::string nothing : {"{}", R"({"ips": null})", R"({"cniVersion": "1.0.0", "ips": []})"}) {
        const Reply reply = add(*node_.container(), printed(nothing));
        EXPECT_THAT(reply, fails_with(103, {"printing-ipam", "gave no address"})) << nothing;
        EXPECT_THAT(details(reply), Not(HasSubstr("add")));
    }
    EXPECT_THAT(add(*node_.container(), {{"ipam", nullptr}, {"prevResult", {{"cniVersion", "1.0.0"}}}}),
                fails_with(7, {"prevResult.ips"}));
}

// Its exit code says that all is well.
TEST_F(RefusedLeaseTest, AnErrorInThePlaceOfALeaseIsPassedOn) {
    fs::remove(node_.dir() + "/calls");
    const Reply reply = add(*node_.container(), printed(R"({"code": 11, "msg": "later", "details": "no room yet"})"));
    EXPECT_THAT(reply, fails_with(11, {"printing-ipam", "later (code 11)"}));
    EXPECT_THAT(details(reply), HasSubstr("no room yet"));
    EXPECT_EQ(node_.run("cat " + node_.dir() + "/calls"), "ADD\nDEL\n") << "whatever it has given is released";
    EXPECT_THAT(add(*node_.container(), printed(R"({"code": 999, "msg": "out of order"})")),
                fails_with(103, {"printing-ipam", "out of order (code 999)"}));
}

TEST_F(RefusedLeaseTest, AGatewayIsAMachineBeyondTheNode) {
    const auto by = [&](const std::string &gateway) {
        return add(*node_.container(), {{"uplink", "up0"}, {"gateway", gateway}});
    };
    EXPECT_THAT(by("203.0.113.2"), fails_with(7, {"gateway", "203.0.113.2", "node's own"}));
    EXPECT_THAT(by("203.0.113.255"), fails_with(7, {"gateway", "203.0.113.255", "broadcast"}));
    for (const char *bad : {"0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::1", "ff02::1"})
        EXPECT_THAT(by(bad), fails_with(7, {"gateway", bad, "unicast"}));
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_THAT(by("203.0.113.1"), succeeds());
}

TEST_F(RefusedLeaseTest, ARouteIsByAUnicastGateway) {
    const Json dst = {{"dst", "198.51.100.0/24"}};
    const auto with = [&](Json route) {
        route.update(dst);
        return add(*node_.container(), {{"routes", {route}}});
    };
    const Reply misnamed = with({{"gateway", "198.18.9.1"}});
    EXPECT_THAT(misnamed, fails_with(7, {"gateway", "routes[0]"}));
    EXPECT_THAT(details(misnamed), HasSubstr("\"gw\""));
    EXPECT_THAT(with({{"gw", "198.18.9.1"}, {"dest", "x"}}), fails_with(7, {"dest", "routes[0]"}));
    for (const char *bad : {"0.0.0.0", "224.0.0.1"}) {
        EXPECT_THAT(with({{"gw", bad}}), fails_with(7, {"routes[0].gw", bad}));
        EXPECT_THAT(add(*node_.container(),
                        printed(R"({"cniVersion": "1.0.0", "ips": [{"address": "198.18.9.7/24"}], "routes": )"
                                R"([{"dst": "198.51.100.0/24", "gw": ")" +
                                std::string(bad) + R"(", "note": 1}]})")),
                    fails_with(103, {"198.51.100.0/24", bad}));
    }
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_THAT(with({{"Gw", "198.18.9.1"}, {"scope", 253}}), succeeds());
}

TEST_F(RefusedLeaseTest, ValuesOfTheKernelAreNamedByTheirKeys) {
    for (const char *name : {"all", "default"}) {
        const Reply reply = add(*node_.container(), Json::object(), {{"CNI_IFNAME", name}});
        EXPECT_THAT(reply, fails_with(4, {"CNI_IFNAME", name}));
        EXPECT_THAT(details(reply), HasSubstr("net.ipv4.conf"));
    }
    for (const char *value : {"banana", ""})
        EXPECT_THAT(add(*node_.container(), {{"sysctls", {{"net.core.somaxconn", value}}}}),
                    fails_with(7, {"sysctls", "somaxconn", value}));
    EXPECT_THAT(add(*node_.container(), {{"sysctls", {{"net.ipv4.tcp_congestion_control", "banana"}}}}),
                fails_with(7, {"sysctls", "tcp_congestion_control", "banana"}));
    EXPECT_THAT(node_.leased(), IsEmpty());
}

} // namespace
} // namespace podlane::test
