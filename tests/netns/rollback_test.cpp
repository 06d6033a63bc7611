// SPDX-License-Identifier: MIT
// An ADD that fails says the step and leaves nothing: no link, route, neighbour, map entry or lease.
#include "tests/netns/rollback.hpp"

#include <numeric>

namespace podlane::test {
namespace {

using testing::AnyOf;

TEST_F(RollbackTest, AMissingNamespaceLeavesNothing) {
    auto container = node_.container();
    Variables variables = attachment(*container);
    variables["CNI_NETNS"] = node_.dir() + "/nothing";
    const std::string before = node_.state();
    EXPECT_THAT(node_.cni("podlane", "ADD", node_.config(), variables), fails_with(4, {node_.dir() + "/nothing"}));
    EXPECT_EQ(node_.state(), before);
}

TEST_F(RollbackTest, AMissingOrFailingIpamPluginLeavesNothing) {
    auto container = node_.container();
    const Reply missing = expect_refused(*container, {{"ipam", {{"type", "no-such-ipam"}}}});
    EXPECT_THAT(missing.message(), HasSubstr("no-such-ipam"));
    Json full = {
        {"ipam",
         {{"ranges", {{{{"subnet", "198.18.9.0/30"}, {"rangeStart", "198.18.9.2"}, {"rangeEnd", "198.18.9.2"}}}}}}}};
    const Pod last = make(full);
    const Reply none_left = expect_refused(*container, full);
    EXPECT_THAT(none_left.message(), has_all({"host-local", "no IP addresses available"}));
    EXPECT_EQ(check(last, full).rc, 0);
}

// Full, closed, or a pipe that nobody reads: the error is on standard error.
TEST_F(RollbackTest, AResultThatCannotBeWrittenLeavesNothing) {
    prepare();
    const auto expect_error = [&](const std::string &target, const Container &container, const Json &config) {
        Variables variables = attachment(container);
        variables.merge(Variables{{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
        EXPECT_THAT(run(node_.ns(),
                        {"bash", "-c", "exec 3> >(:); wait $!; exec " + node_.plugins() + "/podlane >" + target},
                        config.dump(), variables),
                    complains(1, {"\"code\": 5", "writing the result to standard output"}));
    };
    for (const std::string target : {"/dev/full", "&-", "&3"}) {
        const auto container = node_.container();
        const std::string before = node_.state();
        expect_error(target, *container, node_.config());
        EXPECT_EQ(node_.state(), before);
        EXPECT_TRUE(pod_link(*container).is_null());

        node_.run("ip link add other type veth peer name eth0 netns " + container->path());
        expect_error(target, *container,
                     behind({{"cniVersion", "1.0.0"},
                             {"interfaces", {{{"name", "eth0"}, {"sandbox", container->path()}}}},
                             {"ips", {{{"address", "198.18.9.5/24"}, {"interface", 0}}}}}));
        EXPECT_EQ(size_of(&open_endpoints), 0U);
        EXPECT_TRUE(node_.records().empty());
        container->run("ip link del eth0");
    }
}

TEST_F(RollbackTest, BadIpamResultsAreNamedAndTheLeaseReleased) {
    auto container = node_.container();
    prepare();
    for (const std::string result :
         {R"(no json)", R"({"cniVersion":"1.0.0"})", R"({"cniVersion":"1.0.0","ips":[{"address":"198.18.9.999/24"}]})",
          R"({"cniVersion":"1.0.0","ips":[{"address":"169.254.1.1/32"}]})",
          R"({"cniVersion":"1.0.0","ips":[{"address":"198.18.9.5/24"}],"routes":[{"dst":"nowhere"}]})"}) {
        put_ipam(result);
        const Reply reply = expect_refused(*container, with_fake_ipam());
        EXPECT_THAT(reply.json.is_object(), true) << reply;
        EXPECT_NE(reply.message(), "") << result;
        EXPECT_EQ(asked(), "DEL\n") << result;
        run(node_.ns(), {"rm", node_.dir() + "/asked"});
    }
}

TEST_F(RollbackTest, InterfacesAndRoutesThatExistAreRefused) {
    prepare();
    auto container = node_.container();
    container->run("ip link add eth0 type veth peer name eth1");
    EXPECT_THAT(expect_refused(*container), fails_with(104, {"eth0"}));

    const Pod made = make();
    ASSERT_EQ(del(*made.container).rc, 0);
    node_.run("ip link add " + made.host_ifname + " type bridge");
    EXPECT_THAT(expect_refused(*made.container), fails_with(104, {made.host_ifname}));
    node_.run("ip link del " + made.host_ifname);

    for (const char *route : {"198.18.9.77/32", "198.18.9.78/32"})
        node_.run(std::string("ip route add ") + route + " dev up0");
    const Json wanted = {{"runtimeConfig", {{"ips", {"198.18.9.77/24"}}}}, {"capabilities", {{"ips", true}}}};
    EXPECT_THAT(expect_refused(*node_.container(), wanted), fails_with(104, {"route to 198.18.9.77"}));
}

TEST_F(RollbackTest, AnAddressOfALivingEndpointIsRefused) {
    const Pod made = make();
    node_.run("ip route del " + made.text4() + " dev " + made.host_ifname); // or the route would be the obstacle
    put_ipam(R"({"cniVersion":"1.0.0","ips":[{"address":")" + made.text4() + R"(/24"}]})");
    EXPECT_THAT(expect_refused(*node_.container(), with_fake_ipam()),
                fails_with(104, {made.text4(), made.container->id()}));
    EXPECT_EQ(asked(), "DEL\n");
}

TEST_F(RollbackTest, AFullMapIsNamed) {
    const Json one = {{"maxEndpoints", 1}};
    const Pod made = make(one);
    EXPECT_THAT(expect_refused(*node_.container(), one), fails_with(102, {"endpoints_v1"}));
    EXPECT_EQ(check(made).rc, 0);
    EXPECT_EQ(node_.leased().size(), 2U) << "one of each family";
}

// An ADD that inserts an entry into each map that can be full: arrays and the ring buffer have no entries of anybody's,
// and paths_v1 forgets the oldest.
class FullMapTest : public RollbackTest {
  protected:
    explicit FullMapTest(Json keys = of_uplink()) : keys_(std::move(keys)) { prepare(keys_); }

    // Pod full of entries that are nobody's, and emptied of them again.
    template <typename Number>
    void expect_named(const std::string &name, const std::function<bool(Number)> &put,
                      const std::function<Result<bool>(Number)> &erase, const std::vector<Number> &numbers) {
        SCOPED_TRACE(name);
        std::size_t filled = 0;
        while (filled < numbers.size() && put(numbers[filled]))
            ++filled;
        ASSERT_LT(filled, numbers.size()) << "not full";
        auto container = node_.container();
        const Reply reply = expect_refused(*container, keys_);
        EXPECT_THAT(reply, fails_with(102, {"map " + pin_path(node_.bpffs(), name) + " is full"}));
        EXPECT_THAT(reply.out, HasSubstr(has_own_size(name) ? "its size is fixed" : "maxEndpoints"));
        EXPECT_TRUE(programs(uplink_, Hook::ingress).empty());
        EXPECT_TRUE(programs(uplink_, Hook::egress).empty());
        while (filled-- > 0)
            EXPECT_TRUE(require(erase(numbers[filled])));
    }
    template <typename Table, typename KeyOf, typename Value>
    void expect_named(const std::string &name, Result<Table> opened, KeyOf key_of, const Value &value,
                      const std::vector<std::uint32_t> &numbers = many()) {
        const Table table = require(std::move(opened));
        expect_named<std::uint32_t>(
            name, [&](std::uint32_t n) { return bool(table.update(key_of(n), value)); },
            [&](std::uint32_t n) { return table.remove(key_of(n)); }, numbers);
    }
    // The maps that each limit needs, a pod's or a group's.
    void expect_limits_named() {
        const std::string root = node_.bpffs();
        expect_named(
            PODLANE_MAP_BANDWIDTHS, open_bandwidths(root, Access::read_write), [](std::uint32_t n) { return n; },
            bandwidth{});
        expect_named(
            PODLANE_MAP_LIMITS, open_limit_states(root, Access::read_write),
            [](std::uint32_t n) {
                return limit_key{n, LIMIT_INGRESS};
            },
            limit_state{});
    }
    static bool has_own_size(const std::string &name) {
        return name == PODLANE_MAP_NETWORKS || name == PODLANE_MAP_UPLINKS || name == PODLANE_MAP_CIDRS ||
               name == PODLANE_MAP_LIMIT_GROUPS;
    }
    static std::vector<std::uint32_t> many() {
        std::vector<std::uint32_t> all(20000);
        std::iota(all.begin(), all.end(), 10000);
        return all;
    }

    static Json of_uplink() {
        return {{"maxEndpoints", 2},
                {"uplink", "up0"},
                {"clusterCIDRs", {"198.18.0.0/16"}},
                {"allowedSources", {"198.51.100.7"}},
                {"unshapedSubnets", {"198.18.0.0/16"}},
                {"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}}}};
    }

    const Json keys_;
    const std::uint32_t uplink_ = uplink_ifindex();
};

TEST_F(FullMapTest, EveryOneIsNamed) {
    const auto root = node_.bpffs();
    constexpr Access kWrite = Access::read_write;
    const auto number = [](std::uint32_t n) { return n; };
    const Prefix foreign = require(parse_prefix("192.0.2.1"));
    expect_named(PODLANE_MAP_INTERFACES, open_interfaces(root, kWrite), number, interface{});
    expect_named(PODLANE_MAP_KEPT_PATHS, open_kept_paths(root, kWrite), number, kept_paths{});
    expect_limits_named();
    expect_named(PODLANE_MAP_NETWORKS, open_networks(root, kWrite), number, network{});
    expect_named(
        PODLANE_MAP_ADDRESSES, open_addresses(root, kWrite),
        [](std::uint32_t n) {
            return address_key{n, {}};
        },
        address{});
    expect_named(
        PODLANE_MAP_SOURCES, open_allowed_sources(root, kWrite),
        [&](std::uint32_t n) { return make_allowed_source_key(n, foreign); }, 1U);
    expect_named(
        PODLANE_MAP_CIDRS, open_cluster_cidrs(root, kWrite),
        [&](std::uint32_t n) { return make_cluster_cidr_key(n, foreign); }, 1U);
    expect_named(
        PODLANE_MAP_SOURCE_ROUTES, open_source_routes(root, kWrite),
        [&](std::uint32_t n) {
            return source_route_key{n, foreign.addr};
        },
        source_route{});
    expect_named(
        PODLANE_MAP_EXEMPT, open_exempts(root, kWrite),
        [&](std::uint32_t n) { return make_exempt_key(n, LIMIT_INGRESS, foreign); }, 0U);
    expect_named(
        PODLANE_MAP_SENDERS, open_senders(root, kWrite),
        [](std::uint32_t n) {
            return sender_key{n, {}};
        },
        0U);
    const auto counters = require(open_counters(root, kWrite));
    expect_named<std::uint32_t>(
        PODLANE_MAP_COUNTERS, [&](std::uint32_t n) { return bool(counters.update(n, counter_shares{})); },
        [&](std::uint32_t n) { return counters.remove(n); }, many());
    EXPECT_EQ(add(*node_.container(), keys_).rc, 0) << "the room that was there is there again";
}

// Of pods with groups. The state of the network's limit group goes with it.
class FullGroupMapTest : public FullMapTest {
  protected:
    FullGroupMapTest()
        : FullMapTest({{"maxEndpoints", 2},
                       {"groups", {"name:tenant-a"}},
                       {"isolation", "group"},
                       {"groupCIDRs", {{"name:tenant-a", prefixes()}}},
                       {"limitGroup", "tenant-a"},
                       {"limitGroups", {{"tenant-a", {{"ingressRate", 80000000}}}}},
                       {"ingressRate", 8000000},
                       {"ingressBurst", 64000000}}) {}
    // As many as there may be.
    static Json prefixes() {
        Json all;
        for (int i = 0; i < 64; ++i)
            all.push_back("198.18." + std::to_string(64 + i) + ".0/24");
        return all;
    }
};

TEST_F(FullGroupMapTest, EveryOneIsNamed) {
    const auto root = node_.bpffs();
    constexpr Access kWrite = Access::read_write;
    const Prefix other = require(parse_prefix("192.0.2.1"));
    const auto number = [](std::uint32_t n) { return n; };
    expect_named(PODLANE_MAP_LIMIT_GROUPS, open_limit_groups(root, kWrite), number, limit_group{});
    expect_limits_named();
    expect_named(PODLANE_MAP_ISOLATION, open_isolations(root, kWrite), number, isolation{});
    expect_named(
        PODLANE_MAP_GROUP_CIDRS, open_group_cidrs(root, kWrite),
        [&](std::uint32_t n) { return make_allowed_source_key(n, other); }, 1U);
    EXPECT_EQ(size_of(&open_limit_groups), 0U);
    EXPECT_EQ(size_of(&open_group_cidrs), 0U);
    (void)make(keys_);
    Json second = keys_; // a limit group counts as an endpoint
    second["name"] = "second";
    for (const char *key : {"limitGroup", "limitGroups", "ingressRate", "ingressBurst"})
        second.erase(key);
    second["ipam"] = {{"ranges", {{{{"subnet", "198.18.10.0/24"}}}}}};
    (void)make(second);
    EXPECT_EQ(size_of(&open_group_cidrs), 128U) << "as many endpoints as there may be, with as many prefixes";
}

// Interfaces that are not there lose their entries before an ADD needs room.
TEST_F(FullMapTest, TheUplinksMapIsNamed) {
    std::string batch;
    constexpr int kPairs = 150;
    for (int i = 0; i < kPairs; ++i)
        batch += "link add a" + std::to_string(i) + " type veth peer name b" + std::to_string(i) + "\n";
    node_.run("ip -batch -", batch);
    std::vector<std::uint32_t> there;
    for (const Json &link : ip_json(node_.ns(), "link"))
        if (link.at("ifindex") != uplink_)
            there.push_back(link.at("ifindex"));
    uplink of_another{}; // an entry without networks is a leftover
    of_another.networks[0] = 1;
    expect_named(
        PODLANE_MAP_UPLINKS, open_uplinks(node_.bpffs(), Access::read_write), [](std::uint32_t n) { return n; },
        of_another, there);
    EXPECT_EQ(add(*node_.container(), keys_).rc, 0);
}

// The first ADD of a node: the network's own entry goes as well.
TEST_F(RollbackTest, TheNetworksEntryGoesWithItsFirstEndpoint) {
    prepare();
    put_ipam(R"({"cniVersion":"1.0.0","ips":[{"address":"198.18.9.77/24"}]})");
    node_.run("ip route add 198.18.9.77/32 dev up0");
    Json keys = with_fake_ipam();
    keys["name"] = "another";
    (void)expect_refused(*node_.container(), keys);
}

// Attaching fails when the pinned program is something else.
TEST_F(RollbackTest, AFailedAttachmentLeavesNothing) {
    prepare();
    const std::string live = node_.bpffs() + "/live/";
    for (const std::string program : {"pl_from_pod", "pl_to_pod"}) {
        run(node_.ns(), {"mv", live + program, node_.bpffs() + "/aside"});
        run(node_.ns(), {"bpftool", "map", "create", live + program, "type", "array", "key", "4", "value", "4",
                         "entries", "1", "name", "wrong"});
        const std::string before = node_.state();
        auto container = node_.container();
        const Reply reply = add(*container);
        EXPECT_EQ(reply.rc, 1);
        EXPECT_THAT(reply.message(), HasSubstr(program));
        EXPECT_EQ(node_.state(), before);
        run(node_.ns(), {"rm", live + program});
        run(node_.ns(), {"mv", node_.bpffs() + "/aside", live + program});
    }
    EXPECT_EQ(add(*node_.container()).rc, 0);
}

// Inside the pod the kernel refuses a next hop that is the pod itself; by then there are the link, the entries and the
// programs.
TEST_F(RollbackTest, ARouteInThePodIsRefused) {
    prepare();
    for (const auto &[destination, next_hop] :
         {std::pair{"198.51.100.0/24", "198.18.9.77"}, std::pair{"2001:db8:bad::/64", "2001:db8:9::77"}}) {
        put_ipam(R"({"cniVersion":"1.0.0","ips":[{"address":"198.18.9.77/24"},{"address":"2001:db8:9::77/64"}],)"
                 R"("routes":[{"dst":"192.0.2.0/24"},{"dst":")" +
                 std::string(destination) + R"(","gw":")" + next_hop + R"("}]})");
        Json keys = with_fake_ipam();
        keys["allowedSources"] = {"198.51.100.7"};
        keys["runtimeConfig"] = {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}};
        EXPECT_THAT(expect_refused(*node_.container(), keys),
                    fails_with(100, {std::string("adding route ") + destination + " via " + next_hop}));
        EXPECT_EQ(asked(), "DEL\n");
        run(node_.ns(), {"rm", node_.dir() + "/asked"});
    }
}

// A rollback step that fails is reported too, and does not hide why the ADD failed.
TEST_F(RollbackTest, AFailedRollbackStepIsAppended) {
    prepare();
    node_.put_plugin("fake-ipam",
                     "#!/bin/sh\n[ \"$CNI_COMMAND\" = ADD ] && echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{"
                     "\"address\":\"198.18.9.77/24\"}]}' && exit 0\necho '{\"cniVersion\":\"1.0.0\",\"code\":100,"
                     "\"msg\":\"the disk sleeps\"}'; exit 1\n");
    node_.run("ip route add 198.18.9.77/32 dev up0");
    auto container = node_.container();
    EXPECT_THAT(add(*container, with_fake_ipam()),
                fails_with(104, {"route to 198.18.9.77", "releasing the lease", "the disk sleeps"}));
    EXPECT_EQ(node_.records().size(), 1U) << "it says what is left";
    put_ipam("");
    EXPECT_EQ(del(*container, with_fake_ipam()).rc, 0);
    EXPECT_TRUE(node_.records().empty());
}

// Chained after a main plugin: its interface, lease and qdiscs stay as they were.
TEST_F(RollbackTest, AfterAMainPluginItsInterfaceStays) {
    Chain ptp(node_, {{{"type", "ptp"}, {"ipam", node_.ipam()}}});
    auto container = node_.container();
    const Reply made = succeeded(ptp.add(*container));
    const Json one = {
        {"maxEndpoints", 1}, {"name", "other"}, {"ipam", {{"ranges", {{{{"subnet", "198.18.12.0/24"}}}}}}}};
    const Pod full = make(one);
    // The kernel gives ptp's host-side veth its link-local address when it hears of the carrier.
    const std::string link_local =
        "ip -6 route show table local type local dev " + made.json["interfaces"][0]["name"].get<std::string>();
    ASSERT_TRUE(wait_until([&] { return node_.run(link_local).find("fe80") != std::string::npos; }));
    const std::string before = node_.state();
    EXPECT_THAT(node_.cni("ADD", behind(made.json), *container), fails_with(102));
    EXPECT_EQ(node_.state(), before);
    EXPECT_EQ(ptp.del(*container).rc, 0);
}

// As after a DEL: the pod sends nothing that no program checks.
TEST_F(RollbackTest, AfterAMainPluginNoInterfaceStaysUpWithoutItsPrograms) {
    Chain ptp(node_, {{{"type", "ptp"}, {"ipam", node_.ipam()}}});
    auto container = node_.container();
    const Reply made = succeeded(ptp.add(*container));
    const std::string veth = made.json["interfaces"][0]["name"];
    Json config = behind(made.json);
    config["ipMasq"] = true;
    EXPECT_THAT(node_.cni("ADD", config, *container, {{"PATH", failing_nft("exit 1")}}), fails_with(5, {"nft"}));
    const auto link = [&] { return find(ip_json(node_.ns(), "link"), "ifname", veth); };
    const auto becomes = [&](const char *state) { // a moment later
        return wait_until([&] { return link().at("operstate") == state; });
    };
    EXPECT_TRUE(programs(link().at("ifindex"), Hook::ingress).empty());
    EXPECT_TRUE(becomes("DOWN"));
    // The next attempt sets it up again.
    EXPECT_EQ(node_.cni("ADD", config, *container).rc, 0);
    EXPECT_TRUE(becomes("UP"));
    EXPECT_EQ(node_.cni("DEL", config, *container).rc, 0);
    EXPECT_EQ(ptp.del(*container).rc, 0);
}

} // namespace
} // namespace podlane::test
