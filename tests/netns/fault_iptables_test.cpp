// SPDX-License-Identifier: MIT
// A call of iptables(8) to the kernel fails: a DEL or GC that succeeds has removed its rules, and CHECK does not say
// that they are gone. By the iptables that is built on nf_tables, and by the older one.
#include "tests/netns/fault.hpp"

namespace podlane::test {
namespace {

class FaultIptablesTest : public FaultTest {
  protected:
    FaultIptablesTest() {
        fs::create_directory(programs_);
        for (const std::string program : {"iptables", "ip6tables", "iptables-restore", "ip6tables-restore"}) {
            std::ofstream(programs_ + "/" + program)
                << "#!/bin/sh\nif [ $0 = " << programs_ << "/iptables ] && rm " << hit_
                << " 2>/dev/null\nthen exec strace -qq $(cat " << options_ << ") " << multi_ << " " << program
                << " \"$@\"\nfi\nexec " << multi_ << " " << program << " \"$@\"\n";
            fs::permissions(programs_ + "/" + program, fs::perms::owner_all);
        }
        path_ = programs_ + ":" + path_;
    }
    // The first iptables that the next call runs, which lists rules, is run by strace with these options.
    void hit_list(const std::string &options) const {
        std::ofstream(options_) << options;
        std::ofstream(hit_).close();
    }
    // One error at each call by which it reaches the kernel.
    [[nodiscard]] std::vector<Fault> faults_at_list(const std::string &command) {
        const std::string trace = node_.dir() + "/trace";
        hit_list("-o " + trace);
        must(command);
        auto calls = calls_in(trace);
        std::erase_if(calls, [](const SystemCall &one) {
            static const std::vector<std::string> kTalk = {"socket",     "bind",   "getsockname", "setsockopt",
                                                           "getsockopt", "sendto", "sendmsg",     "recvmsg"};
            return std::ranges::find(kTalk, one.name) == kTalk.end();
        });
        const auto errors = faults_at(calls).second;
        EXPECT_FALSE(errors.empty());
        return std::getenv("PODLANE_FAULTS") == nullptr ? one_at_each_call(errors)
                                                        : chosen(errors, GetParam() + " " + command, errors.size());
    }
    [[nodiscard]] Reply call_with(const std::string &command, const Fault &fault) const {
        hit_list("-o /dev/null -e trace=" + fault.call.name + " -e inject=" + fault.call.name + ":" + fault.what +
                 ":when=" + std::to_string(fault.call.number));
        Reply reply = call(command);
        EXPECT_FALSE(fs::exists(hit_)) << "iptables was not run";
        EXPECT_TRUE(reply.rc == 0 || is_sentence(reply)) << reply;
        return reply;
    }

    const std::string programs_ = node_.dir() + "/programs", options_ = node_.dir() + "/options",
                      hit_ = node_.dir() + "/hit";
    const std::string multi_ =
        "/usr/sbin/xtables-" + std::string(GetParam() == "iptables" ? "nft" : "legacy") + "-multi";
};

TEST_P(FaultIptablesTest, ADelOrGcThatSucceedsLeavesNoRule) {
    must("ADD");
    for (const Fault &fault : faults_at_list("DEL")) {
        const std::string command = fault.call.number % 2 == 0 ? "GC" : "DEL";
        SCOPED_TRACE(command + ", " + fault.text());
        must("ADD");
        ASSERT_THAT(everything(), testing::HasSubstr("PODLANE-"));
        const Reply reply = call_with(command, fault);
        EXPECT_TRUE(reply.rc == 0 || reply.message().find("ipMasq") != std::string::npos) << reply;
        if (reply.rc == 0)
            expect_everything(before_);
        expect_clean_after(command);
    }
}

TEST_P(FaultIptablesTest, CheckDoesNotTakeItsRulesForGone) {
    must("ADD");
    for (const Fault &fault : faults_at_list("CHECK")) {
        SCOPED_TRACE("CHECK, " + fault.text());
        EXPECT_NE(call_with("CHECK", fault).code(), 105);
        expect_done("CHECK");
    }
    expect_clean_after("DEL");
}

INSTANTIATE_TEST_SUITE_P(Modes, FaultIptablesTest, testing::Values("iptables", "iptables_legacy"), fault_mode);

} // namespace
} // namespace podlane::test
