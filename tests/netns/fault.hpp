// SPDX-License-Identifier: MIT
// Faults at system calls: the calls of a traced run are enumerated, then each is hit by strace's fault injection, which
// counts calls by name. Counts differ from run to run: a fault may hit another call of that name, or none.
//
// A sample is hit. PODLANE_FAULTS=N hits N kills and N errors in each test, PODLANE_FAULTS=all hits all, "each" all
// kills and one error at each call, the seven by turns, "each error" no kills, and any other value those whose text
// contains it, such as "signal=KILL" or, to repeat what a failed test printed, "openat 12 error=EIO". PODLANE_SEED
// picks another sample.
#pragma once

#include "maps/hash.hpp"
#include "tests/netns/ctl.hpp"

#include <array>
#include <cctype>
#include <iostream>
#include <regex>

namespace podlane::test {

inline constexpr std::array kErrors = {"ENOMEM", "ENOSPC", "EINTR", "EIO", "EPERM", "EBUSY", "ENOBUFS"};

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

// Calls that are not made to fail: those of the start of any program and of the allocator end the process before, or
// without, any doing of its own; others cannot fail. close(2) frees the descriptor whatever it returns: strace would
// leave it open, with the locks on it.
inline bool never_fails(const std::string &name) {
    static const std::vector<std::string> kNames = {
        "brk",        "mmap",      "munmap",         "mprotect", "arch_prctl",   "set_tid_address", "rseq",
        "exit_group", "prlimit64", "rt_sigprocmask", "pread64",  "rt_sigaction", "set_robust_list", "getrandom",
        "futex",      "madvise",   "clock_gettime",  "close",    "getpid",       "gettid",          "getppid",
        "getuid",     "geteuid",   "umask",          "sysinfo"};
    return std::ranges::find(kNames, name) != kNames.end();
}

// The lines from the first call that loads programs, or what they need, to the last: both 0 if there is none.
inline std::pair<std::size_t, std::size_t> load_in(const std::string &file) {
    static const std::regex kLoads(R"(\bbpf\(BPF_(BTF_LOAD|MAP_CREATE|PROG_LOAD))");
    std::pair<std::size_t, std::size_t> lines{};
    std::ifstream trace(file);
    std::size_t number = 0;
    for (std::string line; std::getline(trace, line);) {
        ++number;
        if (std::regex_search(line, kLoads))
            lines = {lines.first == 0 ? number : lines.first, number};
    }
    return lines;
}

// The calls in strace's output. Of several threads each counts for itself: the n-th call of each is the same fault. Of
// the reads of a large file, such as the kernel's type information, the first two and the last stand for all.
inline std::vector<SystemCall> calls_in(const std::string &file, bool without_load = false) {
    const auto [load_begins, load_ends] = without_load ? load_in(file) : std::pair<std::size_t, std::size_t>{};
    std::size_t line_number = 0;
    std::vector<SystemCall> calls;
    std::map<std::string, int> seen;                            // by thread and name
    std::map<std::string, int> most_seen;                       // by name
    std::map<std::string, std::pair<std::string, int>> reading; // by thread: "read(5", and how often in a row
    std::ifstream trace(file);
    for (std::string line; std::getline(trace, line);) {
        const bool is_of_load = ++line_number >= load_begins && line_number <= load_ends;
        const std::string thread = line.substr(0, line.find_first_not_of("0123456789 "));
        const std::string name = line.substr(thread.size(), line.find('(') - thread.size());
        if (name == "execve" || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
            continue;
        const int number = ++seen[thread + name];
        auto &[what, in_a_row] = reading[thread];
        const std::string now = line.substr(thread.size(), line.find_first_of(",)") - thread.size());
        in_a_row = now == what ? in_a_row + 1 : 1;
        what = now;
        if (number <= most_seen[name])
            continue;
        most_seen[name] = number;
        if (is_of_load)
            continue;
        if (name == "read" && in_a_row > 3 && !calls.empty() && calls.back().name == "read")
            calls.back().number = number;
        else
            calls.push_back({name, number});
    }
    return calls;
}

// Every kill and every error of these calls.
inline std::pair<std::vector<Fault>, std::vector<Fault>> faults_at(const std::vector<SystemCall> &calls) {
    std::vector<Fault> kills, errors;
    for (const SystemCall &one : calls) {
        kills.push_back({one, "signal=KILL"});
        for (const char *error : kErrors)
            if (!never_fails(one.name))
                errors.push_back({one, std::string("error=") + error});
    }
    return {kills, errors};
}

// The `most` with the smallest hashes: a run of a few calls more or less, as on another machine, has nearly the same.
inline std::vector<Fault> sample_of(std::vector<Fault> faults, const std::string &test, std::size_t most) {
    const char *seed = std::getenv("PODLANE_SEED");
    const std::string salt = (seed == nullptr ? "" : seed) + (" " + test + " ");
    std::ranges::sort(faults, {}, [&](const Fault &one) { return fnv1a_64(salt + one.text()); });
    faults.resize(std::min(faults.size(), most));
    return faults;
}

inline std::vector<Fault> one_at_each_call(const std::vector<Fault> &faults) {
    std::vector<Fault> all;
    for (std::size_t call = 0; call * kErrors.size() < faults.size(); ++call)
        all.push_back(faults.at(call * kErrors.size() + call % kErrors.size()));
    return all;
}

// Those that the environment names, else a sample.
inline std::vector<Fault> chosen(std::vector<Fault> faults, const std::string &test, std::size_t most) {
    const char *given = std::getenv("PODLANE_FAULTS");
    const std::string wanted = given == nullptr ? "" : given;
    if (wanted.find_first_not_of("0123456789") == std::string::npos)
        return sample_of(std::move(faults), test, wanted.empty() ? most : std::stoul(wanted));
    const bool kills = !faults.empty() && faults.front().kills();
    if (wanted == "each" || wanted == "each error")
        return !kills ? one_at_each_call(faults) : wanted == "each" ? faults : std::vector<Fault>{};
    if (wanted != "all")
        std::erase_if(faults, [&](const Fault &one) { return one.text().find(wanted) == std::string::npos; });
    return faults;
}

// A node with a container, and a configuration in one of the modes of the plugin.
class FaultTest : public VerbsTest, public testing::WithParamInterface<std::string> {
  protected:
    FaultTest() {
        for (const char *link : {"all", "lo", "up0"})
            set_sysctl(node_.ns(), std::string("net.ipv4.conf.") + link + ".rp_filter", "0");
        config_ = node_.config({{"ipMasq", true},
                                {"clusterCIDRs", {"198.18.0.0/16"}},
                                {"allowedSources", {"192.0.2.0/24"}},
                                {"runtimeConfig", {{"bandwidth", bandwidth()}}}});
        if (GetParam() == "uplink")
            config_.merge_patch(
                {{"uplink", "up0"}, {"gateway", {"203.0.113.1", "2001:db8:cafe::1"}}, {"attach", "clsact"}});
        if (GetParam() == "grouped" || GetParam() == "after_main")
            config_["egress"] = "cluster";
        if (GetParam() == "grouped")
            config_.merge_patch({{"groups", {"namespace", "name:tenant-a"}},
                                 {"isolation", "group"},
                                 {"groupCIDRs", {{"name:tenant-a", {"198.18.64.0/20", "2001:db8:64::/48"}}}},
                                 {"ingressRate", 8000000},
                                 {"ingressBurst", 64000000},
                                 {"limitGroup", "tenant-a"},
                                 {"limitGroups", {{"tenant-a", {{"ingressRate", 80000000}}}}}});
        if (GetParam() == "after_ipam") {
            config_.erase("ipam");
            config_["prevResult"] = {{"cniVersion", "1.0.0"},
                                     {"ips", {{{"address", "198.18.9.77/24"}}, {{"address", "2001:db8:9::77/64"}}}}};
        }
        if (GetParam() == "pod_ranges") {
            node_.put_plugin("podlane-k8s", R"(#!/bin/sh
                echo '{"podCIDRs": ["198.18.9.0/24", "2001:db8:9::/64"]}')");
            config_.merge_patch(
                {{"nodename", "worker-1"},
                 {"kubernetes", {{"kubeconfig", "/nonexistent"}}},
                 {"ipam", {{"ranges", {{{{"subnet", "usePodCidr"}}}, {{{"subnet", "usePodCidrIPv6"}}}}}}}});
        }
        if (GetParam() == "after_main") {
            Json ptp = {{"cniVersion", "1.0.0"}, {"name", "pods"}, {"type", "ptp"}, {"ipam", node_.ipam()}};
            const Reply made = node_.cni("ADD", ptp, *container_);
            if (made.rc != 0)
                throw std::runtime_error(made.out);
            config_.erase("ipam");
            config_["prevResult"] = made.json;
            adopted_ = made.json.at("interfaces").at(0).at("name");
        }
        if (is_by_iptables())
            node_.run("iptables-legacy -w -t nat -N KUBE-SERVICES"); // the older iptables does the node's NAT
        // Programs and maps are loaded, the network has been there.
        must("ADD");
        must("DEL");
        if (!wait_until([&] { return (before_ = everything()) == everything(); }))
            throw std::runtime_error("the node does not come to rest");
    }

    // Without what a packet of the kernel's own, such as a router solicitation, changes.
    [[nodiscard]] std::string everything() const {
        static const std::regex kCount("direct_packets_stat [0-9]+");
        std::string text = std::regex_replace(node_.state(), kCount, "") + node_.run("nft list ruleset") +
                           container_->run("ip -o link") + container_->run("ip rule") + container_->run("ip -6 rule") +
                           node_.run("ip neigh show proxy") + node_.run("ip -6 neigh show proxy");
        for (const Hook hook : {Hook::ingress, Hook::egress})
            for (const Attached &one : programs(uplink_ifindex(), hook))
                text += one.name + "\n";
        if (is_by_iptables())
            for (const std::string tables : {"iptables-legacy", "ip6tables-legacy"})
                text += node_.run(tables + " -w -t nat -S");
        return text;
    }
    // The same for every pod: without its addresses, and the numbers and MACs of its interfaces.
    [[nodiscard]] std::string everything_of_a_pod() const {
        std::string text = everything();
        for (const Json &one : result_.at("ips")) {
            const std::string address = to_string(prefix(one.at("address")).addr);
            for (std::size_t at = 0; (at = text.find(address, at)) != std::string::npos;)
                text.replace(at, address.size(), is_ipv4(ip(address)) ? "IPV4" : "IPV6");
        }
        static const std::regex kMac("([0-9a-f]{2}:){5}[0-9a-f]{2}|fe80::[0-9a-f:]+");
        static const std::regex kNumber("(^|\n|@if)[0-9]+:");
        const auto record = require(require(open_endpoints(node_.bpffs(), Access::read_only))
                                        .find(require(make_endpoint_key(container_->id(), "eth0"))));
        return std::regex_replace(std::regex_replace(text, kMac, "MAC"), kNumber, "$1N:") +
               (record ? "flags " + std::to_string(record->flags) + "\n" : "");
    }
    // The state of a link follows that of its peer a moment later.
    static void expect_soon(const std::function<std::string()> &what, const std::string &expected) {
        std::string now = what();
        if (now != expected)
            (void)wait_until([&] { return (now = what()) == expected; });
        EXPECT_EQ(now, expected);
    }
    void expect_everything(const std::string &expected) const {
        expect_soon([this] { return everything(); }, expected);
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
    // A verb of the plugin, in capitals, or a command of podlanectl; run by strace with these options if there are any.
    [[nodiscard]] Reply call(const std::string &command, const std::vector<std::string> &strace = {}) const {
        std::vector<std::string> argv = strace;
        const bool is_verb = std::isupper(static_cast<unsigned char>(command.front())) != 0;
        const auto program = is_verb ? words(node_.plugins() + "/podlane") : ctl_argv(node_.bpffs(), command);
        argv.insert(argv.end(), program.begin(), program.end());
        Variables variables = attachment(*container_);
        variables.insert({{"CNI_COMMAND", command}, {"CNI_PATH", node_.plugins()}, {"PATH", path_}});
        if (!args_.empty())
            variables["CNI_ARGS"] = args_;
        return to_reply(is_verb ? run(node_.ns(), argv, config_for(command).dump(), variables) : run(node_.ns(), argv));
    }
    void expect_done(const std::string &command) const {
        const Reply reply = call(command);
        EXPECT_EQ(reply.rc, 0) << command << ": " << reply;
    }
    void must(const std::string &command) {
        const Reply reply = call(command);
        if (reply.rc != 0)
            throw std::runtime_error(command + ": " + reply.out + reply.err);
        if (command == "ADD")
            result_ = reply.json;
    }
    [[nodiscard]] std::vector<std::string> strace(const std::vector<std::string> &options) const {
        std::vector<std::string> argv{"strace", "-qq"};
        if (all_threads_)
            argv.emplace_back("-f");
        argv.insert(argv.end(), options.begin(), options.end());
        return argv;
    }
    // Of a run that nothing hits.
    [[nodiscard]] std::vector<SystemCall> calls_of(const std::string &command) {
        const std::string file = node_.dir() + "/trace";
        const Reply reply = call(command, strace({"-o", file}));
        if (reply.rc != 0)
            throw std::runtime_error(command + " under strace: " + reply.out + reply.err);
        if (command == "ADD")
            result_ = reply.json;
        return calls_in(file, without_load_);
    }
    // The kills and errors to hit the next runs with.
    [[nodiscard]] std::vector<Fault> faults_of(const std::string &command, std::size_t sample = 3) {
        const auto [kills, errors] = faults_at(calls_of(command));
        const std::string test = GetParam() + " " + command;
        std::vector<Fault> all = chosen(kills, test, sample);
        const std::vector<Fault> more = chosen(errors, test, sample);
        all.insert(all.end(), more.begin(), more.end());
        std::cout << test << ": " << all.size() << " of " << kills.size() + errors.size() << " faults" << std::endl;
        return all;
    }
    // The number, among the calls of this name, of the n-th one whose line contains this text; 0: there is none.
    static int number_of(const std::string &call, const std::string &text, const std::string &trace, int nth = 1) {
        const std::string name = call.substr(0, call.find('(') + 1);
        std::ifstream lines(trace);
        int number = 0;
        for (std::string line; std::getline(lines, line);) {
            number += line.starts_with(name) ? 1 : 0;
            if (line.starts_with(call) && line.find(text) != std::string::npos && --nth == 0)
                return number;
        }
        return 0;
    }
    // An error of CNI whose message has more than a word: which step has failed. Without standard output there is none.
    [[nodiscard]] static bool is_sentence(const Reply &reply) {
        return (!reply.json.is_null() && reply.code() > 0 && reply.message().find(' ') != std::string::npos) ||
               (reply.out.empty() && !reply.err.empty());
    }
    // The call with the fault: it succeeds, or fails with a sentence. A program that was not even started has none.
    [[nodiscard]] Reply hit(const std::string &command, const Fault &fault) const {
        constexpr int kNotStarted = 127;
        Reply reply = call(command, strace({"-o", "/dev/null", "-e", "trace=" + fault.call.name, "-e",
                                            "inject=" + fault.call.name + ":" + fault.what +
                                                ":when=" + std::to_string(fault.call.number)}));
        if (fault.kills() || reply.rc == 0 || reply.rc == kNotStarted)
            return reply;
        if (std::isupper(static_cast<unsigned char>(command.front())) != 0)
            EXPECT_TRUE(is_sentence(reply)) << reply;
        else
            EXPECT_FALSE(reply.err.empty() && reply.out.find("wrong") == std::string::npos) << reply;
        return reply;
    }
    // No failed call was taken for an answer: the error is that of the call. libbpf has errors of its own when it loads
    // programs, and libc when it starts a thread.
    static void expect_reason(const Reply &reply, const Fault &fault) {
        if (fault.kills() || fault.call.name == "clone3" || reply.json.is_null() || reply.code() <= 0)
            return;
        const std::string name = fault.what.substr(fault.what.find('=') + 1);
        EXPECT_NE((reply.message() + reply.details()).find(name), std::string::npos) << reply;
    }
    // Whatever the fault left, these calls remove it.
    void expect_clean_after(const std::string &command) const {
        expect_done(command);
        // DEL sets it down; an ADD that failed and undid all leaves it up, as the main plugin did.
        if (!adopted_.empty())
            node_.run("ip link set " + adopted_ + " down");
        expect_everything(before_);
    }

    std::shared_ptr<Container> container_ = node_.container();
    Json config_;
    Json result_;
    std::string before_;
    std::string args_{};
    std::string path_ = "/usr/sbin:/usr/bin:/sbin:/bin"; // of the plugin
    std::string adopted_{};                              // the main plugin's host-side veth
    bool all_threads_ = false;                           // faults hit threads and children too
    bool without_load_ = false;                          // the calls that load programs are not hit

  private:
    [[nodiscard]] static bool is_by_iptables() { return GetParam().starts_with("iptables"); }
    [[nodiscard]] static Json bandwidth() {
        Json limits = {{"ingressRate", 8000000}, {"ingressBurst", 64000000}};
        if (GetParam() == "uplink")
            limits.update({{"egressRate", 8000000}, {"egressBurst", 64000000}, {"unshapedSubnets", {"192.0.2.0/24"}}});
        return limits;
    }
};

inline auto fault_modes() { return testing::Values("main", "grouped", "after_ipam", "after_main", "uplink"); }
inline std::string fault_mode(const testing::TestParamInfo<std::string> &info) { return info.param; }

} // namespace podlane::test
