// SPDX-License-Identifier: MIT
// Entries in the maps that are there, but not as planned: CHECK and doctor name them, and repair rewrites them.
#include "tests/netns/ctl.hpp"

#include "loader/limit_group.hpp"
#include "maps/entries.hpp"

namespace podlane::test {
namespace {

class PlannedEntry;
struct Fault {
    const char *name;
    void (*inflict)(const PlannedEntry &t);
    std::string says;
};
void PrintTo(const Fault &fault, std::ostream *out) { *out << fault.name; }

class PlannedEntry : public CtlTest, public testing::WithParamInterface<Fault> {
  public:
    using VerbsTest::open;

    // Of all of the map's entries of which `wanted` is true.
    template <typename Table>
    void set(Result<Table> (*opener)(std::string_view, Access), auto wanted, auto change) const {
        const Table table = open(opener);
        std::size_t changed = 0;
        for (auto [key, value] : require(table.entries()))
            if (wanted(key)) {
                change(value);
                require(table.update(key, value));
                ++changed;
            }
        EXPECT_GE(changed, 1U);
    }
    [[nodiscard]] std::uint32_t group() const { return require(open(&open_limit_groups).keys()).at(0); }

    Json keys_ = {{"allowedSources", {"192.0.2.0/24", "2001:db8:77::/64"}},
                  {"unshapedSubnets", {"203.0.113.0/24"}},
                  {"clusterCIDRs", {"198.18.0.0/16", "2001:db8::/32"}},
                  {"ipMasq", true},
                  {"limitGroup", "tenant"},
                  {"limitGroups", {{"tenant", {{"ingressRate", 80000000}}}}},
                  {"ingressRate", 8000000},
                  {"ingressBurst", 64000000},
                  {"egressRate", 8000000},
                  {"egressBurst", 64000000}};
    const Pod other_ = make(keys_);
    const Pod made_ = make(keys_);
};

constexpr auto kAll = [](const auto &) { return true; };

const std::vector<Fault> kFaults = {
    {"AllowedSource",
     [](const PlannedEntry &t) {
         t.set(
             &open_allowed_sources,
             [&](const allowed_source_key &key) {
                 return key.ifindex == make_allowed_source_key(t.made_.ifindex, {}).ifindex;
             },
             [](std::uint32_t &value) { value = 0x40; });
     },
     "in " PODLANE_MAP_SOURCES " is gone or wrong"},
    {"Exempt",
     [](const PlannedEntry &t) { t.set(&open_exempts, kAll, [](std::uint32_t &value) { value ^= PREFIX_SET; }); },
     PODLANE_MAP_EXEMPT " is gone or wrong"},
    {"Sender",
     [](const PlannedEntry &t) {
         t.set(
             &open_senders, [&](const sender_key &key) { return key.addr == t.made_.v4; },
             [&](std::uint32_t &owner) { owner = t.other_.ifindex; });
     },
     PODLANE_MAP_SENDERS " is gone or wrong"},
    {"LimitGroup", [](const PlannedEntry &t) { (void)require(t.open(&open_limit_groups).remove(t.group())); },
     PODLANE_MAP_LIMIT_GROUPS " is gone"},
    {"LimitGroupsRates", [](const PlannedEntry &t) { (void)require(t.open(&open_bandwidths).remove(t.group())); },
     "limit group in " PODLANE_MAP_BANDWIDTHS " is gone"},
    {"LimitGroupsState",
     [](const PlannedEntry &t) {
         (void)require(t.open(&open_limit_states).remove({t.group(), LIMIT_EGRESS}));
     },
     "limit group in " PODLANE_MAP_LIMITS " is gone"},
    {"ClusterCidr",
     [](const PlannedEntry &t) { t.set(&open_cluster_cidrs, kAll, [](std::uint32_t &value) { value = 0x40; }); },
     "in " PODLANE_MAP_CIDRS " is wrong"},
    {"LimitGroupsNetwork",
     [](const PlannedEntry &t) { t.set(&open_limit_groups, kAll, [](limit_group &value) { value.network ^= 1U; }); },
     "in " PODLANE_MAP_LIMIT_GROUPS " is wrong"},
    {"AddressesOwner",
     [](const PlannedEntry &t) {
         t.set(
             &open_addresses, [&](const address_key &key) { return key.addr == t.made_.v4; },
             [&](address &value) { value.ifindex = t.other_.ifindex; });
     },
     "in " PODLANE_MAP_ADDRESSES " is "},
    {"NetworksName",
     [](const PlannedEntry &t) { t.set(&open_networks, kAll, [](network &value) { value.name[0] ^= 1; }); },
     "in " PODLANE_MAP_NETWORKS " is wrong"},
    {"NetworksMasquerade",
     [](const PlannedEntry &t) { t.set(&open_networks, kAll, [](network &value) { value.masquerade = 0; }); },
     "in " PODLANE_MAP_NETWORKS " is wrong"},
    {"NetworksUplinks",
     [](const PlannedEntry &t) { t.set(&open_networks, kAll, [](network &value) { value.has_uplinks = 0x41; }); },
     "in " PODLANE_MAP_NETWORKS " is wrong"},
};

INSTANTIATE_TEST_SUITE_P(Of, PlannedEntry, testing::ValuesIn(kFaults),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_P(PlannedEntry, IsFoundAndRewritten) {
    EXPECT_THAT(check(made_, keys_), succeeds());
    const auto maps = [&] {
        std::string all;
        for (const char *map :
             {"addresses", "allowed_srcs", "exempt", "senders", "cluster_cidr", "networks", "limit_groups"})
            all += ctl("map dump " + std::string(map) + " --json").out;
        return all;
    };
    const std::string before = maps();
    GetParam().inflict(*this);
    EXPECT_THAT(check(made_, keys_), fails_with(105, {GetParam().says}));
    EXPECT_THAT(ctl("doctor"), prints(1, {GetParam().says}));
    EXPECT_THAT(ctl("repair"), prints(0, {GetParam().says}));
    EXPECT_EQ(maps(), before);
    for (const Pod *pod : {&made_, &other_}) {
        EXPECT_THAT(check(*pod, keys_), succeeds());
    }
    EXPECT_THAT(ctl("doctor"), prints(0));
}

} // namespace
} // namespace podlane::test
