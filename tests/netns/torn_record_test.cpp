// SPDX-License-Identifier: MIT
// A record on disk that is torn, gone or another attachment's while the pod lives: doctor, repair and DEL agree.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

#include <sys/mount.h>

#include <fstream>
#include <optional>

namespace podlane::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class TornRecordTest : public CtlTest {
  protected:
    [[nodiscard]] std::string path_of(const Pod &made) const {
        return AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + made.container->id() + ":eth0";
    }
    // The part that the ADD has added after it had begun.
    void tear(const Pod &made) const {
        const std::string whole = must_run(node_.ns(), {"cat", path_of(made)});
        fs::resize_file(path_of(made), whole.rfind("podlane-record ") + 60);
    }
    // Each read of this record fails, as on a file system that is damaged.
    [[nodiscard]] Output run_beside_unread(const Pod &made, const std::vector<std::string> &command,
                                           const std::string &input = {}, const Variables &variables = {}) const {
        auto argv = words("strace -f -qq -o /dev/null -e trace=read -e inject=read:error=EIO -P");
        argv.push_back(path_of(made));
        argv.insert(argv.end(), command.begin(), command.end());
        return run(node_.ns(), argv, input, variables);
    }

    const std::string before_ = everything();
};

// A file in the place of a record, which is torn and cannot be removed.
class StuckRecord {
  public:
    explicit StuckRecord(const std::string &path) : path_(path) {
        std::ofstream(path + ".stuck") << "podlane-record 2 torn\n";
        if (mount((path + ".stuck").c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0)
            throw std::runtime_error("mounting over " + path);
        fs::remove(path + ".stuck");
    }
    ~StuckRecord() { umount2(path_.c_str(), MNT_DETACH); }
    StuckRecord(const StuckRecord &) = delete;
    StuckRecord &operator=(const StuckRecord &) = delete;

  private:
    std::string path_;
};

TEST_F(TornRecordTest, IsNamedByDoctorAndRepairAndDeleted) {
    const Pod made = make({{"ipMasq", true}});
    const Pod whole = make({{"ipMasq", true}});
    tear(made);
    for (const std::string command : {"doctor", "repair"}) {
        const Output output = ctl(command);
        EXPECT_THAT(output, prints(0, {"its record in /var/lib/podlane is torn"})) << command;
        EXPECT_THAT(output.out, Not(HasSubstr("expected a JSON object")));
    }
    EXPECT_THAT(check(made, {{"ipMasq", true}}), succeeds());
    for (const Pod *pod : {&made, &whole})
        EXPECT_THAT(del(*pod->container, {{"ipMasq", true}}), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(TornRecordTest, WithoutTheMapsIsNoLongerInvisible) {
    const Pod made = make();
    tear(made);
    fs::remove_all(node_.bpffs());
    for (const std::string command : {"doctor", "repair"})
        EXPECT_THAT(ctl(command), prints(1, {made.host_ifname + " of container " + made.container->id() + ", eth0 is " +
                                             "not in the maps, and its record on disk is torn"}))
            << command;
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_TRUE(host_link(made).is_null());
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr(made.host_ifname)));
    EXPECT_TRUE(node_.leased().empty());
}

// Another pod's record has the network's configuration.
TEST_F(TornRecordTest, WithoutARecordMasqueradingIsRepairedByAnotherPods) {
    const Json keys = {{"ipMasq", true}, {"noMasquerade", {"192.0.2.0/24"}}};
    const Pod made = make(keys), other = make(keys);
    const std::string rules = node_.run("nft list ruleset");
    fs::remove(path_of(made));
    const std::string says = "that masquerade " + made.host_ifname + " are gone";
    for (const std::string &lost :
         {"nft delete element inet podlane-pods pods4 {" + made.text4() + "}", std::string("nft flush ruleset")}) {
        SCOPED_TRACE(lost);
        node_.run(lost);
        EXPECT_THAT(ctl("doctor"), prints(1, {says}));
        EXPECT_THAT(ctl("repair"), prints(0, {says}));
        EXPECT_THAT(check(made, keys), succeeds());
        EXPECT_EQ(node_.run("nft list ruleset"), rules);
    }
    for (const Pod *pod : {&made, &other})
        EXPECT_THAT(del(*pod->container, keys), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(TornRecordTest, WithoutAnyRecordLostMasqueradingIsWrong) {
    const Pod made = make({{"ipMasq", true}});
    fs::remove(path_of(made));
    EXPECT_THAT(ctl("repair"), prints(0, {"is gone, or cannot be read"}));
    node_.run("nft flush ruleset");
    for (const std::string command : {"doctor", "repair"})
        EXPECT_THAT(ctl(command), prints(1, {"that masquerade " + made.host_ifname + " are gone", "sandbox"}))
            << command;
    EXPECT_THAT(del(*made.container, {{"ipMasq", true}}), succeeds());
    EXPECT_EQ(everything(), before_);
}

// An administrator's copy of a file, or one file in the place of another.
TEST_F(TornRecordTest, OfAnotherNameThanItsAttachmentIsNone) {
    const Pod made = make(), other = make();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    fs::copy_file(path_of(made), path_of(made) + ".bak");
    EXPECT_EQ(require(records.list()).size(), 2U);
    fs::copy_file(path_of(made), path_of(other), fs::copy_options::overwrite_existing);
    EXPECT_EQ(require(records.list()).size(), 1U);
    EXPECT_FALSE(require(records.find(other.container->id(), "eth0")));
    EXPECT_THAT(ctl("doctor"), prints(0, {"is gone, or cannot be read"}));
    EXPECT_THAT(del(*other.container), succeeds());
    EXPECT_FALSE(host_link(made).is_null()) << "the record said its namespace, and its interface";
    EXPECT_THAT(check(made), succeeds());
    fs::remove(path_of(made) + ".bak");
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(TornRecordTest, ThatCannotBeReadCountsAsNoneAndTheOthersAreRestored) {
    const Json keys = {{"ipMasq", true}};
    const Pod unread = make(keys), torn = make(keys), other = make(keys);
    std::optional<StuckRecord> stuck(path_of(torn));
    const auto is_named = has_all({"reading " + path_of(unread) + ": Input/output error",
                                   "removing " + path_of(torn) + ": Device or resource busy"});
    const auto named_by = [&](const std::string &command) {
        const Output output = run_beside_unread(unread, ctl_argv(node_.bpffs(), command));
        EXPECT_EQ(output.rc, 1);
        EXPECT_THAT(output.out, is_named) << command;
    };
    fs::remove_all(node_.bpffs());
    named_by("doctor");
    named_by("repair");
    EXPECT_THAT(check(other, keys), succeeds());
    node_.run("nft flush ruleset");
    named_by("repair");
    EXPECT_THAT(check(other, keys), succeeds());

    fs::remove_all(node_.bpffs());
    const auto later = node_.container();
    Variables variables = attachment(*later);
    variables.insert({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
    const Reply added =
        to_reply(run_beside_unread(unread, {node_.plugins() + "/podlane"}, node_.config(keys).dump(), variables));
    EXPECT_THAT(added, succeeds());
    EXPECT_THAT(added.err, is_named);
    EXPECT_THAT(check(other, keys), succeeds());

    stuck.reset();
    EXPECT_THAT(ctl("repair"), prints(0));
    for (const Pod *pod : {&unread, &torn})
        EXPECT_THAT(check(*pod, keys), succeeds());
    for (const Container *one : {unread.container.get(), torn.container.get(), other.container.get(), later.get()})
        EXPECT_THAT(del(*one, keys), succeeds());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
