// SPDX-License-Identifier: MIT
// podlanectl upgrade on a live node: up to a version with other maps and down again, under traffic without a pause.
#include "tests/harness/bpf.hpp"
#include "tests/harness/cluster.hpp"
#include "tests/harness/outcome.hpp"
#include "tests/harness/stream.hpp"
#include "tests/netns/verbs.hpp"

#include "loader/attach.hpp"
#include "loader/object.hpp"
#include "loader/upgrade.hpp"

#include <bpf/bpf.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7000;

class UpgradeTest : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "tcx" && !kernel_can_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
        cluster_.emplace();
        cluster_->route_by_hosts();
        a_ = add_pod(1);
        b_ = add_pod(1);
    }
    Pod add_pod(int node) { return cluster_->add_pod(node, {{"attach", GetParam()}, {"ipMasq", true}}); }
    [[nodiscard]] const Node &node() const { return cluster_->node(1); }
    [[nodiscard]] Output up() const { return run(node().ns(), {variable("PODLANE_NEXT_BIN"), node().bpffs()}); }
    [[nodiscard]] Output down(const std::vector<std::string> &more = {}) const {
        std::vector<std::string> arguments{"--json", "upgrade"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return node().podlanectl(arguments);
    }
    [[nodiscard]] std::vector<std::string> pins() const {
        std::vector<std::string> names;
        for (const auto &entry : std::filesystem::recursive_directory_iterator(node().bpffs()))
            names.push_back(std::filesystem::relative(entry.path(), node().bpffs()));
        std::ranges::sort(names);
        return names;
    }
    // Ids of Podlane's programs on both hooks of an interface.
    [[nodiscard]] std::vector<std::uint32_t> on_hooks(std::uint32_t ifindex) const {
        const auto inside = require(net::enter(node().ns()));
        std::vector<std::uint32_t> ids;
        for (const Hook hook : {Hook::ingress, Hook::egress})
            for (const Attached &one : require(attached(ifindex, hook)))
                ids.push_back(one.program_id);
        return ids;
    }
    [[nodiscard]] std::vector<std::uint32_t> pinned() const {
        std::vector<std::uint32_t> ids;
        for (const char *name : {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD})
            ids.push_back(require(program_facts(require(open_program(node().bpffs(), name)).get())).id);
        return ids;
    }
    // All entries but counters and flows, as the kernel gives them.
    [[nodiscard]] MapEntries entries() const {
        return map_entries(node().bpffs(), {PODLANE_MAP_COUNTERS, PODLANE_MAP_PATHS, PODLANE_MAP_FLOWS,
                                            PODLANE_MAP_FORWARDED, PODLANE_MAP_EVENTS});
    }

    std::optional<Cluster> cluster_;
    Pod a_;
    Pod b_;
};

int rounds() {
    const char *wanted = std::getenv("PODLANE_UPGRADES");
    return wanted == nullptr ? 3 : std::atoi(wanted);
}

// The path of each stream: to a pod of this node, to one of another node by the uplink, to the outside by NAT.
TEST_P(UpgradeTest, UpAndDownWithoutALostPacket) {
    const Pod far = add_pod(2);
    const EchoServer near_server(b_.ns(), true, kPort);
    const EchoServer near_server6(b_.ns(), false, kPort);
    const EchoServer far_server(far.ns(), true, kPort);
    const EchoServer outside_server(cluster_->outside().ns(), true, kPort);
    const std::map<std::string, Endpoint> servers = {
        {"pod", {b_.v4, kPort}},
        {"pod by IPv6", {b_.v6, kPort}},
        {"pod of another node", {far.v4, kPort}},
        {"outside", {ip(Cluster::outside_addr(true)), kPort}},
    };
    std::map<std::string, std::unique_ptr<Stream>> streams;
    for (const auto &[name, server] : servers)
        for (const Transport transport : {Transport::udp, Transport::tcp})
            streams.emplace(to_string(transport) + " to " + name, std::make_unique<Stream>(a_.ns(), transport, server));
    const auto flowing = [&](const std::string &when) {
        for (const auto &[name, stream] : streams) {
            const std::uint64_t before = stream->received();
            EXPECT_TRUE(wait_until([&, &one = stream] { return one->received() > before + 100; })) << name << when;
        }
    };
    flowing(" at first");
    const auto before = entries();
    int done = 0;
    for (; done < rounds() && !HasFailure(); ++done) {
        ASSERT_THAT(up(), prints(0));
        flowing(" after the way up");
        ASSERT_THAT(down(), prints(0));
        flowing(" after the way down");
    }
    EXPECT_EQ(entries(), before);
    std::uint64_t sent = 0;
    std::uint64_t lost = 0;
    for (const auto &[name, stream] : streams) {
        const Stream::Account account = stream->end();
        EXPECT_EQ(account.lost, 0U) << name << ", of " << account.sent;
        sent += account.sent;
        lost += account.lost;
    }
    std::cout << done << " upgrades up and down: " << sent << " packets sent, " << lost << " lost\n";
    EXPECT_GT(cluster_->count(a_, REASON_SENT_DIRECT), 0U);
    EXPECT_GT(cluster_->count(a_, REASON_SENT_UPLINK), 0U);
}

TEST_P(UpgradeTest, KeepsFlowsCountersAndLimits) {
    const EchoServer server(b_.ns(), true, kPort);
    const Fd socket = connected(a_.ns(), Transport::tcp, {b_.v4, kPort});
    ASSERT_EQ(send_text(socket, "before"), 0);
    ASSERT_EQ(receive(socket).text, "before");
    const auto flows = cluster_->paths(1).size();
    const std::uint64_t direct = cluster_->count(a_, REASON_SENT_DIRECT);
    ASSERT_GT(direct, 0U);
    ASSERT_EQ(up().rc, 0);
    ASSERT_EQ(send_text(socket, "there"), 0);
    ASSERT_EQ(receive(socket).text, "there");
    ASSERT_EQ(down().rc, 0);
    EXPECT_GE(cluster_->count(a_, REASON_SENT_DIRECT), direct);
    EXPECT_EQ(cluster_->paths(1).size(), flows);
    const std::uint64_t now = cluster_->count(a_, REASON_SENT_DIRECT);
    ASSERT_EQ(send_text(socket, "again"), 0);
    ASSERT_EQ(receive(socket).text, "again");
    EXPECT_GT(cluster_->count(a_, REASON_SENT_DIRECT), now) << "a flow under way is still direct";
    EXPECT_EQ(cluster_->count(a_, REASON_HOST_UNKNOWN_PATH), 0U);
}

// A limit of the configuration, and one that podlanectl gave a running pod: both hold on, and count on.
TEST_P(UpgradeTest, KeepsBandwidthLimits) {
    const Pod limited =
        cluster_->add_pod(1, {{"attach", GetParam()}, {"egressRate", 40000000}, {"egressBurst", 0x7fffffff}});
    const auto ctl = [&](std::vector<std::string> words) {
        words.insert(words.begin(), "--json");
        const Output output = node().podlanectl(words);
        EXPECT_EQ(output.rc, 0) << output.err;
        return Json::parse(output.out, nullptr, false);
    };
    (void)ctl({"bandwidth", "set", limited.host_ifname, "--ingress", "20M", "--egress", "10M"});
    const auto limits = [&] {
        std::map<std::string, std::vector<std::uint64_t>> all;
        for (const Json &one : ctl({"bandwidth", "list", limited.host_ifname}))
            all[one.at("direction")] = {one.at("rate_bits_per_s"), one.at("burst_bits"), one.at("packets")};
        return all;
    };
    const EchoServer server(limited.ns(), true, kPort);
    EXPECT_EQ(ask(a_.ns(), Transport::udp, {limited.v4, kPort}), 0);
    const auto before = limits();
    ASSERT_EQ(before.at("egress").at(0), 10000000U);
    ASSERT_EQ(before.at("ingress").at(0), 20000000U);
    ASSERT_GT(before.at("egress").at(2), 0U);

    ASSERT_EQ(up().rc, 0);
    EXPECT_EQ(ask(a_.ns(), Transport::udp, {limited.v4, kPort}), 0);
    ASSERT_EQ(down().rc, 0);

    EXPECT_EQ(ask(a_.ns(), Transport::udp, {limited.v4, kPort}), 0);
    const auto after = limits();
    for (const char *direction : {"egress", "ingress"}) {
        EXPECT_EQ(after.at(direction).at(0), before.at(direction).at(0)) << direction;
        EXPECT_EQ(after.at(direction).at(1), before.at(direction).at(1)) << direction;
        EXPECT_GT(after.at(direction).at(2), before.at(direction).at(2)) << direction << " is charged no more";
    }
}

// A bucket that was full stays full: what a pod has sent too much it does not get back by an upgrade.
TEST_P(UpgradeTest, HoldsLimitsMeanwhile) {
    const Pod limited = cluster_->add_pod(
        1, {{"attach", GetParam()}, {"egressRate", 100}, {"egressBurst", 100}, {"limiter", "bucket"}});
    const Fd socket = connected(limited.ns(), Transport::udp, {b_.v4, kPort});
    const auto send_some = [&] {
        for (int i = 0; i < 20; ++i) // of 100 seconds each, half of them refused; the bucket holds 600
            (void)send_text(socket, std::string(1200, 'x'));
    };
    const auto dropped = [&] { return cluster_->count(limited, REASON_DROP_EGRESS_LIMIT); };
    send_some();
    const std::uint64_t before = dropped();
    ASSERT_GT(before, 0U);
    const std::uint64_t sent = cluster_->count(limited, REASON_SENT_DIRECT);
    ASSERT_EQ(up().rc, 0);
    send_some();
    ASSERT_EQ(down().rc, 0);
    send_some();
    EXPECT_GE(dropped(), before + 9);
    EXPECT_LE(cluster_->count(limited, REASON_SENT_DIRECT), sent + 1);
}

TEST_P(UpgradeTest, DoesNothingIfThereIsNothingToDo) {
    const auto ids = on_hooks(a_.ifindex);
    const Output asked = down();
    EXPECT_EQ(asked.rc, 0) << asked.err;
    EXPECT_FALSE(Json::parse(asked.out).at("upgraded"));
    EXPECT_EQ(on_hooks(a_.ifindex), ids);

    const Output forced = down({"--force"});
    EXPECT_EQ(forced.rc, 0) << forced.err;
    EXPECT_EQ(Json::parse(forced.out).at("hooks"), 6) << forced.out; // two pods and an uplink
    EXPECT_NE(on_hooks(a_.ifindex), ids);
    EXPECT_EQ(on_hooks(a_.ifindex), pinned());
}

// After it had published, or as it replaced the live directory on a kernel that cannot exchange two.
TEST_P(UpgradeTest, RemovesWhatAKilledOneLeft) {
    const auto all = pins();
    for (const char *left : {"/loading-1a2b3c", "/replaced"})
        ASSERT_TRUE(std::filesystem::create_directory(node().bpffs() + left));
    const Output done = down();
    EXPECT_EQ(done.rc, 0) << done.err;
    EXPECT_FALSE(Json::parse(done.out).at("upgraded"));
    EXPECT_EQ(pins(), all);
}

// A foreign filter in the place of Podlane's on the last pod's hook: the pods before it have the new programs by then.
TEST_P(UpgradeTest, AFailureMidwayRestoresTheOldVersion) {
    const Pod c = cluster_->add_pod(1, {{"attach", "clsact"}});
    node().run("tc filter del dev " + c.host_ifname + " ingress prio 20");
    node().run("tc filter add dev " + c.host_ifname + " ingress prio 20 protocol all u32 match u32 0 0");
    const auto ids = on_hooks(a_.ifindex);
    const auto all = pins();
    const auto before = entries();
    const EchoServer server(b_.ns(), true, kPort);
    Stream stream(a_.ns(), Transport::udp, {b_.v4, kPort});

    const Output tried = up();

    EXPECT_EQ(tried.rc, 1);
    EXPECT_THAT(tried.err, has_all({"attaching to clsact ingress", "the previous version stays in use"}));
    EXPECT_EQ(on_hooks(a_.ifindex), ids);
    EXPECT_EQ(on_hooks(b_.ifindex), pinned());
    EXPECT_EQ(pins(), all);
    EXPECT_EQ(entries(), before);
    EXPECT_EQ(stream.end().lost, 0U);
}

// A version before source_slots_v1 kept slots in source_route_v1, under addresses that no pod has.
TEST_P(UpgradeTest, SourceSlotsMoveToATableOfTheirOwn) {
    const SourceRoutes routes = require(open_source_routes(node().bpffs(), Access::read_write));
    const Uplinks uplinks = require(open_uplinks(node().bpffs(), Access::read_write));
    const std::uint32_t uplink = require(uplinks.keys()).at(0);
    const auto place = [](std::uint32_t ifindex, std::uint32_t is_ipv4, std::uint32_t number) {
        return source_route_key{ifindex, {{0, 0, is_ipv4, number}}};
    };
    source_route route{};
    route.ifindex = b_.ifindex;
    route.source = b_.v4;
    require(routes.update({a_.ifindex, b_.v4}, route));
    require(routes.update(place(a_.ifindex, 1, 1), route));
    require(routes.update(place(uplink, 1, 0), {}));

    const Output done = down({"--force"});

    ASSERT_EQ(done.rc, 0) << done.err;
    const auto left = require(require(open_source_routes(node().bpffs(), Access::read_only)).entries());
    ASSERT_EQ(left.size(), 1U);
    EXPECT_EQ(left.at(0).first.source, b_.v4);
    const auto slots = require(require(open_source_slots(node().bpffs(), Access::read_only)).entries());
    ASSERT_EQ(slots.size(), 1U);
    EXPECT_EQ(slots.at(0).first.ifindex, a_.ifindex);
    EXPECT_EQ(slots.at(0).first.is_ipv4, 1U);
    EXPECT_EQ(slots.at(0).first.number, 1U);
    EXPECT_EQ(slots.at(0).second.source, b_.v4);
    EXPECT_EQ(require(require(open_uplinks(node().bpffs(), Access::read_only)).find(uplink))->flags, UPLINK_UNNUMBERED);
}

// State that only the newer version has a place for keeps the older one from taking over.
TEST_P(UpgradeTest, RefusesWhatItCannotHold) {
    ASSERT_EQ(up().rc, 0);
    const std::string path = pin_path(node().bpffs(), "interfaces_v2");
    const Fd map(bpf_obj_get(path.c_str()));
    Bytes value(require(map_facts(map.get())).value_size);
    ASSERT_TRUE(require(detail::find(map.get(), path, &a_.ifindex, value.data())));
    value.at(12) = 1; // of the flags, which have 64 bits from their 8th byte on, one too high for 32
    require(detail::write(map.get(), path, &a_.ifindex, value.data(), Write::any));
    const auto ids = on_hooks(a_.ifindex);
    const auto all = pins();

    const Output tried = down();

    EXPECT_EQ(tried.rc, 1);
    EXPECT_THAT(tried.err, HasSubstr("map interfaces_v2: flags: a number does not fit"));
    EXPECT_EQ(on_hooks(a_.ifindex), ids);
    EXPECT_EQ(pins(), all);
    value.at(12) = 0;
    require(detail::write(map.get(), path, &a_.ifindex, value.data(), Write::any));
    EXPECT_EQ(down().rc, 0);
}

// A binary next to maps of another version says so, and harms nothing; ADD and DEL go on after the upgrade.
TEST_P(UpgradeTest, AddAndDelWaitForIt) {
    ASSERT_EQ(up().rc, 0);
    const auto all = pins();
    try {
        (void)add_pod(1);
        FAIL() << "an ADD next to maps of another version";
    } catch (const std::exception &refused) {
        EXPECT_THAT(refused.what(), has_all({"of another version of Podlane", "podlanectl upgrade"}));
    }
    EXPECT_THAT(b_.chain->del(*b_.container), fails_with(11));
    const Json found = Json::parse(node().podlanectl(std::vector<std::string>{"--json", "doctor"}).out);
    EXPECT_THAT(find(found, "check", "loaded"), has_members({{"remedy", "podlanectl upgrade"}, {"fixable", true}}));
    for (const char *untrue : {"lost", "unknown"})
        EXPECT_TRUE(find(found, "check", untrue).is_null()) << found.dump(1);
    EXPECT_EQ(pins(), all);
    EXPECT_EQ(on_hooks(b_.ifindex).size(), 2U);
    EXPECT_TRUE(ping(a_.ns(), podlane::to_string(b_.v4)));

    ASSERT_EQ(down().rc, 0);
    const Pod c = add_pod(1);
    EXPECT_TRUE(ping(a_.ns(), podlane::to_string(c.v4)));
}

INSTANTIATE_TEST_SUITE_P(Hooks, UpgradeTest, both_ways_to_attach(), way_to_attach);

} // namespace
} // namespace podlane::test
