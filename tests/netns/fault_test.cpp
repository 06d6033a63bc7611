// SPDX-License-Identifier: MIT
// A call of the plugin that fails or is killed at any of its system calls leaves nothing that a later DEL or GC does
// not remove, and never says that something was done that was not.
#include "loader/record.hpp"
#include "tests/netns/fault.hpp"

namespace podlane::test {
namespace {

TEST_P(FaultTest, AddLeavesNothingOrSucceeds) {
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

TEST_P(FaultTest, DelLeavesNothingOrIsRepeated) {
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
TEST_P(FaultTest, GcLeavesNothingOrIsRepeated) {
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

TEST_P(FaultTest, CheckChangesNothing) {
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
TEST_P(FaultStartTest, AnIpamPluginThatDoesNotStartLeavesNothing) {
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

// In the pod's namespace, on threads of their own, the plugin enters it, opens netlink sockets, and reads and writes
// settings, which are hit by their paths.
class FaultThreadTest : public FaultTest {
  protected:
    FaultThreadTest() { all_threads_ = true; }

    using Options = std::vector<std::string>;
    [[nodiscard]] std::vector<Options> faults_in_threads(const std::string &command) {
        const std::string file = node_.dir() + "/trace";
        Reply reply = call(command, strace({"-e", "trace=openat", "-o", file}));
        EXPECT_EQ(reply.rc, 0) << reply;
        std::vector<Options> all;
        for (const std::string number : {"1", "2"})
            for (const std::string what : {"error=EPERM", "error=ENOMEM", "signal=KILL"})
                for (const std::string name : {"setns", "bind"})
                    all.push_back({"-e", "trace=" + name, "-e", "inject=" + name + ":" + what + ":when=" + number});
        static const std::regex kPath("\"(/proc/sys/net/[^\"]*)\"");
        std::set<std::string> paths;
        std::ifstream trace(file);
        for (std::string line; std::getline(trace, line);)
            if (std::smatch found; std::regex_search(line, found, kPath))
                paths.insert(found[1]);
        EXPECT_FALSE(command == "ADD" && paths.empty());
        for (const std::string &path : paths)
            for (const std::string what :
                 {"openat:error=EIO", "read:error=EIO", "write:error=EIO", "write:signal=KILL"})
                all.push_back({"-P", path, "-e", "inject=" + what});
        return all;
    }
    [[nodiscard]] Reply hit_in_threads(const std::string &command, Options options) const {
        options.insert(options.end(), {"-o", "/dev/null"});
        const Reply reply = call(command, strace(options));
        EXPECT_TRUE(reply.rc == 0 || reply.rc > 128 || is_sentence(reply)) << reply;
        return reply;
    }
};

TEST_P(FaultThreadTest, ThatFailOrAreKilledLeaveNothing) {
    const auto of_add = faults_in_threads("ADD");
    must("DEL");
    must("ADD");
    const std::string with_pod = everything_of_a_pod();
    const auto of_check = faults_in_threads("CHECK");
    const auto of_del = faults_in_threads("DEL");
    const auto traced = [](const Options &options) { return testing::PrintToString(options); };
    for (const Options &fault : of_add) {
        SCOPED_TRACE("ADD " + traced(fault));
        const Reply reply = hit_in_threads("ADD", fault);
        if (reply.rc == 0) {
            result_ = reply.json;
            expect_done("CHECK");
            expect_soon([this] { return everything_of_a_pod(); }, with_pod);
        }
        expect_clean_after("DEL");
    }
    for (const Options &fault : of_del) {
        SCOPED_TRACE("DEL " + traced(fault));
        must("ADD");
        if (hit_in_threads("DEL", fault).rc == 0)
            expect_everything(before_);
        expect_clean_after("DEL");
    }
    must("ADD");
    for (const Options &fault : of_check) {
        SCOPED_TRACE("CHECK " + traced(fault));
        (void)hit_in_threads("CHECK", fault);
        expect_soon([this] { return everything_of_a_pod(); }, with_pod);
    }
    expect_clean_after("DEL");
}

class FaultRecordTest : public FaultTest {};

// The maps know the rest. The record stays for the next DEL, which may know more by it.
TEST_P(FaultRecordTest, ThatCannotBeReadKeepsNoInterface) {
    must("ADD");
    const std::string file =
        AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + container_->id() + ":eth0";
    ASSERT_TRUE(fs::exists(file));
    const Reply reply =
        call("DEL", strace({"-P", file, "-e", "trace=read", "-e", "inject=read:error=EIO", "-o", "/dev/null"}));
    EXPECT_THAT(reply, fails_with(5, {"Input/output error"}));
    EXPECT_TRUE(fs::exists(file));
    EXPECT_THAT(node_.run("ip link"), testing::Not(testing::HasSubstr("cali")));
    expect_clean_after("DEL");
}

// One pod's record says nothing of the others.
TEST_P(FaultRecordTest, ThatCannotBeReadStopsNoGc) {
    must("ADD");
    const auto other = node_.container();
    ASSERT_THAT(node_.cni("podlane", "ADD", config_, attachment(*other)), succeeds());
    const std::string file =
        AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + other->id() + ":eth0";
    const Reply reply =
        call("GC", strace({"-P", file, "-e", "trace=read", "-e", "inject=read:error=EIO", "-o", "/dev/null"}));
    EXPECT_THAT(reply, fails_with(5, {"Input/output error"}));
    EXPECT_THAT(node_.leased(), testing::SizeIs(2)) << "of the one that may be an ADD under way";
    expect_clean_after("GC");
}

class FaultQdiscTest : public FaultTest {
  protected:
    // As strace prints the request's bytes, or what it makes of them.
    [[nodiscard]] static bool names_qdisc(const std::string &line) {
        static const std::regex kKinds(R"((\\0|")(fq|htb|bfifo)(\\0|"))");
        return std::regex_search(line, kKinds);
    }
};

// The kernel has put the qdisc, or its class or queue; only the answer is lost.
TEST_P(FaultQdiscTest, ALostAnswerLeavesNoQdisc) {
    const std::string file = node_.dir() + "/qdisc";
    ASSERT_EQ(call("ADD", strace({"-s", "100", "-e", "trace=sendmsg,recvfrom", "-o", file})).rc, 0);
    must("DEL");
    std::vector<int> answers;
    std::ifstream trace(file);
    int number = 0;
    bool is_about_qdisc = false;
    for (std::string line; std::getline(trace, line);) {
        const bool is_answer = line.starts_with("recvfrom");
        number += is_answer ? 1 : 0;
        if (is_answer && is_about_qdisc)
            answers.push_back(number);
        is_about_qdisc = !is_answer && names_qdisc(line);
    }
    ASSERT_FALSE(answers.empty());
    for (const int answer : answers) {
        const Fault fault{{"recvfrom", answer}, "error=EIO"};
        SCOPED_TRACE("ADD, " + fault.text());
        (void)hit("ADD", fault);
        expect_clean_after("DEL");
    }
}

// A kernel that did not answer is not said to have none.
TEST_P(FaultQdiscTest, StatusSaysWhatItCouldNotLookFor) {
    const std::string file = node_.dir() + "/qdisc", status = "status --json";
    const Reply whole = call(status, strace({"-s", "100", "-e", "trace=sendmsg", "-o", file}));
    EXPECT_NE(whole.json.value("limiters", ""), "") << whole;
    std::ifstream trace(file);
    int number = 0;
    std::string line;
    do
        number += line.starts_with("sendmsg") ? 1 : 0;
    while (!names_qdisc(line) && std::getline(trace, line));
    ASSERT_TRUE(names_qdisc(line)) << read_file(file);
    const Reply reply = call(status, strace({"-o", "/dev/null", "-e", "trace=sendmsg", "-e",
                                             "inject=sendmsg:error=ENOBUFS:when=" + std::to_string(number)}));
    EXPECT_EQ(reply.rc, 1) << reply;
    EXPECT_TRUE(reply.json.value("limiters", Json()).is_null()) << reply;
    EXPECT_THAT(reply.out, has_all({"looking for the qdisc", "No buffer space available"}));
}

class FaultVethTest : public FaultTest {
  protected:
    // The number of the first answer behind the request for a veth pair.
    [[nodiscard]] int answer_to_veth() const {
        const std::string file = node_.dir() + "/veth";
        EXPECT_EQ(call("ADD", strace({"-s", "200", "-e", "trace=sendmsg,recvfrom", "-o", file})).rc, 0);
        std::ifstream trace(file);
        int number = 0;
        bool is_about_veth = false;
        for (std::string line; std::getline(trace, line);) {
            const bool is_answer = line.starts_with("recvfrom");
            number += is_answer ? 1 : 0;
            if (is_answer && is_about_veth)
                return number;
            is_about_veth |= !is_answer && line.find("veth") != std::string::npos;
        }
        return 0;
    }
};

// The kernel has made the pair, and neither the answer nor the one to the next question comes: the record stays with
// it.
TEST_P(FaultVethTest, APairThatCannotBeRemovedIsKnown) {
    const int answer = answer_to_veth();
    must("DEL");
    ASSERT_GT(answer, 0);
    const std::string when = std::to_string(answer) + ".." + std::to_string(answer + 1);
    const Reply reply = call(
        "ADD", strace({"-e", "trace=recvfrom", "-e", "inject=recvfrom:error=EIO:when=" + when, "-o", "/dev/null"}));
    EXPECT_NE(reply.rc, 0);
    ASSERT_THAT(reply.message(), testing::HasSubstr("; and removing ")) << "another answer was lost";
    EXPECT_THAT(node_.run("ip link"), testing::HasSubstr("cali"));
    EXPECT_THAT(node_.records(), testing::SizeIs(1));
    expect_clean_after("DEL");
}

class FaultPodRangesTest : public FaultTest {
  protected:
    [[nodiscard]] static std::vector<std::string> kept() {
        std::vector<std::string> files;
        for (const auto &entry : fs::directory_iterator("/var/lib/podlane"))
            if (entry.path().filename().string().starts_with("pod-ranges-"))
                files.push_back(entry.path());
        return files;
    }
};

// Up to the moment when the node's ranges are on disk, for the first time or again.
TEST_P(FaultPodRangesTest, AreKeptWholeOrAsTheyWere) {
    ASSERT_EQ(kept().size(), 1U);
    const std::string file = kept()[0];
    Json old = Json::parse(read_file(file));
    old["askedNs"] = 1;
    const auto prepare = [&](bool is_first) {
        fs::remove(file);
        if (!is_first) {
            std::ofstream(file) << old;
            fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
        }
    };
    for (const bool is_first : {true, false}) {
        prepare(is_first);
        auto calls = calls_of("ADD");
        must("DEL");
        calls.erase(std::ranges::find(calls, "rename", &SystemCall::name) + 1, calls.end());
        const auto [kills, errors] = faults_at(calls);
        auto faults = chosen(kills, "pod_ranges ADD", 8);
        std::ranges::copy(chosen(errors, "pod_ranges ADD", 12), std::back_inserter(faults));
        for (const Fault &fault : faults) {
            SCOPED_TRACE("ADD, " + fault.text() + (is_first ? "" : ", with old ranges"));
            prepare(is_first);
            const Reply reply = hit("ADD", fault);
            expect_reason(reply, fault);
            if (reply.rc == 0) {
                result_ = reply.json;
                expect_done("CHECK");
            }
            ASSERT_TRUE(is_first || fs::exists(file));
            if (fs::exists(file)) {
                EXPECT_EQ(Json::parse(read_file(file), nullptr, false).value("podCIDRs", Json()), old["podCIDRs"]);
            }
            expect_clean_after("DEL");
        }
    }
}

class FaultRollbackTest : public FaultTest {};

// An ADD that fails near its end, and then cannot delete an entry: it is known what is left.
TEST_P(FaultRollbackTest, KeepsTheRecord) {
    const std::string file = node_.dir() + "/rollback";
    int last = 0;
    for (const SystemCall &one : calls_of("ADD"))
        last = one.name == "sendmsg" ? std::max(last, one.number) : last;
    const auto fails = [&] { return "inject=sendmsg:error=EIO:when=" + std::to_string(last); };
    Reply reply{};
    do { // some of the last calls may fail
        must("DEL");
        reply = call("ADD", strace({"-e", "trace=sendmsg,bpf", "-e", fails(), "-o", file}));
    } while (reply.rc == 0 && --last > 0);
    ASSERT_NE(reply.rc, 0);
    expect_clean_after("DEL");
    int number = 0, erased = 0;
    std::ifstream trace(file);
    for (std::string line; erased == 0 && std::getline(trace, line);) {
        number += line.starts_with("bpf(") ? 1 : 0;
        if (line.starts_with("bpf(BPF_MAP_DELETE_ELEM") && line.ends_with("= 0"))
            erased = number;
    }
    ASSERT_NE(erased, 0);
    reply = call("ADD", strace({"-e", "trace=sendmsg,bpf", "-e", fails(), "-e",
                                "inject=bpf:error=EBUSY:when=" + std::to_string(erased), "-o", "/dev/null"}));
    EXPECT_NE(reply.rc, 0);
    EXPECT_NE(reply.message().find("Device or resource busy"), std::string::npos) << reply;
    EXPECT_NE(node_.state().find("endpoints_v1: 1\n"), std::string::npos) << node_.state();
    expect_clean_after("DEL");
}

INSTANTIATE_TEST_SUITE_P(Modes, FaultTest, fault_modes(), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, FaultThreadTest, testing::Values("main"), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, FaultRecordTest, testing::Values("main"), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, FaultStartTest, testing::Values("main"), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, FaultRollbackTest, testing::Values("main", "after_main"), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, FaultVethTest, testing::Values("main"), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, FaultPodRangesTest, testing::Values("pod_ranges"), fault_mode);
INSTANTIATE_TEST_SUITE_P(Modes, FaultQdiscTest, testing::Values("after_main"), fault_mode);

} // namespace
} // namespace podlane::test
