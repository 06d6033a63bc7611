// SPDX-License-Identifier: MIT
// Pins that are lost, each alone and many at once, while the programs that they named are at work: whichever command
// restores them, living pods lose no packet, and everything is whole afterwards.
#include "tests/harness/lost_packets.hpp"
#include "tests/harness/stream.hpp"
#include "tests/netns/ctl.hpp"

#include "loader/object.hpp"
#include "loader/record.hpp"
#include "loader/upgrade.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7000;

std::vector<std::string> pin_names() {
    std::vector<std::string> all(kMapNames.begin(), kMapNames.end());
    all.insert(all.end(), kProgramNames.begin(), kProgramNames.end());
    return all;
}

class LostPins : public CtlTest {
  protected:
    LostPins() {
        for (const char *link : {"all", "lo", "up0"})
            set_sysctl(node_.ns(), std::string("net.ipv4.conf.") + link + ".rp_filter", "0");
        before_ = everything();
        first_ = make(all_);
        second_ = make(all_);
    }
    [[nodiscard]] std::string path(const std::string &name) const { return pin_path(node_.bpffs(), name); }
    void lose(const std::string &name) const { ASSERT_TRUE(fs::remove(path(name))) << name; }
    // A program stays on its hooks, and a map as long as a program works on it. Of all other maps the entries are lost.
    [[nodiscard]] bool outlives_its_pin(const std::string &name) const {
        return std::ranges::any_of(kProgramNames, [&](std::string_view program) {
            const auto fd = open_program(node_.bpffs(), std::string(program).c_str());
            return fd && (program == name || find_program_map(fd->get(), name));
        });
    }

    // One pod talks to the other and to the outside, by both families, without a pause while `act` runs.
    void expect_no_loss(const std::function<void()> &act) const {
        std::vector<std::unique_ptr<EchoServer>> servers;
        std::map<std::string, std::unique_ptr<Stream>> streams;
        for (const bool ipv4 : {true, false}) {
            const ip_addr outside = ip(std::string(ipv4 ? "203.0.113.1" : "2001:db8:cafe::1"));
            for (const auto &[ns, addr] :
                 {std::pair(&second_.ns(), second_.addr(ipv4)), std::pair(&outside_->ns(), outside)}) {
                // Neighbours are known from here on. The one outside may not have joined its group of IPv6 yet.
                EXPECT_TRUE(
                    wait_until([&, &to = addr] { return ping(first_.ns(), to_string(to)); }, std::chrono::seconds(20)))
                    << to_string(addr);
                servers.push_back(std::make_unique<EchoServer>(*ns, ipv4, kPort));
                const test::Endpoint server{addr, kPort};
                streams.emplace(to_string(addr), std::make_unique<Stream>(first_.ns(), Transport::udp, server));
            }
        }
        const auto expect_flowing = [&](const char *when) {
            for (const auto &[to, stream] : streams) {
                const std::uint64_t before = stream->received();
                EXPECT_TRUE(wait_until([&, &one = stream] { return one->received() > before + 100; })) << to << when;
            }
        };
        expect_flowing(" at first");
        act();
        expect_flowing(" at last");
        std::uint64_t lost = 0;
        for (const auto &[to, stream] : streams) {
            const Stream::Account account = stream->end();
            EXPECT_EQ(account.lost, 0U) << to << ", of " << account.sent;
            lost += account.lost;
        }
        if (lost != 0)
            std::cerr << ctl("counter list").out << lost_packets("node", node_.ns())
                      << lost_packets("pod", first_.ns());
    }
    void expect_whole() const {
        for (const Pod *pod : {&first_, &second_})
            EXPECT_THAT(check(*pod, all_), succeeds());
        EXPECT_THAT(ctl("doctor"), prints(0, {"nothing found"}));
    }
    void expect_nothing_left_after_del() const {
        for (const Pod *pod : {&first_, &second_})
            EXPECT_THAT(del(*pod->container, all_), succeeds());
        EXPECT_EQ(everything(), before_);
    }

    [[nodiscard]] Json grouped() const {
        Json keys = all_;
        keys.update({{"ingressRate", 8000000},
                     {"ingressBurst", 64000000},
                     {"limitGroup", "tenant-a"},
                     {"limitGroups", {{"tenant-a", {{"ingressRate", 80000000}}}}}});
        return keys;
    }

    const Json all_ = all_features(100000000000, 4000000000); // a limit that nobody reaches
    std::string before_;
    Pod first_, second_;
};

class LostPin : public LostPins, public testing::WithParamInterface<std::string> {
  protected:
    void SetUp() override {
        if (!fs::exists(path(GetParam())))
            GTEST_SKIP() << "this kernel does not pace";
    }
    // Another pod comes and goes.
    void add_and_del() {
        static const std::set<std::string> kNotNeeded = {PODLANE_MAP_PATHS, PODLANE_MAP_FLOWS, PODLANE_MAP_FORWARDED,
                                                         PODLANE_MAP_EVENTS, PODLANE_MAP_HISTORY};
        const Pod third = make(all_);
        for (const std::string &addr : {second_.text4(), second_.text6()})
            EXPECT_TRUE(ping(third.ns(), addr)) << addr;
        EXPECT_TRUE(fs::exists(path(GetParam())) || kNotNeeded.contains(GetParam()));
        EXPECT_THAT(del(*third.container, all_), succeeds());
    }
};

// The map or program that is still at work has its pin again: nothing is loaded and no hook changes. What the records
// alone know is restored from them.
TEST_P(LostPin, IsRestoredWithoutALostPacket) {
    const bool is_at_work = outlives_its_pin(GetParam());
    {
        SCOPED_TRACE("upgrade");
        expect_no_loss([&] {
            lose(GetParam());
            const Json done = ctl_json("upgrade");
            EXPECT_THAT(done, has_members({{"upgraded", true}}));
            if (is_at_work && GetParam() != PODLANE_PROGRAM_PACE) {
                EXPECT_THAT(done, has_members({{"hooks", 0}, {"pins", Json::array({GetParam()})}}));
            }
            if (!is_at_work) {
                EXPECT_THAT(ctl("repair"), prints(0));
            }
        });
        expect_whole();
    }
    {
        SCOPED_TRACE("repair");
        expect_no_loss([&] {
            lose(GetParam());
            EXPECT_THAT(ctl("repair"), prints(0));
        });
        expect_whole();
    }
    {
        SCOPED_TRACE("ADD and DEL");
        expect_no_loss([&] {
            lose(GetParam());
            add_and_del();
            EXPECT_THAT(ctl("repair"), prints(0)); // of what no ADD needs
        });
        expect_whole();
    }
    expect_nothing_left_after_del();
}

INSTANTIATE_TEST_SUITE_P(Netns, LostPin, testing::ValuesIn(pin_names()), [](const auto &of) { return of.param; });

// An entry that stayed in a map while that had no pin would be there again with the pin, and be nobody's.
TEST_F(LostPins, ADelLeavesNothingInAMapWithoutItsPin) {
    for (const char *name : {PODLANE_MAP_INTERFACES, PODLANE_MAP_ADDRESSES, PODLANE_MAP_COUNTERS, PODLANE_MAP_SOURCES,
                             PODLANE_MAP_BANDWIDTHS, PODLANE_MAP_LIMITS}) {
        SCOPED_TRACE(name);
        const Pod third = make(all_);
        lose(name);
        EXPECT_THAT(del(*third.container, all_), succeeds());
        expect_whole();
    }
    expect_nothing_left_after_del();
}

// The name is lost with the pin: no program works on that map.
TEST_F(LostPins, OfLimitGroupsLeavesNothingAfterTheGroupsLastPod) {
    for (const Pod *pod : {&first_, &second_})
        EXPECT_THAT(del(*pod->container, all_), succeeds());
    const Json keys = grouped();
    for (const std::string by : {"DEL", "a DEL that does not name it", "GC", "a repair before"}) {
        SCOPED_TRACE(by);
        first_ = make(keys);
        second_ = make(keys);
        lose(PODLANE_MAP_LIMIT_GROUPS);
        if (by == "a repair before") { // that takes nothing from the living group
            const Output repaired = ctl("repair");
            EXPECT_THAT(repaired, prints(0));
            for (const char *wrong : {"belongs to no endpoint", "qdisc"})
                EXPECT_EQ(repaired.out.find(wrong), std::string::npos) << repaired.out;
            EXPECT_THAT(check(second_, keys), succeeds());
        }
        EXPECT_THAT(del(*first_.container, keys), succeeds());
        EXPECT_THAT(by == "GC" ? gc() : del(*second_.container, by == "DEL" ? keys : all_), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

// At the calls by which it makes the group, and others.
TEST_F(LostPins, OfLimitGroupsLeavesNothingOfAKilledAdd) {
    for (const Pod *pod : {&first_, &second_})
        EXPECT_THAT(del(*pod->container, all_), succeeds());
    const std::string trace = node_.dir() + "/trace", config = node_.config(grouped()).dump();
    const auto killed_at = [&](int number) {
        EXPECT_THAT(del(*make(grouped()).container, grouped()), succeeds()); // every pin is there
        const auto container = node_.container();
        Variables variables = attachment(*container);
        variables.insert({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
        std::vector<std::string> argv = words("strace -qq -o " + trace + " -e trace=bpf");
        if (number != 0)
            argv.insert(argv.end(), {"-e", "inject=bpf:signal=KILL:when=" + std::to_string(number)});
        argv.push_back(node_.plugins() + "/podlane");
        (void)run(node_.ns(), argv, config, variables);
        fs::remove(path(PODLANE_MAP_LIMIT_GROUPS));
        EXPECT_THAT(del(*container, grouped()), succeeds());
        EXPECT_EQ(everything(), before_) << "killed at " << number;
    };
    killed_at(0);
    const std::string calls = read_file(trace);
    const auto before = std::string_view(calls).substr(0, calls.find("BPF_MAP_UPDATE_ELEM"));
    const auto first = static_cast<int>(std::ranges::count(before, '\n'));
    for (int number = first; number < first + 30; ++number)
        killed_at(number);
}

// A newer podlanectl or plugin restores the pin; to bring the node to its version is left to an upgrade, unless nothing
// else restores the pin.
TEST_F(LostPins, AreRestoredBesideProgramsOfAnotherBuild) {
    std::string other = read_file(variable("PODLANECTL_BIN"));
    const std::string license = "Dual MIT/GPL";
    for (std::size_t at = 0; (at = other.find(license, at)) != std::string::npos; ++at)
        other.replace(at, license.size(), "Dual BSD/GPL");
    const std::string binary = node_.dir() + "/podlanectl";
    std::ofstream(binary) << other;
    fs::permissions(binary, fs::perms::owner_all);
    std::vector<std::string> upgrade = ctl_argv(node_.bpffs(), "upgrade");
    upgrade.front() = binary;
    EXPECT_THAT(run(node_.ns(), upgrade), prints(0));
    EXPECT_FALSE(require(is_current(node_.bpffs())));
    expect_no_loss([&] {
        for (const char *name : {PODLANE_MAP_INTERFACES, PODLANE_PROGRAM_TO_POD}) {
            SCOPED_TRACE(name);
            lose(name);
            const Pod third = make(all_);
            EXPECT_FALSE(require(is_current(node_.bpffs())));
            EXPECT_THAT(check(third, all_), succeeds());
            EXPECT_THAT(del(*third.container, all_), succeeds());
        }
    });
    lose(PODLANE_MAP_LIMIT_GROUPS);
    const Pod third = make(all_);
    EXPECT_TRUE(require(is_current(node_.bpffs())));
    EXPECT_THAT(del(*third.container, all_), succeeds());
    expect_whole();
    expect_nothing_left_after_del();
}

TEST_F(LostPins, EverySecondOneIsRestoredWithoutALostPacket) {
    for (const bool odd : {false, true})
        for (const std::string by : {"upgrade", "repair", "ADD"}) {
            SCOPED_TRACE((odd ? "odd, " : "even, ") + by);
            expect_no_loss([&] {
                bool is_next = odd;
                for (const std::string &name : pin_names())
                    if (std::exchange(is_next, !is_next))
                        fs::remove(path(name));
                if (by == "ADD") {
                    const Pod third = make(all_);
                    EXPECT_THAT(del(*third.container, all_), succeeds());
                } else {
                    EXPECT_THAT(ctl(by), prints(0));
                }
                EXPECT_THAT(ctl("repair"), prints(0));
            });
            expect_whole();
        }
    expect_nothing_left_after_del();
}

// Nothing that is pinned leads to the running programs. They stay on the hooks, with their maps, until a repair has
// inserted what the new ones look up.
TEST_F(LostPins, AllOthersThanThatOfTheEndpointsAreRestoredWithoutALostPacket) {
    expect_no_loss([&] {
        for (const auto &pin : fs::directory_iterator(live_directory(node_.bpffs())))
            if (pin.path().filename() != PODLANE_MAP_ENDPOINTS)
                fs::remove(pin.path());
        EXPECT_THAT(ctl("upgrade"), prints(0));
        EXPECT_THAT(ctl("repair"), prints(0));
    });
    expect_whole();
    expect_nothing_left_after_del();
}

// A program that is nowhere attached, and a map that no program works on.
TEST_F(LostPins, OfANodeWithoutPodsAreRestoredByTheNextAdd) {
    for (const Pod *pod : {&first_, &second_})
        EXPECT_THAT(del(*pod->container, all_), succeeds());
    for (const char *name :
         {PODLANE_MAP_ENDPOINTS, PODLANE_MAP_INTERFACES, PODLANE_MAP_NETWORKS, PODLANE_MAP_UPLINKS,
          PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD, PODLANE_PROGRAM_FROM_UPLINK, PODLANE_PROGRAM_TO_UPLINK}) {
        SCOPED_TRACE(name);
        lose(name);
        first_ = make(all_);
        second_ = make(all_);
        expect_whole();
        expect_nothing_left_after_del();
    }
}

class LostEntry : public LostPins {
  protected:
    void lose_entries() const {
        const Endpoints endpoints = open(&open_endpoints);
        for (const Pod *pod : {&first_, &second_})
            EXPECT_TRUE(require(endpoints.remove(require(make_endpoint_key(pod->container->id(), "eth0")))));
    }
};

// The pods' other entries are no orphans, before and after the one is restored.
TEST_F(LostEntry, OfEndpointsIsRestoredWithoutALostPacket) {
    expect_no_loss([&] {
        lose_entries();
        const Json found = ctl_json("doctor");
        EXPECT_TRUE(find(found, "check", "lost").is_object()) << found.dump(1);
        EXPECT_TRUE(find(found, "check", "orphan").is_null()) << found.dump(1);
        EXPECT_THAT(ctl("repair"), prints(0));
    });
    expect_whole();
    expect_nothing_left_after_del();
}

// Nothing can restore them; they stay connected until they are deleted.
TEST_F(LostEntry, OfEndpointsAndItsRecordCostsNoPacket) {
    expect_no_loss([&] {
        lose_entries();
        for (const auto &record : fs::directory_iterator(AttachmentRecords(kStateDirectory, node_.bpffs()).directory()))
            if (record.path().filename().string().find(":eth0") != std::string::npos)
                fs::remove(record.path());
        EXPECT_THAT(ctl("repair"), prints(1, {"is neither in the maps nor on disk"}));
    });
    for (const Pod *pod : {&first_, &second_}) {
        EXPECT_THAT(del(*pod->container, all_), succeeds());
        EXPECT_TRUE(host_link(*pod).is_null());
    }
}

} // namespace
} // namespace podlane::test
