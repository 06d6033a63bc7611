// SPDX-License-Identifier: MIT
// podlane: reads one CNI call, serves it, prints one result.
#include "loader/expedited_rcu.hpp"
#include "loader/privilege.hpp"
#include "loader/process.hpp"
#include "maps/file.hpp"
#include "maps/version.hpp"
#include "plugin/cni/error.hpp"
#include "plugin/cni/masked.hpp"
#include "plugin/cni/request.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/version.hpp"
#include "plugin/history.hpp"
#include "plugin/kubernetes.hpp"
#include "plugin/log.hpp"
#include "plugin/node.hpp"
#include "plugin/pod_ranges.hpp"
#include "plugin/verbs.hpp"

#include <linux/capability.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>
#include <span>
#include <string>
#include <string_view>

namespace podlane {
namespace {

constexpr std::size_t kMostInput = (std::size_t{1} << 20U) + 1; // one byte more than is accepted

cni::Environment read_environment() {
    cni::Environment all;
    for (char **entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const auto equals = text.find('=');
        if (text.starts_with("CNI_") && equals != std::string_view::npos)
            all.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return all;
}

Result<std::string> read_input() {
    return read_all(STDIN_FILENO, "the network configuration on standard input", kMostInput);
}

// The capabilities that this call and the programs it starts (IPAM plugins, nft) need.
constexpr std::array kKeptCapabilities = {
    CAP_BPF,          CAP_PERFMON, // programs and maps
    CAP_NET_ADMIN,    CAP_NET_RAW, // links, routes, rules; announcements of addresses
    CAP_SYS_ADMIN,                 // other network namespaces, the BPF file system
    CAP_SYS_PTRACE,                // network namespaces named by /proc/PID/ns/net
    CAP_SYS_RESOURCE,              // maps beyond RLIMIT_MEMLOCK, before Linux 5.11
    CAP_DAC_OVERRIDE,              // files of the runtime and of IPAM plugins
};

Result<void> print(std::string text) {
    if (text.empty())
        return {};
    text += '\n';
    return write_all(STDOUT_FILENO, "the result to standard output", text);
}

Result<std::string> serve(const cni::Request &given, const cni::Environment &environment) {
    if (given.command != cni::Command::version && geteuid() != 0)
        return Error{ErrorCode::plugin_not_available,
                     "podlane runs as user " + std::to_string(geteuid()) + ", which may not change the node's network",
                     "let the runtime run it as root"};
    const cni::Request request = TRY(complete_pod_ranges(given, environment));
    switch (request.command) {
    case cni::Command::add:
        return add(TRY(complete_identity(request, environment)), &print);
    case cni::Command::del:
        return del(request);
    case cni::Command::check:
        return check(TRY(complete_identity(request, environment)));
    case cni::Command::gc:
        return gc(request);
    case cni::Command::status:
        return status(request);
    case cni::Command::version:
        return cni::version_json(request.config.cni_version);
    }
    return Error{ErrorCode::internal, "no such command"};
}

// At level debug: the whole request. Everything that is decided later follows from it.
void log_request(const cni::Environment &environment, std::string_view input) {
    if (!is_logged(cni::Log::Level::debug))
        return;
    std::string text = "request:";
    for (const auto &[name, value] : environment)
        text += " " + name + "=" + (name == "CNI_ARGS" ? cni::masked_pairs(value) : value);
    log(cni::Log::Level::debug, text);
    log(cni::Log::Level::debug, "configuration: " + cni::masked(input));
}

int explain_by_hand(std::span<const char *const> words) {
    if (!words.empty() && (std::string_view(words.front()) == "--version" || std::string_view(words.front()) == "-V")) {
        const auto printed = print("podlane " + std::string(kVersion));
        return printed ? 0 : 1;
    }
    std::fprintf(stderr,
                 "podlane %s: a CNI plugin (CNI protocol versions %s)\n"
                 "A container runtime runs it with CNI_COMMAND in the environment and a network configuration on\n"
                 "standard input. To look at the node's endpoints, use podlanectl.\n",
                 std::string(kVersion).c_str(), cni::supported_versions_text().c_str());
    return 0;
}

// On standard error if standard output takes nothing: runtimes show that instead.
int fail(const Error &error, cni::Version version) {
    log(cni::Log::Level::error, error.message);
    const std::string text = cni::to_json(error, version);
    if (!print(text))
        std::fprintf(stderr, "%s\n", text.c_str());
    return 1;
}

// Without a handler an allocation that fails would end the call without a word. This takes no memory; what the call has
// made stays, as of a killed one.
[[noreturn]] void fail_without_memory() {
    constexpr std::string_view kText = R"({"cniVersion":"1.0.0","code":11,"msg":"podlane has no memory left",)"
                                       R"("details":"the limit of the runtime's cgroup, or RLIMIT_AS, is too low, or )"
                                       R"(the node is out of memory; the next attempt goes on"})"
                                       "\n";
    const bool is_written = write(STDOUT_FILENO, kText.data(), kText.size()) >= 0;
    _exit(is_written ? 1 : 2);
}

int run(std::span<const char *const> words) {
    std::set_new_handler(&fail_without_memory);
    reserve_standard_streams();
    survive_file_size_limit();
    std::signal(SIGPIPE, SIG_IGN); // an ADD whose runtime is gone is rolled back
    const cni::Environment environment = read_environment();
    const auto dropped = keep_capabilities(kKeptCapabilities); // before anything that others wrote is parsed
    (void)ExpeditedRcu::clean_up();                            // of a killed call
    if (!environment.contains("CNI_COMMAND"))
        return explain_by_hand(words);
    const auto read = read_input();
    if (!read)
        return fail(read.error(), cni::kNewestVersion);
    const std::string &input = *read;
    auto request = dropped ? cni::parse_request(environment, input) : Result<cni::Request>(dropped.error());
    if (request && !request->config.expedited_rcu)
        ExpeditedRcu::forbid();
    if (request && request->command != cni::Command::version)
        log_to(*request);
    log_request(environment, input);
    if (request)
        for (const std::string &sentence : request->ignored)
            log(cni::Log::Level::warning, sentence + "; it is ignored");
    if (request)
        for (const std::string &sentence : request->warnings)
            log(cni::Log::Level::warning, sentence);
    auto served = request ? serve(*request, environment) : Result<std::string>(request.error());
    if (request && !served)
        served = with_missing_root(request->config, std::move(served).error());
    if (request)
        record_operation(*request, served);
    const cni::Version version = cni::version_of(input).value_or(cni::kNewestVersion);
    if (!served)
        return fail(served.error(), version);
    if (!served->empty())
        log(cni::Log::Level::debug, "result: " + cni::masked(*served));
    log(cni::Log::Level::info, "done");
    if (request->command == cni::Command::add) // printed before it was committed
        return 0;
    const auto printed = print(*served);
    return printed ? 0 : fail(printed.error(), version);
}

} // namespace
} // namespace podlane

int main(int count, char **words) {
    const std::span all(words, static_cast<std::size_t>(count));
    return podlane::run(all.subspan(std::min<std::size_t>(all.size(), 1)));
}
