// SPDX-License-Identifier: MIT
// Beside an ADD that takes long, GC leaves it its lease and its interface; of one that is killed nothing goes on.
#include "loader/record.hpp"
#include "maps/clock.hpp"
#include "tests/netns/verbs.hpp"

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
    node_.put_plugin("host-local", of_add_ + "lease=$(" + real_ + ")\n" + sleeping() + "true'\necho \"$lease\"\n");
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

TEST_F(AddUnderWayTest, GcLeavesTheInterface) {
    const Json keys = {{"clusterCIDRs", {"198.18.0.0/16"}}, {"egress", "cluster"}};
    const Pod other = make({{"clusterCIDRs", {"198.18.0.0/16"}}});
    const std::string tools = node_.dir() + "/tools", path = "/usr/sbin:/usr/bin:/sbin:/bin";
    fs::create_directory(tools);
    node_.put_plugin("nft", "#!/bin/sh\n" + sleeping() + "exec /usr/sbin/nft -f -'\n");
    fs::rename(node_.plugins() + "/nft", tools + "/nft");
    begin(keys, {{"PATH", tools + ":" + path}});
    EXPECT_THAT(gc({&other}), succeeds());
    end();
    ASSERT_THAT(reply_, succeeds());
    EXPECT_THAT(check(look_at(container_, reply_.json), keys), succeeds());
    EXPECT_THAT(gc({&other}), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
