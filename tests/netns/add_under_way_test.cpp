// SPDX-License-Identifier: MIT
// Beside an ADD that takes long, GC leaves it its lease and its interface; of one that is killed nothing goes on. A DEL
// of the same attachment comes before or after it, and whichever is last leaves all or nothing.
#include "loader/record.hpp"
#include "maps/clock.hpp"
#include "tests/netns/verbs.hpp"

#include <future>
#include <thread>

namespace podlane::test {
namespace {

class AddUnderWayTest : public VerbsTest {
  protected:
    AddUnderWayTest() { std::ofstream(asleep_).close(); }
    ~AddUnderWayTest() override { end(); }

    // Sleeps while the file is there, in a program of its own. Notes who that is, and who has called the script.
    [[nodiscard]] std::string sleeping() const {
        return "PARENT=$PPID sh -c 'echo $PARENT $$ >" + noted_ + ".new; mv " + noted_ + ".new " + noted_ +
               "; while [ -e " + asleep_ + " ]; do sleep 0.01; done; ";
    }
    void begin(const Json &keys = Json::object(), const Variables &more = {}) {
        adding_ = std::thread([this, keys, more] { reply_ = add(*container_, keys, more); });
        ASSERT_TRUE(wait_until([&] { return fs::exists(noted_); }));
        std::ifstream(noted_) >> caller_ >> sleeper_;
    }
    // Once it has opened their file, a call has seen whether another one has its turn, or is about to.
    [[nodiscard]] bool has_opened_the_turns(const std::string &verb) const {
        for (const auto &process : fs::directory_iterator("/proc")) {
            std::error_code gone;
            std::ifstream file(process.path() / "environ");
            const std::string environment(std::istreambuf_iterator<char>(file), {});
            if (environment.find("CNI_COMMAND=" + verb) == std::string::npos ||
                environment.find(node_.dir()) == std::string::npos)
                continue;
            for (fs::directory_iterator fd(process.path() / "fd", gone); !gone && fd != fs::directory_iterator();
                 fd.increment(gone))
                if (fs::read_symlink(fd->path(), gone) == turns_)
                    return true;
        }
        return false;
    }
    // Of the same attachment.
    void expect_waits(const std::string &verb, std::future<Reply> &call) const {
        const auto is_done = [&] { return call.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
        EXPECT_TRUE(wait_until([&] { return is_done() || has_opened_the_turns(verb); }));
        EXPECT_EQ(call.wait_for(quiet()), std::future_status::timeout) << verb << " does not wait";
    }
    [[nodiscard]] std::future<Reply> start(const std::string &verb, const Variables &more = {},
                                           const Json &keys = Json::object()) const {
        return std::async(std::launch::async,
                          [this, verb, more, keys] { return node_.cni(verb, node_.config(keys), *container_, more); });
    }
    // With a file of its own, as if it could not open that of the others.
    [[nodiscard]] Reply del_without_turn(const Json &keys = Json::object()) const {
        node_.put_plugin("without-turn", "#!/bin/sh\nexec unshare -m sh -c 'mount --bind /dev/null " + turns_ +
                                             " && exec " + node_.plugins() + "/podlane'\n");
        Variables variables = attachment(*container_);
        variables["CNI_NETNS"] = "";
        return node_.cni("without-turn", "DEL", node_.config(keys), variables);
    }
    // Asleep in nft, after the endpoint is on record.
    void begin_with_rules(const Json &keys, Variables more = {}) {
        const std::string tools = node_.dir() + "/tools", path = "/usr/sbin:/usr/bin:/sbin:/bin";
        fs::create_directory(tools);
        node_.put_plugin("nft", "#!/bin/sh\n" + sleeping() + "exec /usr/sbin/nft -f -'\n");
        fs::rename(node_.plugins() + "/nft", tools + "/nft");
        more["PATH"] = tools + ":" + path;
        begin(keys, more);
    }
    void sleep_in(const std::string &verb) const {
        node_.put_plugin("host-local", "#!/bin/sh\n[ $CNI_COMMAND = " + verb + " ] || exec " + real_ + "\n" +
                                           sleeping() + "exec " + real_ + "'\n");
    }
    // After its lease is there.
    void sleep_with_lease() const {
        node_.put_plugin("host-local", of_add_ + "lease=$(" + real_ + ")\n" + sleeping() + "true'\necho \"$lease\"\n");
    }
    void end() {
        fs::remove(asleep_);
        if (adding_.joinable())
            adding_.join();
    }
    [[nodiscard]] bool is_over(pid_t pid) const {
        std::string word, state;
        std::ifstream("/proc/" + std::to_string(pid) + "/stat") >> word >> word >> state;
        return state.empty() || state == "Z";
    }

    const std::string real_ = variable("CNI_PLUGINS") + "/host-local";
    const std::string of_add_ = "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exec " + real_ + "\n";
    const std::string asleep_ = node_.dir() + "/asleep", noted_ = node_.dir() + "/noted";
    const std::string turns_ = std::string(kStateDirectory) + "/.turns";
    const std::shared_ptr<Container> container_ = node_.container();
    const std::string before_ = everything();
    std::thread adding_;
    Reply reply_;
    pid_t caller_ = 0, sleeper_ = 0;
};

TEST_F(AddUnderWayTest, ThePluginsOfAKilledAddAllocateNothingAfterItsDel) {
    node_.put_plugin("host-local", of_add_ + sleeping() + "exec " + real_ + "'\n");
    begin();
    kill(caller_, SIGKILL);
    adding_.join();
    EXPECT_THAT(del(*container_), succeeds());
    end();
    EXPECT_TRUE(wait_until([&] { return is_over(sleeper_); }));
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_EQ(everything(), before_);
}

// Its lease is there, and Podlane does not know it yet.
TEST_F(AddUnderWayTest, GcLeavesTheLeaseAsLongAsTheIpamPluginMayTake) {
    sleep_with_lease();
    begin({{"ipamTimeout", 300}});
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = *require(records.find(container_->id(), "eth0"));
    record.created_boottime_ns -= std::min(200 * kNsPerSecond, record.created_boottime_ns - 1);
    require(records.write(record));
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_EQ(node_.records().size(), 1U);
    end();
    EXPECT_THAT(reply_, succeeds());
    EXPECT_THAT(check(look_at(container_, reply_.json)), succeeds());
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(everything(), before_);
}

// The container's other interface is whole beside it, and after it was killed; of an isolated one, the addresses come
// early.
TEST_F(AddUnderWayTest, AnotherInterfaceOfTheContainerIsWhole) {
    const Reply first = add(*container_);
    ASSERT_THAT(first, succeeds());
    const Pod made = look_at(container_, first.json);
    for (const Json &isolation : {Json::object(), Json{{"isolation", "network"}}}) {
        Json keys = {{"name", "second"},
                     {"ipam", {{"ranges", {{{{"subnet", "198.18.44.0/24"}}}}}}},
                     {"clusterCIDRs", {"198.18.0.0/16"}},
                     {"ipMasq", true}};
        keys.update(isolation);
        const Variables net1 = {{"CNI_IFNAME", "net1"}};
        std::ofstream(asleep_).close();
        caller_ = 0;
        begin_with_rules(keys, net1);
        ASSERT_GT(caller_, 0) << reply_;
        EXPECT_THAT(check(made), succeeds());
        kill(caller_, SIGKILL);
        end();
        EXPECT_THAT(check(made), succeeds()) << isolation;
        (void)node_.podlanectl("repair"); // the container's second interface is not all it was to be
        EXPECT_THAT(check(made), succeeds()) << isolation;
        EXPECT_THAT(del(*container_, keys, net1), succeeds());
        EXPECT_THAT(check(made), succeeds());
        fs::remove(noted_);
        fs::remove_all(node_.dir() + "/tools");
    }
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

// In a time namespace a runtime's clock may be ahead.
TEST_F(AddUnderWayTest, GcLeavesTheLeaseOfAnAddOfATimeToCome) {
    sleep_with_lease();
    begin();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = *require(records.find(container_->id(), "eth0"));
    record.created_boottime_ns += 1000 * kNsPerSecond;
    require(records.write(record));
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    end();
    EXPECT_THAT(reply_, succeeds());
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(AddUnderWayTest, GcLeavesTheInterface) {
    const Json keys = {{"clusterCIDRs", {"198.18.0.0/16"}}, {"egress", "cluster"}};
    const Pod other = make({{"clusterCIDRs", {"198.18.0.0/16"}}});
    begin_with_rules(keys);
    EXPECT_THAT(gc({&other}), succeeds());
    end();
    ASSERT_THAT(reply_, succeeds());
    EXPECT_THAT(check(look_at(container_, reply_.json), keys), succeeds());
    EXPECT_THAT(gc({&other}), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(AddUnderWayTest, ADelOfItWaitsAndRemovesAll) {
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

TEST_F(AddUnderWayTest, ADelWithAnEditedStateDirectoryWaitsAndRemovesAll) {
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
TEST_F(AddUnderWayTest, AnAddWaitsForADelOfIt) {
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
TEST_F(AddUnderWayTest, AnAddBesideADelThatDoesNotEndFails) {
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
TEST_F(AddUnderWayTest, AnAddBesideAnAddThatDoesNotEndFails) {
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

TEST_F(AddUnderWayTest, ADelThatCouldNotWaitRemovesWhatAnAddHasMadeSince) {
    EXPECT_THAT(del(*make().container), succeeds()); // the turns' file is there
    sleep_in("DEL");
    auto deleted = std::async(std::launch::async, [this] { return del_without_turn(); });
    EXPECT_TRUE(wait_until([&] { return fs::exists(noted_); }));
    EXPECT_THAT(add(*container_), succeeds());
    end();
    EXPECT_THAT(deleted.get(), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(AddUnderWayTest, AnAddThatADelDidNotWaitForFails) {
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

TEST_F(AddUnderWayTest, AnAddWhoseRecordGoesWhileItEndsFails) {
    begin_with_rules({{"clusterCIDRs", {"198.18.0.0/16"}}, {"egress", "cluster"}});
    require(AttachmentRecords(kStateDirectory, node_.bpffs()).erase(container_->id(), "eth0"));
    end();
    EXPECT_THAT(reply_, fails_with(11, {"a DEL has removed", container_->id(), "eth0"}));
    EXPECT_EQ(everything(), before_);
}

TEST_F(AddUnderWayTest, ADelWaitsNoLongerThanTenSeconds) {
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
TEST_F(AddUnderWayTest, ADelThatAnUpgradeOvertakesIsRepeated) {
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

TEST_F(AddUnderWayTest, ADelOfAnotherInterfaceDoesNotWait) {
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
TEST_F(AddUnderWayTest, ADelThatFindsNoRecordOfItYetIsToBeRepeated) {
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

// It has opened the maps, and does not find their pins when it takes the lock.
TEST_F(AddUnderWayTest, AnUninstallBesideItIsATransientError) {
    node_.put_plugin("host-local", of_add_ + variable("PODLANECTL_BIN") + " --bpffs " + node_.bpffs() +
                                       " uninstall --conf-dir " + node_.dir() + " --bin-dir " + node_.dir() +
                                       " >&2 || exit 1\nexec " + real_ + "\n");
    const Reply reply = add(*container_);
    EXPECT_THAT(reply, fails_with(11, {"the programs below " + node_.bpffs() + " were removed during this call"}));
    EXPECT_THAT(reply.details(), HasSubstr("repeat the call"));
    node_.put_plugin("host-local", "#!/bin/sh\nexec " + real_ + "\n");
    EXPECT_THAT(add(*container_), succeeds());
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

// A call that has seen the pins, and finds their directory gone when it takes its lock.
TEST_F(AddUnderWayTest, AnUninstallBesideOtherVerbsIsATransientErrorToo) {
    const std::string podlane = fs::read_symlink(node_.plugins() + "/podlane");
    const auto call = [&](const Pod &made, const std::string &verb, int opening) {
        node_.put_plugin("podlane", "#!/bin/sh\nexec strace -qq -o /dev/null -P " + node_.bpffs() +
                                        " -e trace=openat -e inject=openat:error=ENOENT:when=" +
                                        std::to_string(opening) + " " + podlane + "\n");
        const Reply reply = verb == "GC" ? gc() : verb == "CHECK" ? check(made) : del(*made.container);
        node_.put_plugin("podlane", "#!/bin/sh\nexec " + podlane + "\n");
        return reply;
    };
    for (const std::string verb : {"CHECK", "DEL", "GC"}) {
        int refused = 0;
        for (int opening = 1; opening <= 6; ++opening) {
            SCOPED_TRACE(verb + " " + std::to_string(opening));
            const Pod made = make();
            const Reply reply = call(made, verb, opening);
            if (reply.rc != 0) {
                ++refused;
                EXPECT_THAT(reply, fails_with(11, {"the programs below " + node_.bpffs() + " were removed"}));
                EXPECT_THAT(reply.details(), HasSubstr("repeat the call"));
            }
            EXPECT_THAT(del(*made.container), succeeds());
            EXPECT_EQ(everything(), before_);
        }
        EXPECT_GT(refused, 0) << verb;
    }
}

// The directories of records and pins are root's alone, and root's to use.
TEST_F(AddUnderWayTest, TheUmaskOfTheRuntimeIsOfNoEffect) {
    const std::string podlane = fs::read_symlink(node_.plugins() + "/podlane"), state = node_.dir() + "/state/below";
    node_.put_plugin("masked", "#!/bin/sh\numask 0777\nexec " + podlane + "\n");
    const Json config = node_.config({{"stateDir", state}, {"cniVersion", "1.1.0"}});
    EXPECT_THAT(node_.cni("masked", "STATUS", config), succeeds());
    for (const std::string &path : {state, node_.dir() + "/state", node_.bpffs()})
        EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all) << path;
}

} // namespace
} // namespace podlane::test
