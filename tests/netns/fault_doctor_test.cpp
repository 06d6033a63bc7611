// SPDX-License-Identifier: MIT
// A podlanectl that examines a broken node, and fails at any of its system calls: it reports what is broken, or says
// what it could not see. Only a node that it has seen whole is reported as whole.
#include "tests/netns/fault.hpp"

namespace podlane::test {
namespace {

constexpr std::size_t kSample = 8; // each looks two times or more

class FaultDoctorTest : public FaultTest {
  protected:
    FaultDoctorTest() { must("ADD"); }

    [[nodiscard]] std::string address() const { return to_string(prefix(result_.at("ips").at(0).at("address")).addr); }
    [[nodiscard]] bool has_route() const { return !ip_json(node_.ns(), "route show " + address()).empty(); }
    void lose_route() const {
        if (has_route())
            node_.run("ip route del " + address());
    }
    // Calls of the first pass and of the second, and a sample of all, of a run that finds the lost route.
    [[nodiscard]] std::vector<Fault> faults_of_finding(const std::string &command) {
        lose_route();
        const std::string file = node_.dir() + "/trace";
        const Reply reply = call(command, strace({"-o", file}));
        EXPECT_THAT(reply.out, HasSubstr("the host's route to " + address())) << reply;
        std::vector<Fault> all;
        for (const auto &[name, numbers] :
             std::map<std::string, std::vector<int>>{{"bpf", {1, 9, 16}}, {"read", {1}}, {"recvfrom", {33, 89, 129}}})
            for (const int number : numbers)
                all.push_back({{name, number}, "error=EIO"});
        const auto errors = faults_at(calls_in(file)).second;
        std::ranges::move(chosen(errors, GetParam() + " finding " + command, kSample), std::back_inserter(all));
        return all;
    }
    // The finding, or that of the failed call.
    void expect_said(const Reply &reply, const Fault &fault) const {
        std::vector<std::string> words = {"the host's route to " + address(), "cannot be checked: "};
        constexpr int kMostErrors = 200;
        for (int number = 1; number < kMostErrors; ++number)
            if (const char *name = strerrorname_np(number); name != nullptr && fault.what.ends_with(name))
                words.emplace_back(strerrordesc_np(number));
        const auto is_said = [&](const std::string &one) {
            return (reply.out + reply.err).find(one) != std::string::npos;
        };
        EXPECT_TRUE(std::ranges::any_of(words, is_said)) << reply;
    }
    void expect_repaired_or_said(const std::string &command) {
        for (const Fault &fault : faults_of_finding(command)) {
            SCOPED_TRACE(command + ", " + fault.text());
            lose_route();
            const Reply reply = hit(command, fault);
            if (reply.rc == 0) {
                EXPECT_TRUE(has_route()) << reply;
                expect_done("CHECK");
            } else {
                expect_said(reply, fault);
            }
            expect_done(command);
            EXPECT_TRUE(has_route());
            expect_done("CHECK");
        }
        expect_clean_after("DEL");
    }
};

TEST_P(FaultDoctorTest, DoctorHidesNoFinding) {
    for (const Fault &fault : faults_of_finding("doctor")) {
        SCOPED_TRACE("doctor, " + fault.text());
        const Reply reply = hit("doctor", fault);
        EXPECT_NE(reply.rc, 0) << reply;
        expect_said(reply, fault);
    }
    expect_done("repair");
    expect_done("doctor");
    expect_clean_after("DEL");
}

TEST_P(FaultDoctorTest, RepairRepairsOrSaysWhyNot) { expect_repaired_or_said("repair"); }
TEST_P(FaultDoctorTest, DoctorFixRepairsOrSaysWhyNot) { expect_repaired_or_said("doctor --fix"); }

INSTANTIATE_TEST_SUITE_P(Modes, FaultDoctorTest, testing::Values("main"), fault_mode);

} // namespace
} // namespace podlane::test
