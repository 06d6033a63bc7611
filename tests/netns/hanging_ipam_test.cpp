// SPDX-License-Identifier: MIT
// An IPAM plugin that hangs when leases are released: what it costs calls, of its own network and of others.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

#include <algorithm>
#include <future>

namespace podlane::test {
namespace {

class HangingIpamTest : public CtlTest {
  protected:
    HangingIpamTest() {
        std::ofstream(calls_).close();
        node_.put_plugin("slow-ipam", "#!/bin/sh\n[ $CNI_COMMAND != DEL ] || echo $CNI_CONTAINERID >>" + calls_ +
                                          "\nwhile [ $CNI_COMMAND = DEL ] && [ -e " + hangs_ +
                                          " ]; do sleep 0.05; done\nexec " + variable("CNI_PLUGINS") + "/host-local\n");
    }
    [[nodiscard]] static Json keys(int timeout_s = 30) {
        return {{"ipam", {{"type", "slow-ipam"}}}, {"keepAddress", "all"}, {"ipamTimeout", timeout_s}};
    }
    // A pod whose lease is held.
    Pod come_and_go(const Json &keys) {
        Pod made = make(keys, web_);
        EXPECT_THAT(del(*made.container, keys, web_), succeeds());
        return made;
    }
    // As of an ADD with another "ipamTimeout", and with the time of the lease over or not.
    void change_record(const Pod &made, int timeout_s, bool is_over) const {
        const AttachmentRecords records(kStateDirectory, node_.bpffs());
        AttachmentRecord record = *require(records.find(made.container->id(), "eth0"));
        Json config = Json::parse(record.config);
        config["ipamTimeout"] = timeout_s;
        record.config = config.dump();
        if (is_over)
            record.held_until_ns = record.held_since_ns + 1;
        require(records.write(record));
    }
    [[nodiscard]] std::string held_file(const Pod &made) const {
        return AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/.held/" + made.container->id() +
               ":eth0";
    }
    // So that a machine that is busy makes none meanwhile.
    void put_off_the_next_try(const Pod &made, bool is_over) const {
        change_record(made, 60, is_over);
        fs::last_write_time(held_file(made), fs::file_time_type::clock::now() + std::chrono::minutes(5));
    }
    void hang() const { std::ofstream(hangs_).close(); }
    [[nodiscard]] std::ptrdiff_t releases() const {
        const std::string calls = read_file(calls_);
        return std::ranges::count(calls, '\n');
    }

    const std::string calls_ = node_.dir() + "/calls", hangs_ = node_.dir() + "/hangs";
    const std::string before_ = everything();
    const Variables web_ = named("shop", "web-0");
    const Json others_ = {{"name", "others"}, {"ipam", {{"ranges", {{{{"subnet", "198.18.30.0/24"}}}}}}}};
};

TEST_F(HangingIpamTest, OnlyItsOwnNetworkTriesToReleaseAnExpiredLeaseAndNotEachCall) {
    const Pod gone = come_and_go(keys());
    change_record(gone, slow() ? 10 : 1, true);
    hang();
    const Pod other = make(others_);
    EXPECT_THAT(del(*other.container, others_), succeeds());
    EXPECT_EQ(releases(), 0) << "by another network";
    const Pod added = make(keys());
    EXPECT_EQ(releases(), 1);
    put_off_the_next_try(gone, true);
    const Pod later = make(keys());
    const auto unknown = node_.container();
    EXPECT_THAT(del(*unknown, {{"ipam", nullptr}}), succeeds());
    EXPECT_EQ(releases(), 1);
    EXPECT_EQ(node_.leased().size(), 6U) << "with those of the pod that is gone";
    fs::remove(hangs_);
    // Of a network that nobody calls any more, too; whenever the last try was.
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"removed"}));
    EXPECT_EQ(node_.leased().size(), 4U);
    for (const Pod *made : {&added, &later})
        EXPECT_THAT(del(*made->container, keys()), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(HangingIpamTest, OthersRequestTheirLeasesMeanwhile) {
    const Pod before = come_and_go(keys(60));
    hang();
    auto returning = std::async(std::launch::async, [&] { return make(keys(60), web_); });
    EXPECT_TRUE(wait_until([&] { return releases() == 1; })) << "before it requests the same addresses";
    const auto container = node_.container();
    const Reply added = add(*container, others_);
    EXPECT_EQ(returning.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    fs::remove(hangs_);
    EXPECT_THAT(added, succeeds());
    EXPECT_EQ(returning.get().text4(), before.text4());
}

// Each repetition would hold up the network's other ADDs.
TEST_F(HangingIpamTest, APodWhoseAddressesAreNotReleasedWaitsAndNobodyElseDoes) {
    const Pod before = come_and_go(keys());
    change_record(before, slow() ? 10 : 1, false);
    hang();
    const auto container = node_.container();
    const auto began = fs::file_time_type::clock::now();
    EXPECT_THAT(add(*container, keys(), web_), fails_with(11, {"did not finish within"}));
    EXPECT_GT(fs::last_write_time(held_file(before)), began + std::chrono::seconds(9));
    put_off_the_next_try(before, false);
    const std::ptrdiff_t tried = releases();
    EXPECT_THAT(add(*container, keys(), web_), fails_with(11, {"did not release the lease", "shop/web-0"}));
    const Pod other = make(keys());
    EXPECT_EQ(releases(), tried);
    fs::remove(hangs_);
    EXPECT_THAT(ctl("lease release shop/web-0"), prints(0, {"released " + before.text4()}));
    EXPECT_THAT(add(*container, keys(), web_), succeeds());
    EXPECT_THAT(del(*container, keys(), web_), succeeds());
    EXPECT_THAT(del(*other.container, keys()), succeeds());
    EXPECT_THAT(ctl("lease release shop/web-0"), prints(0, {"released"}));
    EXPECT_EQ(everything(), before_);
}

// The record of the lease says it.
TEST_F(HangingIpamTest, ALaterReleaseHasTheTimeOfItsAdd) {
    const Pod held = come_and_go(keys()), dead = make(keys());
    change_record(held, 1, false);
    change_record(dead, 1, false);
    lose_namespace(dead);
    hang();
    EXPECT_THAT(ctl("lease release shop/web-0"), complains(1, {"did not finish within 1000 ms", "more than 1"}));
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(1, {"failed: ", "did not finish within 1000 ms"}));
    EXPECT_THAT(gc({}, {{"ipam", nullptr}}), fails_with(11, {"did not finish within 1000 ms"}));
    // An administrator may have given it more since.
    EXPECT_THAT(del(*dead.container, keys(2)), fails_with(11, {"did not finish within 2000 ms"}));
    fs::remove(hangs_);
    EXPECT_THAT(del(*dead.container, keys()), succeeds());
    EXPECT_THAT(ctl("lease release --all"), prints(0, {"released " + held.text4()}));
    EXPECT_EQ(everything(), before_);
}

// Each DEL waits for that of the other pod: one after the other, the first would not finish.
TEST_F(HangingIpamTest, LeasesOfSeveralDeadPodsAreReleasedAtATime) {
    if (std::thread::hardware_concurrency() < 2)
        GTEST_SKIP() << "one processor has one thread";
    node_.put_plugin("meeting-ipam", "#!/bin/sh\n[ $CNI_COMMAND != DEL ] || echo $CNI_CONTAINERID >>" + calls_ +
                                         "\nwhile [ $CNI_COMMAND = DEL ] && [ $(wc -l <" + calls_ +
                                         ") -lt 2 ]; do sleep 0.05; done\nexec " + variable("CNI_PLUGINS") +
                                         "/host-local\n");
    const Json keys = {{"ipam", {{"type", "meeting-ipam"}}}};
    const std::string nowhere = node_.dir() + "/nowhere";
    for (const std::string &by :
         {"gc --bin-dir " + node_.plugins(), "uninstall --bin-dir " + nowhere + " --conf-dir " + nowhere}) {
        SCOPED_TRACE(by);
        const Pod one = make(keys), two = make(keys);
        fs::remove(calls_);
        lose_namespace(one);
        lose_namespace(two);
        EXPECT_THAT(ctl(by), prints(0, {one.container->id().substr(0, 12)}));
        EXPECT_EQ(releases(), 2);
        EXPECT_THAT(node_.leased(), testing::IsEmpty());
        EXPECT_THAT(node_.records(), testing::IsEmpty());
    }
}

} // namespace
} // namespace podlane::test
