// SPDX-License-Identifier: MIT
// A call of the plugin that fails or is killed at any of its system calls leaves nothing that a later DEL or GC does
// not remove, and never says that something was done that was not.
//
// The calls of a traced run are enumerated, then each is hit by strace's fault injection, which counts calls by name.
// Without PODLANE_FAULTS=all a sample is hit; PODLANE_SEED picks another one.
#include "tests/netns/verbs.hpp"

#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

namespace podlane::test {
namespace {

struct SystemCall {
    std::string name;
    int number; // of those of this name, from 1
};

struct Fault {
    SystemCall call;
    std::string what; // "signal=KILL", "error=EIO"

    [[nodiscard]] std::string text() const { return call.name + " " + std::to_string(call.number) + " " + what; }
    [[nodiscard]] bool kills() const { return what == "signal=KILL"; }
};

const std::vector<std::string> kErrors = {"ENOMEM", "ENOSPC", "EINTR", "EIO", "EPERM", "EBUSY", "ENOBUFS"};

// Of the start of any program, and of the allocator: a failure ends the process before, or without, any doing of its
// own.
bool is_of_runtime(const std::string &name) {
    static const std::vector<std::string> kRuntime = {
        "execve",          "brk",       "mmap",       "munmap",    "mprotect",       "arch_prctl",
        "set_tid_address", "rseq",      "exit_group", "prlimit64", "rt_sigprocmask", "rt_sigaction",
        "set_robust_list", "getrandom", "pread64",    "futex",     "clock_gettime",  "madvise"};
    return std::ranges::find(kRuntime, name) != kRuntime.end();
}

class FaultTest : public VerbsTest, public testing::WithParamInterface<std::string> {
  protected:
    FaultTest() {
        config_ =
            node_.config({{"ipMasq", true},
                          {"clusterCIDRs", {"198.18.0.0/16"}},
                          {"allowedSources", {"192.0.2.0/24"}},
                          {"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}}}});
        if (GetParam() == "after-ipam") {
            config_.erase("ipam");
            config_["prevResult"] = {{"cniVersion", "1.0.0"},
                                     {"ips", {{{"address", "198.18.9.77/24"}}, {{"address", "2001:db8:9::77/64"}}}}};
        }
        if (GetParam() == "after-main") {
            Json ptp = {{"cniVersion", "1.0.0"}, {"name", "pods"}, {"type", "ptp"}, {"ipam", node_.ipam()}};
            const Reply made = node_.cni("ADD", ptp, *container_);
            if (made.rc != 0)
                throw std::runtime_error(made.out);
            config_.erase("ipam");
            config_["prevResult"] = made.json;
        }
        // Programs and maps are loaded, the network has been there.
        must("ADD");
        must("DEL");
        if (!wait_until([&] { return (before_ = everything()) == everything(); }))
            throw std::runtime_error("the node does not come to rest");
    }

    [[nodiscard]] std::string everything() const {
        return node_.state() + node_.run("nft list ruleset") + container_->run("ip -o link") +
               container_->run("ip rule") + container_->run("ip -6 rule");
    }
    [[nodiscard]] Json config_for(const std::string &command) const {
        Json config = config_;
        if (command == "GC") {
            config["cniVersion"] = "1.1.0";
            config["cni.dev/valid-attachments"] = Json::array();
        }
        if (command == "CHECK")
            config["prevResult"] = result_;
        return config;
    }
    // The plugin, run by strace with these options if there are any.
    Reply call(const std::string &command, const std::vector<std::string> &strace = {}) const {
        std::vector<std::string> argv = strace;
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(*container_);
        variables.insert({{"CNI_COMMAND", command}, {"CNI_PATH", node_.plugins()}});
        Output output = run(node_.ns(), argv, config_for(command).dump(), variables);
        Reply reply{output.rc, std::move(output.out), std::move(output.err), {}};
        reply.json = Json::parse(reply.out, nullptr, false);
        if (reply.json.is_discarded())
            reply.json = nullptr;
        return reply;
    }
    void must(const std::string &command) {
        const Reply reply = call(command);
        if (reply.rc != 0)
            throw std::runtime_error(command + ": " + reply.out);
        if (command == "ADD")
            result_ = reply.json;
    }
    // Those of a run that nothing hits.
    std::vector<SystemCall> calls_of(const std::string &command) {
        const std::string file = node_.dir() + "/trace";
        const Reply reply = call(command, {"strace", "-qq", "-o", file});
        if (reply.rc != 0)
            throw std::runtime_error(command + " under strace: " + reply.out + reply.err);
        if (command == "ADD")
            result_ = reply.json;
        std::vector<SystemCall> calls;
        std::map<std::string, int> seen;
        std::ifstream trace(file);
        for (std::string line; std::getline(trace, line);) {
            const std::string name = line.substr(0, line.find('('));
            if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos)
                calls.push_back({name, ++seen[name]});
        }
        return calls;
    }
    std::vector<Fault> faults_of(const std::string &command) {
        std::vector<Fault> kills, errors;
        for (const SystemCall &one : calls_of(command)) {
            if (one.name == "execve")
                continue;
            kills.push_back({one, "signal=KILL"});
            if (is_of_runtime(one.name))
                continue;
            for (const std::string &error : kErrors)
                errors.push_back({one, "error=" + error});
        }
        const char *all = std::getenv("PODLANE_FAULTS");
        if (all == nullptr || std::string(all) != "all") {
            const char *seed = std::getenv("PODLANE_SEED");
            std::mt19937 random(seed == nullptr ? 1U : static_cast<unsigned>(std::atol(seed)));
            constexpr std::size_t kSample = 4;
            for (auto *list : {&kills, &errors}) {
                std::ranges::shuffle(*list, random);
                list->resize(std::min(list->size(), kSample));
            }
        }
        kills.insert(kills.end(), errors.begin(), errors.end());
        return kills;
    }
    Reply hit(const std::string &command, const Fault &fault) const {
        return call(command,
                    {"strace", "-qq", "-o", "/dev/null", "-e", "trace=" + fault.call.name, "-e",
                     "inject=" + fault.call.name + ":" + fault.what + ":when=" + std::to_string(fault.call.number)});
    }
    // Success, or an error with a sentence; a program that cannot even be started has none.
    static void expect_said(const Reply &reply, const Fault &fault) {
        constexpr int kNotStarted = 127;
        if (fault.kills() || reply.rc == 0 || reply.rc == kNotStarted)
            return;
        EXPECT_TRUE(reply.json.is_object() && !reply.message().empty()) << reply;
    }
    // Whatever the fault left, these calls remove it.
    void expect_clean_after(const std::string &command) {
        const Reply reply = call(command);
        EXPECT_EQ(reply.rc, 0) << reply;
        EXPECT_EQ(everything(), before_);
    }

    std::shared_ptr<Container> container_ = node_.container();
    Json config_;
    Json result_;
    std::string before_;
};

TEST_P(FaultTest, Add) {
    const auto faults = faults_of("ADD");
    must("DEL");
    for (const Fault &fault : faults) {
        SCOPED_TRACE("ADD, " + fault.text());
        const Reply reply = hit("ADD", fault);
        expect_said(reply, fault);
        if (reply.rc == 0) {
            result_ = reply.json;
            const Reply checked = call("CHECK");
            EXPECT_EQ(checked.rc, 0) << checked;
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
        expect_said(reply, fault);
        if (reply.rc == 0) {
            EXPECT_EQ(everything(), before_) << "DEL said that it is done";
        }
        expect_clean_after(fault.call.number % 2 == 0 ? "DEL" : "GC");
    }
}

TEST_P(FaultTest, Gc) {
    must("ADD");
    for (const Fault &fault : faults_of("GC")) {
        SCOPED_TRACE("GC, " + fault.text());
        must("ADD");
        const Reply reply = hit("GC", fault);
        expect_said(reply, fault);
        expect_clean_after("GC");
    }
}

TEST_P(FaultTest, Check) {
    must("ADD");
    const auto faults = faults_of("CHECK");
    const std::string with_pod = everything();
    for (const Fault &fault : faults) {
        SCOPED_TRACE("CHECK, " + fault.text());
        expect_said(hit("CHECK", fault), fault);
        EXPECT_EQ(everything(), with_pod);
    }
    expect_clean_after("DEL");
}

INSTANTIATE_TEST_SUITE_P(Modes, FaultTest, testing::Values("main", "after-ipam", "after-main"), [](const auto &info) {
    std::string name = info.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

} // namespace
} // namespace podlane::test
