// SPDX-License-Identifier: MIT
// DEL and GC remove all that they can read of an attachment, report the rest, and leave the records for the next call.
#include "loader/record.hpp"
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

class UnreadableTest : public VerbsTest {
  protected:
    // In the place of a pin; BPF_OBJ_GET fails with EACCES.
    class DirectoryInPlace {
      public:
        DirectoryInPlace(const Node &node, const std::string &name)
            : pin_(pin_path(node.bpffs(), name)), aside_(node.bpffs() + "/aside") {
            fs::rename(pin_, aside_);
            fs::create_directory(pin_);
        }
        ~DirectoryInPlace() {
            fs::remove(pin_);
            fs::rename(aside_, pin_);
        }
        DirectoryInPlace(const DirectoryInPlace &) = delete;
        DirectoryInPlace &operator=(const DirectoryInPlace &) = delete;

      private:
        std::string pin_, aside_;
    };

    [[nodiscard]] std::string path_of(const Pod &made) const {
        return AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + made.container->id() + ":eth0";
    }
    Reply del_text(const Pod &made, const std::string &text, const Variables &more = {}) const {
        Variables all = attachment(*made.container);
        for (const auto &[name, value] : more)
            all[name] = value;
        return node_.cni_text("podlane", "DEL", text, all);
    }
    // But for what only the maps lead to. Without the map of addresses they may be another's, or packets be led to
    // them.
    void expect_removed(const Pod &made, const std::string &unread = {}) const {
        EXPECT_TRUE(host_link(made).is_null());
        if (unread == PODLANE_MAP_ADDRESSES) {
            EXPECT_THAT(node_.leased(), testing::IsSupersetOf({made.text4(), made.text6()}));
            return;
        }
        EXPECT_THAT(node_.run("nft list ruleset"), testing::Not(HasSubstr(made.text4())));
        for (const std::string &lease : node_.leased())
            EXPECT_THAT((std::vector{made.text4(), made.text6()}), testing::Not(testing::Contains(lease)));
    }

    const Json all_ = all_features();
    const std::string before_ = everything();
};

TEST_F(UnreadableTest, DelRemovesTheRestBesideAMapThatCannotBeOpened) {
    for (const std::string name : {PODLANE_MAP_ENDPOINTS, PODLANE_MAP_ADDRESSES, PODLANE_MAP_INTERFACES,
                                   PODLANE_MAP_NETWORKS, PODLANE_MAP_UPLINKS, PODLANE_MAP_COUNTERS}) {
        SCOPED_TRACE(name);
        const Pod made = make(all_);
        {
            const DirectoryInPlace instead(node_, name);
            for (int i = 0; i < 2; ++i) {
                EXPECT_THAT(del(*made.container, all_), fails_with(101, {"opening map", name}));
                expect_removed(made, name);
            }
        }
        EXPECT_EQ(node_.records().size(), 1U);
        EXPECT_THAT(del(*made.container, all_), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

TEST_F(UnreadableTest, GcRemovesTheRestBesideAMapThatCannotBeOpened) {
    for (const std::string name : {PODLANE_MAP_ENDPOINTS, PODLANE_MAP_ADDRESSES, PODLANE_MAP_NETWORKS}) {
        SCOPED_TRACE(name);
        const Pod living = make(all_), dead = make(all_), also_dead = make(all_);
        {
            const DirectoryInPlace instead(node_, name);
            EXPECT_THAT(gc({&living}, all_), fails_with(101, {"opening map", name}));
            expect_removed(dead, name);
            expect_removed(also_dead, name);
        }
        EXPECT_EQ(node_.records().size(), 3U);
        EXPECT_THAT(gc({&living}, all_), succeeds());
        EXPECT_THAT(check(living, all_), succeeds());
        EXPECT_THAT(del(*living.container, all_), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

// It says which interfaces are endpoints'.
TEST_F(UnreadableTest, GcLeavesTheLivingAloneWithoutTheMapOfEndpoints) {
    const Pod living = make(all_);
    fs::remove(pin_path(node_.bpffs(), PODLANE_MAP_ENDPOINTS));
    EXPECT_THAT(gc({&living}, all_), succeeds());
    EXPECT_EQ(size_of(&open_addresses), 2U);
    EXPECT_EQ(size_of(&open_interfaces), 1U);
}

// The programs have it without its pin.
TEST_F(UnreadableTest, DelWithoutThePinOfSlotsErasesSlotsAndRoutes) {
    const Json keys = {{"uplink", "up0"}, {"gateway", {"203.0.113.1", "2001:db8:cafe::1"}}};
    const Pod made = make(keys);
    ASSERT_GT(size_of(&open_source_routes), 0U);
    fs::remove(pin_path(node_.bpffs(), PODLANE_MAP_SOURCE_SLOTS));
    EXPECT_THAT(del(*made.container, keys), succeeds());
    EXPECT_EQ(size_of(&open_source_routes), 0U);
    EXPECT_EQ(size_of(&open_source_slots), 0U);
}

// The namespace that the programs were loaded in is gone, or another node's.
TEST_F(UnreadableTest, GcReleasesTheLeasesOfRecordsBesideTheMapsOfAnotherNamespace) {
    const Pod living = make(all_), dead = make(all_), of_other = make(all_);
    const std::string link = node_.bpffs() + "/live/netns", own = fs::read_symlink(link);
    fs::remove(link);
    fs::create_symlink("1", link);
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = *require(records.find(of_other.container->id(), "eth0"));
    record.node_netns = 1;
    require(records.write(record));
    EXPECT_THAT(gc({&living}, all_), fails_with(50, {"belongs to network namespace 1"}));
    expect_removed(dead);
    EXPECT_FALSE(host_link(living).is_null());
    EXPECT_FALSE(host_link(of_other).is_null());
    EXPECT_EQ(node_.records().size(), 2U);
    EXPECT_EQ(node_.leased().size(), 4U);
    fs::remove(link);
    fs::create_symlink(own, link);
    for (const Pod *pod : {&living, &dead, &of_other})
        EXPECT_THAT(del(*pod->container, all_), succeeds());
    EXPECT_EQ(everything(), before_);
}

// The maps know it by container ID and interface name, and other pods' records name their root.
TEST_F(UnreadableTest, DelWithoutRecordAndConfigurationRemovesWhatTheMapsKnow) {
    const Pod other = make(all_);
    const std::string with_other = everything();
    for (const std::string later : {"DEL", "GC"}) {
        SCOPED_TRACE(later);
        const Pod made = make(all_);
        fs::remove(path_of(made));
        for (int i = 0; i < 2; ++i)
            EXPECT_THAT(del_text(made, "{"), fails_with(6, {"no record says which IPAM plugin has the lease"}));
        EXPECT_TRUE(host_link(made).is_null());
        EXPECT_EQ(size_of(&open_addresses), 2U);
        EXPECT_EQ(node_.leased().size(), 4U);
        EXPECT_THAT(later == "GC" ? gc({&other}, all_) : del(*made.container, all_), succeeds());
        EXPECT_EQ(everything(), with_other);
    }
    // Without a lease of Podlane's nothing is left.
    Json chained = all_;
    chained.update({{"ipam", nullptr}, {"prevResult", {{"ips", {{{"address", "198.18.9.77/24"}}}}}}});
    const Pod made = make(chained);
    fs::remove(path_of(made));
    EXPECT_THAT(del_text(made, ""), succeeds());
    EXPECT_EQ(everything(), with_other);
}

// Its alias says whose it is.
TEST_F(UnreadableTest, DelWithoutRecordMapsAndConfigurationRemovesTheInterface) {
    const Pod made = make();
    fs::remove(path_of(made));
    fs::remove_all(node_.bpffs());
    EXPECT_THAT(del_text(made, "{"), fails_with(6, {"no record says"}));
    EXPECT_TRUE(host_link(made).is_null());
    EXPECT_THAT(del_text(made, "{"), fails_with(6));
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_TRUE(node_.leased().empty());
}

// The record knows where the IPAM plugin was.
TEST_F(UnreadableTest, DelWithoutCniPathRemovesAllAndSaysThatItIsMissing) {
    const Pod made = make(all_), other = make(all_);
    EXPECT_THAT(del(*made.container, all_, {{"CNI_PATH", ""}}), fails_with(4, {"CNI_PATH"}));
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = *require(records.find(other.container->id(), "eth0"));
    record.path.clear();
    require(records.write(record));
    EXPECT_THAT(del(*other.container, all_, {{"CNI_PATH", ""}}), fails_with(4, {"CNI_PATH"}));
    expect_removed(made);
    EXPECT_TRUE(host_link(other).is_null());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_TRUE(require(records.find(other.container->id(), "eth0"))->only_lease);
    EXPECT_THAT(del(*other.container, all_), succeeds());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
