// An ADD that fails says the step and leaves nothing: no link, route, neighbour, map entry or lease.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class RollbackTest : public VerbsTest {
  protected:
    // The node is prepared, and the network known, by an ADD and DEL that went well.
    void prepare(const Json &keys = Json::object()) {
        auto container = node_.container();
        const Reply reply = add(*container, keys);
        ASSERT_EQ(reply.rc, 0) << reply;
        ASSERT_EQ(del(*container, keys).rc, 0);
    }
    Reply expect_refused(const Container &container, const Json &keys = Json::object()) {
        container.run("ip link set lo up"); // as any ADD leaves it
        const std::string before = node_.state();
        const std::string pod_before =
            container.run("ip -o link") + container.run("ip route") + container.run("ip neigh");
        const Reply reply = add(container, keys);
        EXPECT_EQ(reply.rc, 1) << reply;
        EXPECT_EQ(node_.state(), before);
        EXPECT_EQ(container.run("ip -o link") + container.run("ip route") + container.run("ip neigh"), pod_before);
        return reply;
    }
    // An IPAM plugin that says `result` at ADD, and writes a file for each DEL.
    void put_ipam(const std::string &result) const {
        node_.put_plugin("fake-ipam", "#!/bin/sh\n"
                                      "[ \"$CNI_COMMAND\" = ADD ] && echo '" +
                                          result + "' && exit 0\n" + "echo \"$CNI_COMMAND\" >>" + node_.dir() +
                                          "/asked\n");
    }
    [[nodiscard]] std::string asked() const { return run(node_.ns(), {"cat", node_.dir() + "/asked"}).out; }
    [[nodiscard]] Json with_fake_ipam() const {
        return {{"ipam", {{"type", "fake-ipam"}, {"dataDir", nullptr}, {"ranges", nullptr}}}};
    }
};

TEST_F(RollbackTest, NamespaceMissing) {
    auto container = node_.container();
    Variables variables = attachment(*container);
    variables["CNI_NETNS"] = node_.dir() + "/nothing";
    const std::string before = node_.state();
    const Reply reply = node_.cni("podlane", "ADD", node_.config(), variables);
    EXPECT_EQ(reply.code(), 4) << reply;
    EXPECT_THAT(reply.message(), HasSubstr(node_.dir() + "/nothing"));
    EXPECT_EQ(node_.state(), before);
}

TEST_F(RollbackTest, IpamPluginMissingOrFailing) {
    auto container = node_.container();
    const Reply missing = expect_refused(*container, {{"ipam", {{"type", "no-such-ipam"}}}});
    EXPECT_THAT(missing.message(), HasSubstr("no-such-ipam"));
    Json full = {
        {"ipam",
         {{"ranges", {{{{"subnet", "198.18.9.0/30"}, {"rangeStart", "198.18.9.2"}, {"rangeEnd", "198.18.9.2"}}}}}}}};
    const Made last = make(full);
    const Reply none_left = expect_refused(*container, full);
    EXPECT_THAT(none_left.message(), HasSubstr("host-local"));
    EXPECT_THAT(none_left.message(), HasSubstr("no IP addresses available"));
    EXPECT_EQ(check(last, full).rc, 0);
}

TEST_F(RollbackTest, BadIpamResultsAreNamedAndTheLeaseGivenBack) {
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

TEST_F(RollbackTest, PodInterfaceExists) {
    prepare();
    auto container = node_.container();
    container->run("ip link add eth0 type veth peer name eth1");
    const Reply reply = expect_refused(*container);
    EXPECT_EQ(reply.code(), 104) << reply;
    EXPECT_THAT(reply.message(), HasSubstr("eth0"));
}

TEST_F(RollbackTest, HostInterfaceNameTaken) {
    prepare();
    const Made made = make();
    ASSERT_EQ(del(*made.container).rc, 0);
    node_.run("ip link add " + made.host_ifname + " type bridge");
    const Reply reply = expect_refused(*made.container);
    EXPECT_EQ(reply.code(), 104) << reply;
    EXPECT_THAT(reply.message(), HasSubstr(made.host_ifname));
    node_.run("ip link del " + made.host_ifname);
}

TEST_F(RollbackTest, HostRouteExists) {
    prepare();
    for (const char *route : {"198.18.9.77/32", "198.18.9.78/32"})
        node_.run(std::string("ip route add ") + route + " dev up0");
    const Json wanted = {{"runtimeConfig", {{"ips", {"198.18.9.77/24"}}}}, {"capabilities", {{"ips", true}}}};
    const Reply reply = expect_refused(*node_.container(), wanted);
    EXPECT_EQ(reply.code(), 104) << reply;
    EXPECT_THAT(reply.message(), HasSubstr("route to 198.18.9.77"));
}

TEST_F(RollbackTest, AddressOfALivingEndpoint) {
    const Made made = make();
    node_.run("ip route del " + made.v4 + " dev " + made.host_ifname); // or the route would be the obstacle
    put_ipam(R"({"cniVersion":"1.0.0","ips":[{"address":")" + made.v4 + R"(/24"}]})");
    const Reply reply = expect_refused(*node_.container(), with_fake_ipam());
    EXPECT_EQ(reply.code(), 104) << reply;
    EXPECT_THAT(reply.message(), HasSubstr(made.v4));
    EXPECT_THAT(reply.message(), HasSubstr(made.container->id()));
    EXPECT_EQ(asked(), "DEL\n");
}

TEST_F(RollbackTest, AFullMapIsNamed) {
    const Json one = {{"maxEndpoints", 1}};
    const Made made = make(one);
    const Reply reply = expect_refused(*node_.container(), one);
    EXPECT_EQ(reply.code(), 102) << reply;
    EXPECT_THAT(reply.message(), HasSubstr("endpoints_v1"));
    EXPECT_EQ(check(made).rc, 0);
    EXPECT_EQ(node_.leased().size(), 2U) << "one of each family";
}

// Each map but the first to fill: the others are made full of entries that are nobody's.
TEST_F(RollbackTest, EveryFullMapIsNamed) {
    const Json two = {{"maxEndpoints", 2},
                      {"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}}}};
    prepare(two);
    const auto fill = [&](auto table, auto key_of, auto value, const std::string &name) {
        std::uint32_t filled = 0;
        while (table.put(key_of(10000 + filled), value))
            ++filled;
        auto container = node_.container();
        const Reply reply = expect_refused(*container, two);
        EXPECT_EQ(reply.code(), 102) << reply;
        EXPECT_THAT(reply.message(), HasSubstr(name));
        while (filled-- > 0)
            (void)require(table.erase(key_of(10000 + filled)));
    };
    const auto number = [](std::uint32_t n) { return n; };
    const auto root = node_.bpffs();
    fill(require(open_interfaces(root, Access::read_write)), number, interface{}, "interfaces_v1");
    fill(require(open_bandwidths(root, Access::read_write)), number, bandwidth{}, "bandwidths_v1");
    fill(
        require(open_addresses(root, Access::read_write)),
        [](std::uint32_t n) {
            return address_key{n, {}};
        },
        address{}, "addresses_v1");
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
TEST_F(RollbackTest, AttachingFails) {
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

// An undo that fails is told too, and does not hide why the ADD failed.
TEST_F(RollbackTest, AFailedUndoIsAppended) {
    prepare();
    node_.put_plugin("fake-ipam",
                     "#!/bin/sh\n[ \"$CNI_COMMAND\" = ADD ] && echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{"
                     "\"address\":\"198.18.9.77/24\"}]}' && exit 0\necho '{\"cniVersion\":\"1.0.0\",\"code\":100,"
                     "\"msg\":\"the disk sleeps\"}'; exit 1\n");
    node_.run("ip route add 198.18.9.77/32 dev up0");
    const Reply reply = expect_refused(*node_.container(), with_fake_ipam());
    EXPECT_EQ(reply.code(), 104) << reply;
    EXPECT_THAT(reply.message(), HasSubstr("route to 198.18.9.77"));
    EXPECT_THAT(reply.message(), HasSubstr("giving back the lease"));
    EXPECT_THAT(reply.message(), HasSubstr("the disk sleeps"));
}

// Chained after a main plugin: its interface, lease and qdiscs stay as they were.
TEST_F(RollbackTest, AfterAMainPluginItsInterfaceStays) {
    Chain ptp(node_, {{{"type", "ptp"}, {"ipam", node_.ipam()}}});
    auto container = node_.container();
    const Reply made = ptp.add(*container);
    ASSERT_EQ(made.rc, 0) << made;
    const Json one = {
        {"maxEndpoints", 1}, {"name", "other"}, {"ipam", {{"ranges", {{{{"subnet", "198.18.12.0/24"}}}}}}}};
    const Made full = make(one);
    // The kernel gives ptp's host end its link-local address when it hears of the carrier.
    const std::string link_local =
        "ip -6 route show table local type local dev " + made.json["interfaces"][0]["name"].get<std::string>();
    ASSERT_TRUE(wait_until([&] { return node_.run(link_local).find("fe80") != std::string::npos; }));
    const std::string before = node_.state();
    const Json config = {{"cniVersion", "1.0.0"},
                         {"name", "pods"},
                         {"type", "podlane"},
                         {"bpffs", node_.bpffs()},
                         {"prevResult", made.json}};
    const Reply reply = node_.cni("ADD", config, *container);
    EXPECT_EQ(reply.code(), 102) << reply;
    EXPECT_EQ(node_.state(), before);
    EXPECT_EQ(ptp.del(*container).rc, 0);
}

} // namespace
} // namespace podlane::test
