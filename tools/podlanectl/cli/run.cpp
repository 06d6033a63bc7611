// SPDX-License-Identifier: MIT
#include "maps/abi/names.h"
#include "tools/podlanectl/cli/cli.hpp"
#include "maps/clock.hpp"
#include "maps/file.hpp"
#include "maps/printable.hpp"
#include "maps/text.hpp"

#include <bpf/libbpf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>

namespace podlane::ctl {
namespace {

// The command as a shell reads it.
std::string command_line(std::span<const std::string_view> words) {
    std::string text = "podlanectl";
    for (const std::string_view word : words) {
        const bool is_plain = !word.empty() && std::ranges::all_of(word, [](char c) {
            return is_key_character(c) || c == ':' || c == ',' || c == '=' || c == '@' || c == '%';
        });
        text += is_plain ? " " + std::string(word) : " '" + std::string(word) + "'";
    }
    return text;
}

std::string hint_of(const Error &error, std::span<const std::string_view> words) {
    if (!error.hint.empty())
        return error.hint;
    switch (error.system_errno) {
    case EPERM:
    case EACCES:
        if (geteuid() != 0)
            return "run it as root: sudo " + command_line(words);
        if (error.code == ErrorCode::bpf && error.system_errno == EACCES)
            return "it is no BPF object, or a security module or the mount refuses it; see `podlanectl doctor`";
        return "run as root with CAP_BPF and CAP_NET_ADMIN (not in a restricted container)";
    case EINVAL:
    case ENOSYS:
    case EOPNOTSUPP:
        return error.code == ErrorCode::bpf ? "\"podlanectl doctor\" lists the features this kernel lacks" : "";
    default:
        return {};
    }
}

int complain(const Error &error, std::span<const std::string_view> words, const World &world) {
    // It may quote foreign text: an object of Kubernetes, a file.
    std::string text =
        output::toned("podlanectl: ", output::Tone::bad, world.err_style) + printable(error.message) + "\n";
    if (const std::string hint = hint_of(error, words); !hint.empty())
        text += "hint: " + printable(hint) + "\n";
    std::fwrite(text.data(), 1, text.size(), world.err);
    return error.code == ErrorCode::invalid_environment ? 2 : 1;
}

volatile std::sig_atomic_t interrupted = 0;
void interrupt(int) { interrupted = 1; }

// On a terminal each output replaces the previous one; elsewhere an empty line separates them.
Result<int> run_again(const Call &call, World &world) {
    constexpr timespec kInterval{1, 0};
    const char *separator = world.style.colour ? "\033[H\033[J" : world.json ? "" : "\n";
    struct sigaction action {};
    action.sa_handler = &interrupt;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    for (bool first = true; interrupted == 0; first = false) {
        read_clocks(world);
        world.print(first && !world.style.colour ? "" : separator);
        const Result<int> code = call.command->run(call, world);
        if (!code)
            return code.error();
        if (auto flushed = world.flush(); !flushed && world.write_errno != EPIPE)
            return std::move(flushed).error();
        if (world.write_errno != 0) {
            world.write_errno = 0;
            return *code; // the reader has closed the pipe
        }
        nanosleep(&kInterval, nullptr);
    }
    return 0;
}

int help(const Call &call, std::span<const std::string_view> words, const World &world) {
    world.print(help_text(call));
    return words.empty() ? 2 : 0;
}

// Another directory for each place that it is called from.
Result<void> refuse_relative_root(const Call &call, const World &world) {
    if (world.bpffs.empty() || world.bpffs.front() == '/' || !call.command->options.has(Opt::bpffs))
        return {};
    return usage_error(std::string(call.has(Opt::bpffs) ? "--bpffs" : "PODLANE_BPFFS") + " \"" + world.bpffs +
                           "\" is not an absolute path",
                       "as in " PODLANE_ROOT);
}

// Of an option: a relative one would be another directory for each place that it is called from. The default ones, and
// those of the runtime's networks, may be missing: before the first ADD.
struct Directory {
    Opt option;
    const char *name, *example, *remedy;
};
constexpr std::array<Directory, 2> kDirectories = {{
    {Opt::state_dir, "--state-dir", "/var/lib/podlane",
     "name that of the key \"stateDir\" in the configuration of the pods' network"},
    {Opt::conf_dir, "--conf-dir", "/etc/cni/net.d", "correct --conf-dir, or leave it out"},
}};

Result<void> check_directories(const Call &call, const World &world) {
    for (const Directory &one : kDirectories) {
        const auto &given = call.value(one.option);
        if (!given)
            continue;
        if (!given->starts_with('/'))
            return usage_error(std::string(one.name) + " \"" + *given + "\" is not an absolute path",
                               std::string("as in ") + one.example);
        const bool may_be_missing =
            call.command->anywhere || (one.option == Opt::state_dir && world.has_configured_state_dir);
        if (!may_be_missing && !TRY(exists(*given + "/.", ErrorCode::io_failure)))
            return Error{ErrorCode::missing, std::string(one.name) + ": there is no directory " + *given, one.remedy};
    }
    return {};
}

Result<int> run_command(const Call &call, World &world) {
    TRY(refuse_relative_root(call, world));
    TRY(check_directories(call, world));
    if (world.may_write && ((call.command->writes && !call.command->anywhere) || call.has(Opt::fix)))
        TRY(world.may_write(world.bpffs));
    return call.has(Opt::watch) ? run_again(call, world) : call.command->run(call, world);
}

} // namespace

World real_world() {
    World world;
    world.style = output::style_of(STDOUT_FILENO);
    world.err_style = output::style_of(STDERR_FILENO);
    const char *root = std::getenv("PODLANE_BPFFS");
    world.bpffs = root == nullptr || *root == '\0' ? PODLANE_ROOT : plain_path(root);
    read_clocks(world);
    return world;
}

void read_clocks(World &world) {
    world.realtime_ns = realtime_ns();
    world.monotonic_ns = monotonic_ns();
    world.boottime_ns = boottime_ns();
}

int run(std::span<const std::string_view> words, World &world) {
    Result<Call> call = parse(words);
    if (!call)
        return complain(call.error(), words, world);
    for (const Opt directory : {Opt::bpffs, Opt::state_dir}) // records name them, in one spelling
        if (auto &given = call->values[static_cast<std::size_t>(directory)])
            given = plain_path(*std::move(given));
    libbpf_set_print(nullptr); // our own errors carry what matters of libbpf's
    world.json = call->has(Opt::json);
    if (call->has(Opt::bpffs))
        world.bpffs = *call->value(Opt::bpffs);
    const Result<int> code = call->help ? help(*call, words, world) : run_command(*call, world);
    if (!code)
        return complain(code.error(), words, world);
    if (const auto flushed = world.flush(); !flushed)
        return complain(flushed.error(), words, world);
    return *code;
}

} // namespace podlane::ctl
