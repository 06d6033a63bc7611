// SPDX-License-Identifier: MIT
// Another program changed the host-side veth of a living pod, or its route: DEL and GC remove it all the same, CHECK
// and doctor name the change, and repair reverts it.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

using testing::HasSubstr;

class ChangedVethTest : public CtlTest {
  protected:
    void expect_nothing_left(const std::vector<const Pod *> &pods) const {
        for (const Pod *pod : pods)
            EXPECT_TRUE(host_link(*pod).is_null()) << pod->host_ifname;
        EXPECT_EQ(everything(), before_);
    }
    void change_alias(const Pod &made) const {
        const std::string command = "ip link set " + made.host_ifname + " alias";
        std::vector<std::string> argv = words(command);
        argv.emplace_back("lan port 3");
        must_run(node_.ns(), argv);
    }
    void rename(const Pod &made, const std::string &name) const {
        node_.run("ip link set " + made.host_ifname + " down");
        node_.run("ip link set " + made.host_ifname + " name " + name);
    }

    std::string before_ = everything(); // of a node that never saw an ADD
};

TEST_F(ChangedVethTest, OfAnotherAliasIsRemovedByDel) {
    const Pod made = make();
    change_alias(made);
    EXPECT_THAT(del(*made.container), succeeds());
    expect_nothing_left({&made});
}

TEST_F(ChangedVethTest, OfAnotherAliasIsRemovedByDelWithoutTheMaps) {
    const Pod made = make();
    change_alias(made);
    fs::remove_all(node_.bpffs());
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_TRUE(host_link(made).is_null());
    EXPECT_TRUE(node_.leased().empty());
}

TEST_F(ChangedVethTest, OfAnotherAliasAndNameIsRemovedByDel) {
    const Pod made = make();
    change_alias(made);
    rename(made, "renamed");
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_TRUE(find(ip_json(node_.ns(), "link"), "ifname", "renamed").is_null());
    expect_nothing_left({&made});
}

// Its lease may be another pod's soon: the container keeps no address of it.
TEST_F(ChangedVethTest, InAnotherNamespaceIsRemovedByDelWithTheContainersEnd) {
    const Pod made = make();
    const auto other = node_.container();
    node_.run("ip link set " + made.host_ifname + " netns " + other->path());
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_EQ(run(made.container->ns(), words("ip link show eth0")).rc, 1);
    EXPECT_EQ(run(other->ns(), words("ip link show " + made.host_ifname)).rc, 1);
    expect_nothing_left({&made});
    EXPECT_THAT(add(*made.container), succeeds());
    EXPECT_THAT(del(*made.container), succeeds());
    expect_nothing_left({&made});
}

// A MAC that ADD did not give: whose interface has the number now is not known.
TEST_F(ChangedVethTest, WithoutItsHostVethAnotherInterfaceIsLeftAlone) {
    const Pod made = make();
    const std::string index = find(ip_json(made.container->ns(), "link"), "ifname", "eth0").at("ifindex").dump();
    node_.run("ip link del " + made.host_ifname);
    made.container->run("ip link add eth0 index " + index + " type veth peer name other");
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_EQ(run(made.container->ns(), words("ip link show eth0")).rc, 0);
    made.container->run("ip link del eth0");
    expect_nothing_left({&made});
}

// Several are removed together.
TEST_F(ChangedVethTest, OfAnotherAliasIsRemovedByGc) {
    const Pod first = make();
    change_alias(first);
    EXPECT_THAT(gc(), succeeds());
    expect_nothing_left({&first});
    const Pod second = make();
    const Pod third = make();
    change_alias(second);
    change_alias(third);
    EXPECT_THAT(gc(), succeeds());
    expect_nothing_left({&second, &third});
}

// Whatever took the place of a veth that is gone.
TEST_F(ChangedVethTest, OfAnotherNumberIsLeftAlone) {
    const Pod made = make();
    node_.run("ip link del " + made.host_ifname);
    node_.run("ip link add " + made.host_ifname + " type veth peer name other");
    change_alias(made);
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_FALSE(host_link(made).is_null());
    node_.run("ip link del other");
    expect_nothing_left({&made});
}

TEST_F(ChangedVethTest, OfAnotherKindIsLeftAlone) {
    const Pod made = make();
    node_.run("ip link del " + made.host_ifname);
    node_.run("ip link add " + made.host_ifname + " index " + std::to_string(made.ifindex) + " type bridge");
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_FALSE(host_link(made).is_null());
    node_.run("ip link del " + made.host_ifname);
    expect_nothing_left({&made});
}

// The number is another pod's by now, and so is that of the other end.
TEST_F(ChangedVethTest, OfAnotherPodIsLeftAlone) {
    const Pod old = make();
    const Pod living = make();
    const endpoint_key key = require(make_endpoint_key(old.container->id(), "eth0"));
    endpoint entry = record(old);
    entry.ifindex = living.ifindex;
    entry.pod_ifindex = record(living).pod_ifindex;
    require(open(&open_endpoints).update(key, entry));
    EXPECT_THAT(del(*old.container), succeeds());
    EXPECT_FALSE(host_link(living).is_null());
}

struct Change {
    const char *name;
    const char *make;
    const char *says;
};
void PrintTo(const Change &change, std::ostream *out) { *out << change.name; }

class ChangedVeth : public ChangedVethTest, public testing::WithParamInterface<Change> {};
INSTANTIATE_TEST_SUITE_P(
    Of, ChangedVeth,
    testing::Values(Change{"Alias", "ip link set @host alias mine",
                           "@host has the alias \"mine\" instead of the attachment's"},
                    Change{"NoAlias", "ip link set @host alias ''", "@host has the alias \"\""},
                    Change{"Mtu", "ip link set @host mtu 1300", "@host has MTU 1300 instead of 1420"},
                    Change{"GreaterMtu", "ip link set @host mtu 1500", "@host has MTU 1500 instead of 1420"},
                    Change{"Port", "ip link set @host master br9", "@host is a port of br9"},
                    Change{"NoIpv6", "sysctl -qw net.ipv6.conf.@host.disable_ipv6=1",
                           "IPv6 is off on the host-side veth @host (net.ipv6.conf.@host.disable_ipv6 is 1)"},
                    Change{"NoLinkLocal", "ip -6 addr flush dev @host", "is gone from the host-side veth @host"}),
    [](const auto &info) { return std::string(info.param.name); });

TEST_P(ChangedVeth, IsNamedAndRepaired) {
    const Pod made = make();
    node_.run("ip link add br9 type bridge");
    EXPECT_THAT(check(made), succeeds());
    const Json whole = host_link(made);
    must_run(node_.ns(), {"sh", "-c", filled(GetParam().make, made)});
    const std::string says = filled(GetParam().says, made);
    EXPECT_THAT(check(made), fails_with(105, {says}));
    const Output found = ctl("doctor");
    EXPECT_THAT(found, prints(1, {says}));
    EXPECT_THAT(found.out, testing::Not(HasSubstr("neighbour")));
    EXPECT_THAT(ctl("repair"), prints(0, {says}));
    EXPECT_THAT(ctl("doctor"), prints(0));
    EXPECT_THAT(check(made), succeeds());
    const Json repaired = host_link(made);
    for (const char *key : {"ifalias", "mtu", "master"})
        EXPECT_EQ(repaired.value(key, Json()), whole.value(key, Json())) << key;
    for (const std::string to : {"203.0.113.2", "2001:db8:cafe::2", "fe80::ecee:eeff:feee:eeee%eth0"})
        EXPECT_TRUE(ping(made.container->ns(), to)) << to;
    EXPECT_EQ(run(node_.ns(), {"ping", "-c1", "-W2", made.text6()}).rc, 0);
}

// The kernel takes IPv6 off such an interface; off the host-side veth too, if that followed.
TEST_F(ChangedVethTest, APodsMtuThatIsTooSmallForIpv6IsNamedAndRepaired) {
    const Pod made = make();
    const Json whole = host_link(made);
    made.container->run("ip link set eth0 mtu 1279");
    const std::string says = "has MTU 1279, and IPv6 takes at least 1280";
    EXPECT_THAT(check(made), fails_with(105, {"interface eth0 of the container " + says}));
    const Output found = ctl("doctor");
    EXPECT_THAT(found, prints(1, {"eth0 in the container " + says}));
    EXPECT_THAT(found.out, testing::Not(HasSubstr("neighbour")));
    EXPECT_EQ(host_link(made).at("mtu"), whole.at("mtu"));
    EXPECT_EQ(run(made.container->ns(), words("ping -c1 -W2 203.0.113.2")).rc, 0);
    EXPECT_THAT(ctl("repair"), prints(0, {says}));
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
    EXPECT_TRUE(ping(made.container->ns(), "2001:db8:cafe::2"));
    made.container->run("ip link set eth0 mtu 1280");
    EXPECT_THAT(check(made), succeeds());
    EXPECT_EQ(host_link(made).at("mtu"), 1280) << "it follows";
    EXPECT_TRUE(ping(made.container->ns(), "2001:db8:cafe::2"));
}

// Only the record says of which groups a pod is a member.
TEST_F(ChangedVethTest, WithoutARecordGroupsAreNotCompared) {
    const Json keys = {{"groups", {"name:a"}}, {"isolation", "group"}};
    const Pod made = make(keys);
    EXPECT_THAT(check(made, keys), succeeds());
    fs::remove_all(AttachmentRecords(kStateDirectory, node_.bpffs()).directory());
    EXPECT_THAT(check(made, keys), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
}

// Whoever made it, the pod's own route is behind it.
TEST_F(ChangedVethTest, ARouteBehindAnotherOfTheContainerIsRestored) {
    const auto container = node_.container();
    container->run("ip link add other type veth peer name peer");
    container->run("ip link set other up");
    container->run("ip addr add 192.0.2.2/24 dev other");
    container->run("ip route add default via 192.0.2.1");
    const Reply added = add(*container);
    ASSERT_THAT(added, succeeds());
    const Pod made = look_at(container, added.json);
    const std::string routes = container->run("ip route");
    container->run("ip route flush dev eth0");
    EXPECT_THAT(check(made), fails_with(105, {"169.254.1.1/32"}));
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_EQ(container->run("ip route"), routes);
    EXPECT_THAT(check(made), succeeds());
}

TEST_F(ChangedVethTest, WithoutIpv6IsRepairedWithoutARecord) {
    const Pod made = make();
    fs::remove_all(AttachmentRecords(kStateDirectory, node_.bpffs()).directory());
    node_.run("sysctl -qw net.ipv6.conf." + made.host_ifname + ".disable_ipv6=1");
    EXPECT_THAT(ctl("doctor"), prints(1, {"IPv6 is off on the host-side veth " + made.host_ifname}));
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_TRUE(ping(made.container->ns(), "2001:db8:cafe::2"));
}

// While it can be repaired, no pod is to be deleted.
TEST_F(ChangedVethTest, TheRemedyIsARepairIfThatCanSucceed) {
    const auto remedy = [&](const std::string &fix) {
        return find(ctl_json("doctor" + fix), "check", "link").at("remedy");
    };
    const Pod made = make();
    rename(made, "renamed");
    EXPECT_EQ(remedy(""), "podlanectl doctor --fix");
    node_.run("ip link add " + made.host_ifname + " type bridge");
    EXPECT_THAT(remedy(" --fix"), HasSubstr("delete its sandbox")) << "another interface has the name";
    node_.run("ip link del " + made.host_ifname);
    node_.run("ip link del renamed");
    EXPECT_THAT(remedy(""), HasSubstr("podlanectl gc"));
}

// Whose route it is, nobody but the administrator knows.
TEST_F(ChangedVethTest, AForeignRouteInThePlaceOfThePodsIsNamed) {
    for (const char *place : {"@v4 dev up0", "@v6 dev up0", "blackhole @v4", "blackhole @v6"}) {
        SCOPED_TRACE(place);
        const bool is_v6 = std::string_view(place).find("@v6") != std::string_view::npos;
        const Pod made = make();
        const std::string to = filled(is_v6 ? "@v6" : "@v4", made);
        run_for(node_, made, "ip route del " + to + " dev @host");
        run_for(node_, made, std::string("ip route add ") + place);
        const std::string prefix = to + (is_v6 ? "/128" : "/32");
        const std::string says = "the node's route to " + prefix + " leads elsewhere";
        EXPECT_THAT(check(made), fails_with(105, {says}));
        EXPECT_THAT(ctl("doctor"), prints(1, {says, "ip route del " + prefix}));
        const Output output = ctl("repair");
        EXPECT_THAT(output, prints(1, {says, "ip route del " + prefix}));
        EXPECT_THAT(output.out, testing::Not(HasSubstr("found again")));
        node_.run("ip route del " + prefix);
        EXPECT_THAT(ctl("repair"), prints(0));
        EXPECT_THAT(check(made), succeeds());
        EXPECT_THAT(del(*made.container), succeeds());
    }
}

// A second ADD for another namespace takes nothing from the living pod.
TEST_F(ChangedVethTest, AnAddForAnotherNamespaceLeavesTheLivingPodAlone) {
    const Pod made = make();
    const auto other = node_.container(made.container->id());
    const std::string whole = everything();
    EXPECT_THAT(add(*other), fails_with(104, {made.container->id(), "eth0", made.container->path()}));
    EXPECT_EQ(everything(), whole);
    EXPECT_THAT(check(made), succeeds());
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.2"));
    EXPECT_TRUE(pod_link(*other).is_null());
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_THAT(add(*other), succeeds());
    EXPECT_THAT(del(*other), succeeds());
    expect_nothing_left({&made});
}

} // namespace
} // namespace podlane::test
