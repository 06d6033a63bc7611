// SPDX-License-Identifier: MIT
// The command line as a table: nouns, their verbs, options and help. The parser and every help text read it; the rows
// are beside the functions they name, and tools/podlanectl/nouns.cpp lists the nouns.
#pragma once

#include "maps/result.hpp"
#include "tools/podlanectl/cli/world.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

enum class Opt : unsigned {
    json,
    bpffs,
    help,
    pod,
    ns,
    container,
    address,
    interface,
    network,
    selector,
    all,
    reasons,
    source,
    destination,
    force,
    ingress_rate,
    ingress_burst,
    egress_rate,
    egress_burst,
    watch,
    from,
    to,
    proto,
    size,
    flags,
    frame,
    out,
    sample,
    limit,
    sort,
    fix,
    last,
    listen,
    openmetrics,
    bin_dir,
    conf_dir,
    dry_run,
    subnets,
    cluster_cidrs,
    uplinks,
    fast_path,
    log_file,
    log_level,
    no_masquerade,
    mtu,
    plugin,
    state_dir,
    from_node,
    mode,
    labels,
    keys,
    nodes,
    count
};

struct Option {
    Opt id;
    char letter; // '\0': none
    std::string_view name;
    std::string_view value; // name of its value in help; empty: a switch
    std::string_view help;
};

// A set of options.
class Opts {
  public:
    constexpr Opts(std::initializer_list<Opt> ids) {
        for (const Opt id : ids)
            bits_ |= std::uint64_t{1} << static_cast<unsigned>(id);
    }
    [[nodiscard]] constexpr bool has(Opt id) const { return (bits_ >> static_cast<unsigned>(id) & 1U) != 0; }
    friend constexpr Opts operator|(Opts a, Opts b) {
        a.bits_ |= b.bits_;
        return a;
    }

  private:
    std::uint64_t bits_ = 0;
};

inline constexpr Opts kHelp{Opt::help};
inline constexpr Opts kPlain{Opt::json, Opt::bpffs, Opt::help};
inline constexpr Opts kRead = kPlain | Opts{Opt::watch};
inline constexpr Opts kSelect{Opt::pod,       Opt::ns,      Opt::container, Opt::address,
                              Opt::interface, Opt::network, Opt::selector};

struct Call;

struct Argument {
    std::string_view name; // empty: the command takes none
    bool required = false;
    std::string_view help{};
};

inline constexpr Argument kWhich{"WHICH", false,
                                 "a pod, NAMESPACE/POD, container ID prefix, address or host interface"};

struct Command {
    std::string_view verb; // empty: the object alone is the command
    std::string_view summary;
    Opts options;
    Argument argument;
    std::string_view detail; // paragraphs below the options in help
    Result<int> (*run)(const Call &call, World &world);
    bool writes = false;   // its verb cannot be abbreviated, and the pins must be of this network namespace
    Argument more{};       // what may be repeated after the argument
    bool anywhere = false; // in any network namespace, though it writes, and with directories that are not there
};

// A noun and what can be done with it; the first command is the default one.
struct Noun {
    std::string_view name;
    std::string_view summary;
    std::span<const Command> commands;
};

// The parsed command line. If `help` is set, noun and command are what was named before it, if anything.
struct Call {
    const Noun *noun = nullptr;
    const Command *command = nullptr;
    bool help = false;
    std::array<std::optional<std::string>, static_cast<std::size_t>(Opt::count)> values{};
    std::string argument{};
    std::vector<std::string> more{};

    [[nodiscard]] const std::optional<std::string> &value(Opt id) const { return values[static_cast<std::size_t>(id)]; }
    [[nodiscard]] bool has(Opt id) const { return value(id).has_value(); }
};

std::span<const Option> options();
std::span<const Noun> nouns(); // in nouns.cpp

// Options may stand anywhere and may be abbreviated while they are unique; nouns and verbs as in ip(8): the first of
// the table that begins with the word. Errors are usage errors.
Result<Call> parse(std::span<const std::string_view> words);
std::string help_text(const Call &call);
// "map get MAP [KEY]...".
std::string synopsis(const Noun &noun, const Command &command);

// The whole program: parse, run, print errors. Returns the exit code: 0 success, 1 a problem or error, 2 usage error.
int run(std::span<const std::string_view> words, World &world);

// An error in the command line: exit code 2.
Error usage_error(std::string message, std::string hint = {});
// Of a value that cannot be read: the hint of the cause is the better one, if it has one.
Error usage_error(std::string message, std::string hint, const Error &cause);

} // namespace podlane::ctl
