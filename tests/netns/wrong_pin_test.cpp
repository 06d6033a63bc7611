// SPDX-License-Identifier: MIT
// Another program has put something else in the place of a pin: DEL removes all that it can, says what is in the way,
// and `podlanectl repair` replaces it.
#include "tests/netns/ctl.hpp"

#include <bpf/bpf.h>

namespace podlane::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// In which a pod with all_features() has entries, or its network, if another pod of it lives.
constexpr std::array<std::string_view, 11> kHold = {
    PODLANE_MAP_ENDPOINTS, PODLANE_MAP_INTERFACES, PODLANE_MAP_ADDRESSES,  PODLANE_MAP_NETWORKS,
    PODLANE_MAP_COUNTERS,  PODLANE_MAP_SOURCES,    PODLANE_MAP_BANDWIDTHS, PODLANE_MAP_CIDRS,
    PODLANE_MAP_LIMITS,    PODLANE_MAP_SENDERS,    PODLANE_MAP_ISOLATION};

struct Thing {
    std::string name;
    void (*put)(const std::string &path, const std::string &root);
    bool any_place; // or only that of a map
};

void PrintTo(const Thing &thing, std::ostream *stream) { *stream << thing.name; }

void pin_map(bpf_map_type type, const std::string &path, std::uint32_t value_size = 24) {
    const Fd map(bpf_map_create(type, "foreign", 4, value_size, 1, nullptr));
    ASSERT_EQ(bpf_obj_pin(map.get(), path.c_str()), 0);
}

const std::vector<Thing> kThings = {
    {"directory", [](const std::string &path, const std::string &) { fs::create_directory(path); }, true},
    {"full_directory",
     [](const std::string &path, const std::string &) {
         fs::create_directory(path);
         pin_map(BPF_MAP_TYPE_HASH, path + "/theirs");
     },
     false},
    {"link_to_a_file", [](const std::string &path, const std::string &) { fs::create_symlink("/etc/passwd", path); },
     false},
    {"map", [](const std::string &path, const std::string &) { pin_map(BPF_MAP_TYPE_ARRAY, path); }, true},
    {"bpf_link",
     [](const std::string &path, const std::string &root) {
         const Fd link(bpf_obj_get(pin_path(root, PODLANE_PIN_PACING).c_str()));
         ASSERT_EQ(bpf_obj_pin(link.get(), path.c_str()), 0);
     },
     false},
    {"program",
     [](const std::string &path, const std::string &root) {
         const Fd program(bpf_obj_get(pin_path(root, PODLANE_PROGRAM_TO_UPLINK).c_str()));
         ASSERT_EQ(bpf_obj_pin(program.get(), path.c_str()), 0);
     },
     true}};

struct Misplaced {
    const Thing *thing;
    std::string_view name; // of the pin
};

void PrintTo(const Misplaced &of, std::ostream *stream) { *stream << of.thing->name << " for " << of.name; }

std::vector<Misplaced> all_misplaced() {
    std::vector<std::string_view> any(kMapNames.begin(), kMapNames.end());
    any.insert(any.end(), {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_FROM_UPLINK});
    const std::vector<std::string_view> some = {PODLANE_MAP_ENDPOINTS, PODLANE_MAP_EXEMPT, PODLANE_PROGRAM_FROM_POD};
    std::vector<Misplaced> all;
    for (const Thing &thing : kThings)
        for (const std::string_view name : thing.any_place ? any : some)
            all.push_back({&thing, name});
    return all;
}

class WrongPin : public CtlTest {
  protected:
    void put_in_place_of(std::string_view name, const Thing &thing) const {
        const std::string path = pin_path(node_.bpffs(), name);
        fs::remove(path);
        thing.put(path, node_.bpffs());
    }
    // Without the map of addresses packets may be led to them, and they may be another's.
    void expect_removed(const Pod &made, bool lease_too) const {
        EXPECT_TRUE(host_link(made).is_null());
        EXPECT_EQ(node_.leased().size(), lease_too ? 2U : 4U);
        if (lease_too) {
            EXPECT_THAT(node_.run("nft list ruleset"), Not(HasSubstr(made.text4())));
        }
    }

    const Json all_ = all_features();
    const std::string before_ = everything();
};

// A kind in one of all places, as each of them takes its time.
class MisplacedPin : public WrongPin, public testing::WithParamInterface<Misplaced> {};

TEST_P(MisplacedPin, IsNamedByDelAndReplacedByRepair) {
    const std::string_view name = GetParam().name;
    const bool holds = std::ranges::find(kHold, name) != kHold.end();
    const std::string path = pin_path(node_.bpffs(), name);
    const Pod living = make(all_), made = make(all_);
    put_in_place_of(name, *GetParam().thing);
    const Reply reply = del(*made.container, all_);
    if (holds) {
        EXPECT_THAT(reply, fails_with(101, {path}));
        EXPECT_THAT(reply.details(), HasSubstr("podlanectl repair"));
    } else {
        EXPECT_THAT(reply, succeeds());
    }
    expect_removed(made, name != PODLANE_MAP_ADDRESSES);
    EXPECT_EQ(node_.records().size(), holds ? 2U : 1U);
    EXPECT_THAT(ctl("doctor"), prints(1, {path}));
    const Json found = ctl_json("repair"); // the half that is left of a pod as well
    EXPECT_THAT(find(found, "finding", "bpffs: " + path + " is not Podlane's"), has_members({{"fixed", true}}));
    EXPECT_THAT(del(*made.container, all_), succeeds());
    expect_removed(made, true);
    EXPECT_THAT(ctl("doctor"), prints(0));
    EXPECT_THAT(check(living, all_), succeeds());
    EXPECT_TRUE(ping(living.container->ns(), "203.0.113.1"));
    EXPECT_THAT(del(*living.container, all_), succeeds());
    EXPECT_EQ(everything(), before_);
}

class WrongPinTest : public WrongPin, public testing::WithParamInterface<Thing> {
  protected:
    void put_in_place_of(std::string_view name) const { WrongPin::put_in_place_of(name, GetParam()); }
};

TEST_P(WrongPinTest, IsNamedByGcWhichRemovesTheRest) {
    for (const std::string_view name : {PODLANE_MAP_ENDPOINTS, PODLANE_MAP_INTERFACES, PODLANE_MAP_NETWORKS}) {
        SCOPED_TRACE(name);
        const Pod living = make(all_), made = make(all_);
        put_in_place_of(name);
        const Reply reply = gc({&living}, all_);
        EXPECT_THAT(reply, fails_with(101, {pin_path(node_.bpffs(), name)}));
        EXPECT_THAT(reply.details(), HasSubstr("podlanectl repair"));
        expect_removed(made, true);
        (void)ctl("repair");
        EXPECT_THAT(gc({&living}, all_), succeeds());
        EXPECT_THAT(ctl("doctor"), prints(0));
        EXPECT_THAT(check(living, all_), succeeds());
        EXPECT_THAT(del(*living.container, all_), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

// The last pod leaves with its network's rules, whatever is in the place of a pin that holds nothing of it.
TEST_P(WrongPinTest, ThatHoldsNothingKeepsNoNetwork) {
    for (const std::string_view name : {PODLANE_MAP_WATCH, PODLANE_MAP_EXEMPT, PODLANE_MAP_SOURCE_SLOTS,
                                        PODLANE_MAP_HISTORY, PODLANE_PROGRAM_FROM_UPLINK}) {
        SCOPED_TRACE(name);
        const Pod made = make(all_);
        put_in_place_of(name);
        EXPECT_THAT(del(*made.container, all_), succeeds());
        EXPECT_THAT(node_.run("nft list ruleset"), Not(HasSubstr("podlane-")));
        EXPECT_THAT(ctl("upgrade"), prints(0));
        EXPECT_EQ(everything(), before_);
    }
}

TEST_P(WrongPinTest, IsRemovedByUninstall) {
    EXPECT_THAT(del(*make(all_).container, all_), succeeds());
    put_in_place_of(PODLANE_MAP_NETWORKS);
    EXPECT_THAT(ctl("uninstall"), prints(0));
    EXPECT_FALSE(fs::exists(node_.bpffs()));
}

using WrongPinOfRightSizesTest = CtlTest;

TEST_F(WrongPinOfRightSizesTest, IsNamedByDelAndReplacedByRepair) {
    const std::string before = everything(), path = pin_path(node_.bpffs(), PODLANE_MAP_INTERFACES);
    const Pod living = make(), made = make();
    fs::remove(path);
    pin_map(BPF_MAP_TYPE_ARRAY, path, sizeof(interface));
    const Reply reply = del(*made.container);
    EXPECT_THAT(reply, fails_with(101, {path}));
    EXPECT_THAT(reply.details(), HasSubstr("podlanectl repair"));
    EXPECT_TRUE(host_link(made).is_null());
    (void)ctl("repair");
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
    EXPECT_THAT(check(living), succeeds());
    EXPECT_THAT(del(*living.container), succeeds());
    EXPECT_EQ(everything(), before);
}

// By which a network's group CIDRs would become addresses that its pods may send from.
TEST_F(WrongPinOfRightSizesTest, OfAnotherMapIsRefusedByAddAndReplacedByRepair) {
    const std::string path = pin_path(node_.bpffs(), PODLANE_MAP_GROUP_CIDRS);
    const Pod made = make();
    const Fd own(bpf_obj_get(path.c_str()));
    const std::uint32_t own_id = require(map_facts(own.get())).id;
    fs::remove(path);
    const Fd sources(bpf_obj_get(pin_path(node_.bpffs(), PODLANE_MAP_SOURCES).c_str()));
    ASSERT_EQ(bpf_obj_pin(sources.get(), path.c_str()), 0);
    const Reply reply = add(*node_.container());
    EXPECT_THAT(reply, fails_with(101, {path, PODLANE_MAP_SOURCES}));
    EXPECT_THAT(reply.details(), HasSubstr("podlanectl repair"));
    EXPECT_THAT(ctl("doctor"), prints(1, {path + " is not Podlane's"}));
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_EQ(require(map_facts(Fd(bpf_obj_get(path.c_str())).get())).id, own_id) << "the one that programs work on";
    EXPECT_THAT(ctl("doctor"), prints(0));
    EXPECT_THAT(check(made), succeeds());
}

using UnlistedPinsTest = CtlTest;

TEST_F(UnlistedPinsTest, AreNotTakenForMissing) {
    (void)make();
    const std::string live = live_directory(node_.bpffs());
    std::vector<std::string> argv = {"strace", "-qq", "-o",           "/dev/null", "-P",
                                     live,     "-e",  "trace=openat", "-e",        "inject=openat:error=EMFILE"};
    std::ranges::move(ctl_argv(node_.bpffs(), "map list"), std::back_inserter(argv));
    EXPECT_THAT(run(node_.ns(), argv), complains(1, {"listing " + live + ": Too many open files"}));
}

INSTANTIATE_TEST_SUITE_P(Netns, WrongPinTest, testing::ValuesIn(kThings), [](const auto &of) { return of.param.name; });
INSTANTIATE_TEST_SUITE_P(Netns, MisplacedPin, testing::ValuesIn(all_misplaced()),
                         [](const auto &of) { return of.param.thing->name + "_for_" + std::string(of.param.name); });

} // namespace
} // namespace podlane::test
