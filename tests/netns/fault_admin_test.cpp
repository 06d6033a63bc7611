// SPDX-License-Identifier: MIT
// Faults at what an administrator changes: what a call has begun, the next one ends or rolls back, and none says that
// it has done what it has not.
#include "loader/record.hpp"
#include "tests/netns/fault.hpp"

namespace podlane::test {
namespace {

using testing::HasSubstr;

class FaultAdminTest : public FaultTest {
  protected:
    FaultAdminTest() { config_.erase("runtimeConfig"); }

    // The trace of a call that nothing hits.
    [[nodiscard]] std::string traced(const std::string &command, const std::string &calls) const {
        const std::string trace = node_.dir() + "/trace";
        EXPECT_EQ(call(command, strace({"-e", "trace=" + calls, "-o", trace})).rc, 0) << command;
        return trace;
    }
    [[nodiscard]] std::string classes() const { return container_->run("tc class show dev eth0"); }

    const std::string which_ = " --container " + container_->id();
    const std::string set_ = "bandwidth set" + which_ + " --egress 8M";
    const std::string clear_ = "bandwidth clear" + which_;
};

TEST_P(FaultAdminTest, AKilledLimitLeavesNoContainerShaped) {
    must("ADD");
    const std::string trace = traced(set_, "bpf");
    expect_done(clear_);
    const std::string without = classes();
    ASSERT_THAT(without, HasSubstr("htb"));
    int updates = 0;
    for (int number; (number = number_of("bpf(BPF_MAP_UPDATE_ELEM", "", trace, updates + 1)) != 0; ++updates)
        for (const std::string &next : {clear_, std::string("repair")}) {
            SCOPED_TRACE("bpf " + std::to_string(number) + ", " + next);
            (void)hit(set_, {{"bpf", number}, "signal=KILL"});
            const bool is_listed = Json::parse(call("bandwidth list --json").out).size() != 0;
            if (!is_listed && classes() != without) {
                EXPECT_THAT(call("doctor").out, HasSubstr("has a rate of"));
            }
            expect_done(next);
            if (!is_listed || next == clear_) {
                EXPECT_EQ(classes(), without);
            }
            expect_done("doctor");
            expect_done(clear_);
        }
    EXPECT_GT(updates, 4);
    expect_clean_after("DEL");
}

// libbpf takes a probe that fails for a kernel whose maps cannot be mapped: the program has no variables then.
TEST_P(FaultAdminTest, ALimitIsSetWithoutTheProgramsVariables) {
    must("ADD");
    const int number = number_of("bpf(BPF_MAP_CREATE", "map_name=\"libbpf_mmap", traced(set_, "bpf"));
    if (number == 0)
        GTEST_SKIP() << "no program is loaded for it here";
    for (const char *error : {"error=ENOMEM", "error=EINTR"}) {
        expect_done(clear_);
        const Reply reply = hit(set_, {{"bpf", number}, error});
        EXPECT_EQ(reply.rc, 1) << reply;
        EXPECT_EQ(Json::parse(call("bandwidth list --json").out).size(), 0U);
        expect_done(set_);
    }
    expect_clean_after("DEL");
}

TEST_P(FaultAdminTest, ALeaseThatCannotBeReadIsNotPassedOver) {
    config_["keepAddress"] = "all";
    args_ = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0";
    must("ADD");
    must("DEL");
    const std::string record = AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" +
                               record_file_name(container_->id(), "eth0");
    ASSERT_TRUE(fs::exists(record));
    // `list` has read it before, to release it if its time is over.
    for (const auto &[command, when] : {std::pair{"lease list", "2"}, {"lease release --all", "1"}}) {
        const Reply reply =
            call(command,
                 strace({"-o", "/dev/null", "-P", record, "-e", std::string("inject=openat:error=EIO:when=") + when}));
        EXPECT_EQ(reply.rc, 1) << reply;
        EXPECT_THAT(reply.err, testing::AllOf(HasSubstr(record), HasSubstr("Input/output error")));
    }
    expect_done("lease release --all");
    expect_everything(before_);
}

// The error of reading the pins is no verdict on what they are.
TEST_P(FaultAdminTest, ExplainNamesWhatItCouldNotRead) {
    must("ADD");
    const std::string explain = "explain --from " + container_->id() + " --to 192.0.2.1";
    const std::string trace = traced(explain, "newfstatat");
    const int number = number_of("newfstatat(", "/live/" + std::string(kMapNames.front()), trace);
    ASSERT_GT(number, 0);
    const Reply reply = hit(explain, {{"newfstatat", number}, "error=EIO"});
    EXPECT_EQ(reply.rc, 1) << reply;
    EXPECT_THAT(reply.err, HasSubstr("Input/output error"));
    expect_clean_after("DEL");
}

INSTANTIATE_TEST_SUITE_P(Modes, FaultAdminTest, testing::Values("main"), [](const auto &info) { return info.param; });

} // namespace
} // namespace podlane::test
