// SPDX-License-Identifier: MIT
// A call of the plugin that fails or is killed at any of its system calls leaves nothing that a later DEL or GC does
// not remove, and never says that something was done that was not.
#include "tests/netns/fault.hpp"

namespace podlane::test {
namespace {

TEST_P(FaultTest, Add) {
    const auto faults = faults_of("ADD");
    const std::string with_pod = everything_of_a_pod();
    must("DEL");
    for (const Fault &fault : faults) {
        SCOPED_TRACE("ADD, " + fault.text());
        const Reply reply = hit("ADD", fault);
        expect_reason(reply, fault);
        if (reply.rc == 0) {
            result_ = reply.json;
            expect_done("CHECK");
            expect_soon([this] { return everything_of_a_pod(); }, with_pod);
        }
        expect_clean_after("DEL");
    }
}

TEST_P(FaultTest, Del) {
    must("ADD");
    for (const Fault &fault : faults_of("DEL")) {
        SCOPED_TRACE("DEL, " + fault.text());
        must("ADD");
        const Reply reply = hit("DEL", fault);
        expect_reason(reply, fault);
        if (reply.rc == 0)
            expect_everything(before_);
        expect_clean_after(fault.call.number % 2 == 0 ? "DEL" : "GC");
    }
}

// Where there are leases, of two pods at once.
TEST_P(FaultTest, Gc) {
    const auto second = node_.container();
    const auto add = [&] {
        must("ADD");
        if (config_.contains("ipam")) {
            EXPECT_EQ(node_.cni("ADD", config_, *second).rc, 0);
        }
    };
    add();
    for (const Fault &fault : faults_of("GC")) {
        SCOPED_TRACE("GC, " + fault.text());
        add();
        const Reply reply = hit("GC", fault);
        expect_reason(reply, fault);
        if (reply.rc == 0)
            expect_everything(before_);
        expect_clean_after("GC");
    }
}

TEST_P(FaultTest, Check) {
    must("ADD");
    const auto faults = faults_of("CHECK");
    const std::string with_pod = everything();
    for (const Fault &fault : faults) {
        SCOPED_TRACE("CHECK, " + fault.text());
        expect_reason(hit("CHECK", fault), fault);
        expect_everything(with_pod);
    }
    expect_clean_after("DEL");
}

class FaultStartTest : public FaultTest {};

// Between its start and the IPAM plugin's a child makes few calls, of which only these are made by nobody else.
TEST_P(FaultStartTest, OfTheIpamPlugin) {
    all_threads_ = true;
    for (const int stream : {1, 2, 3})
        for (const char *what : {"error=EBUSY", "error=EMFILE", "error=EINTR", "signal=KILL"}) {
            const Fault fault{{"dup2", stream}, what};
            SCOPED_TRACE("ADD, " + fault.text());
            const Reply reply = hit("ADD", fault);
            EXPECT_NE(reply.rc, 0) << "the plugin was not started: " << reply;
            expect_reason(reply, fault);
            EXPECT_NE((reply.message() + reply.details()).find("host-local"), std::string::npos) << reply;
            expect_clean_after("DEL");
            must("ADD");
            EXPECT_NE(hit("DEL", fault).rc, 0) << "the lease is not released";
            expect_clean_after("DEL");
        }
}

INSTANTIATE_TEST_SUITE_P(Modes, FaultTest, fault_modes(), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, FaultStartTest, testing::Values("main"), fault_mode);

} // namespace
} // namespace podlane::test
