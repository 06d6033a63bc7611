// SPDX-License-Identifier: MIT
// A DEL comes before or after an ADD of the same attachment, and whichever is last leaves all or nothing.
#include "tests/netns/add_under_way.hpp"

namespace podlane::test {
namespace {

using DelUnderWayTest = AddUnderWayTest;

TEST_F(DelUnderWayTest, ADelOfItWaitsAndRemovesAll) {
    for (const Variables &more :
         {Variables{}, Variables{{"CNI_NETNS", ""}}, Variables{{"CNI_NETNS", node_.dir() + "/gone"}}}) {
        std::ofstream(asleep_).close();
        fs::remove(noted_);
        sleep_with_lease();
        begin();
        auto deleted = start("DEL", more);
        expect_waits("DEL", deleted);
        end();
        EXPECT_THAT(reply_, succeeds());
        EXPECT_THAT(deleted.get(), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

TEST_F(DelUnderWayTest, ADelWithAnEditedStateDirectoryWaitsAndRemovesAll) {
    sleep_with_lease();
    begin();
    auto deleted = start("DEL", {}, {{"stateDir", node_.dir() + "/state"}});
    expect_waits("DEL", deleted);
    end();
    EXPECT_THAT(reply_, succeeds());
    EXPECT_THAT(deleted.get(), succeeds());
    EXPECT_EQ(everything(), before_);
}

// Its lease would be released beside it.
TEST_F(DelUnderWayTest, AnAddWaitsForADelOfIt) {
    EXPECT_THAT(del(*make().container), succeeds()); // the programs are loaded, which takes longer than the rest
    sleep_in("DEL");
    auto deleted = start("DEL");
    EXPECT_TRUE(wait_until([&] { return fs::exists(noted_); }));
    auto added = start("ADD");
    expect_waits("ADD", added);
    end();
    EXPECT_THAT(deleted.get(), succeeds());
    const Reply reply = added.get();
    ASSERT_THAT(reply, succeeds());
    EXPECT_THAT(check(look_at(container_, reply.json)), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_EQ(node_.records().size(), 1U);
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

// It would remove what the ADD has made.
TEST_F(DelUnderWayTest, AnAddBesideADelThatDoesNotEndFails) {
    EXPECT_THAT(del(*make().container), succeeds());
    sleep_in("DEL");
    auto deleted = start("DEL");
    EXPECT_TRUE(wait_until([&] { return fs::exists(noted_); }));
    const Reply refused = add(*container_);
    EXPECT_THAT(refused, fails_with(11, {"a DEL of container " + container_->id() + ", eth0", "still going on"}));
    EXPECT_THAT(refused.details(), testing::HasSubstr("repeat the ADD"));
    EXPECT_EQ(everything(), before_);
    end();
    EXPECT_THAT(deleted.get(), succeeds());
    const Reply added = add(*container_);
    ASSERT_THAT(added, succeeds());
    EXPECT_THAT(check(look_at(container_, added.json)), succeeds());
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

// Its runtime has given up on the first one, and sends a DEL or none.
TEST_F(DelUnderWayTest, AnAddBesideAnAddThatDoesNotEndFails) {
    node_.put_plugin("host-local", of_add_ + sleeping() + "exec " + real_ + "'\n");
    begin();
    const Reply refused = add(*container_, {{"name", "another"}});
    EXPECT_THAT(refused, fails_with(11, {"another ADD of container " + container_->id() + ", eth0", "still going on"}));
    EXPECT_THAT(refused.details(), testing::HasSubstr("repeat the ADD"));
    end();
    ASSERT_THAT(reply_, succeeds());
    EXPECT_THAT(check(look_at(container_, reply_.json)), succeeds());
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(DelUnderWayTest, ADelThatCouldNotWaitRemovesWhatAnAddHasMadeSince) {
    EXPECT_THAT(del(*make().container), succeeds()); // the turns' file is there
    sleep_in("DEL");
    auto deleted = std::async(std::launch::async, [this] { return del_without_turn(); });
    EXPECT_TRUE(wait_until([&] { return fs::exists(noted_); }));
    EXPECT_THAT(add(*container_), succeeds());
    end();
    EXPECT_THAT(deleted.get(), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(DelUnderWayTest, AnAddThatADelDidNotWaitForFails) {
    for (const Json &keys : {Json::object(), Json{{"keepAddress", "all"}}}) {
        SCOPED_TRACE(keys.dump());
        std::ofstream(asleep_).close();
        fs::remove(noted_);
        sleep_with_lease();
        begin(keys, {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"}});
        EXPECT_THAT(del_without_turn(keys), succeeds());
        end();
        EXPECT_THAT(reply_, fails_with(11, {"a DEL has removed", container_->id(), "eth0"}));
        EXPECT_EQ(everything(), before_);
    }
}

TEST_F(DelUnderWayTest, AnAddWhoseRecordGoesWhileItEndsFails) {
    begin_with_rules({{"clusterCIDRs", {"198.18.0.0/16"}}, {"egress", "cluster"}});
    require(AttachmentRecords(kStateDirectory, node_.bpffs()).erase(container_->id(), "eth0"));
    end();
    EXPECT_THAT(reply_, fails_with(11, {"a DEL has removed", container_->id(), "eth0"}));
    EXPECT_EQ(everything(), before_);
}

TEST_F(DelUnderWayTest, ADelWaitsNoLongerThanTenSeconds) {
    sleep_with_lease();
    begin();
    const std::uint64_t began = monotonic_ns();
    const Reply deleted = del(*container_, {{"log", {{"level", "warning"}}}});
    EXPECT_THAT(deleted, succeeds());
    EXPECT_THAT(deleted.err, testing::HasSubstr("is still going on"));
    EXPECT_GE(monotonic_ns() - began, 10 * kNsPerSecond);
    end();
    EXPECT_THAT(reply_, fails_with(11, {"a DEL has removed"}));
    EXPECT_EQ(everything(), before_);
}

// The upgrade brings the maps to another layout, with what the DEL had not removed yet.
TEST_F(DelUnderWayTest, ADelThatAnUpgradeOvertakesIsRepeated) {
    ASSERT_THAT(add(*container_), succeeds());
    sleep_in("DEL");
    auto deleted = start("DEL");
    EXPECT_TRUE(wait_until([&] { return fs::exists(noted_); }));
    EXPECT_EQ(run(node_.ns(), {variable("PODLANE_NEXT_BIN"), node_.bpffs()}).rc, 0);
    end();
    EXPECT_THAT(deleted.get(), fails_with(11, {"of another version of Podlane"}));
    EXPECT_EQ(node_.records().size(), 1U);
    EXPECT_EQ(node_.podlanectl("upgrade").rc, 0);
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_TRUE(node_.records().empty());
    EXPECT_EQ(size_of(&open_endpoints), 0U);
    EXPECT_EQ(everything(), before_);
}

TEST_F(DelUnderWayTest, ADelOfAnotherInterfaceDoesNotWait) {
    const Variables other = {{"CNI_IFNAME", "net1"}};
    ASSERT_THAT(add(*container_, Json::object(), other), succeeds());
    sleep_with_lease();
    begin();
    const std::uint64_t began = monotonic_ns();
    EXPECT_THAT(del(*container_, Json::object(), other), succeeds());
    EXPECT_LT(monotonic_ns() - began, 5 * kNsPerSecond);
    end();
    EXPECT_THAT(reply_, succeeds());
    EXPECT_THAT(check(look_at(container_, reply_.json)), succeeds());
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

// The ADD would not notice that the DEL found nothing.
TEST_F(DelUnderWayTest, ADelThatFindsNoRecordOfItYetIsToBeRepeated) {
    EXPECT_THAT(del(*make().container), succeeds()); // it loads nothing, and changes no setting
    const std::string before = everything(), podlane = fs::read_symlink(node_.plugins() + "/podlane");
    node_.put_plugin("slow", "#!/bin/sh\nexec strace -qq -o /dev/null -P " + turns_ +
                                 " -e trace=fcntl -e inject=fcntl:delay_exit=14000000:when=1 " + podlane + "\n");
    std::future<Reply> adding = std::async(
        std::launch::async, [&] { return node_.cni("slow", "ADD", node_.config(), attachment(*container_)); });
    ASSERT_TRUE(wait_until([&] { return has_opened_the_turns("ADD"); }));
    EXPECT_THAT(node_.records(), IsEmpty());
    const Reply early = del(*container_);
    EXPECT_THAT(early, fails_with(11, {"an ADD of container", "nothing on record yet"}));
    EXPECT_THAT(adding.get(), succeeds());
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before);
}

} // namespace
} // namespace podlane::test
