// SPDX-License-Identifier: MIT
#include "plugin/ipam.hpp"

#include "maps/text.hpp"
#include "plugin/cni/config.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/cni/masked.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/version.hpp"
#include "plugin/history.hpp"
#include "plugin/log.hpp"
#include "plugin/program.hpp"

#include <unistd.h>

#include <optional>
#include <string_view>

namespace podlane::ipam {
namespace {

constexpr const char *kOwnLog = "correct \"ipam\", or see the plugin's own log";
constexpr auto kIncompatible = static_cast<unsigned>(ErrorCode::incompatible_cni_version);

Result<std::string> find_plugin(const cni::Request &request) {
    if (cni::names_itself_for_ipam(request.config))
        return Error{ErrorCode::invalid_network_config,
                     "IPAM plugin \"" + request.config.ipam_type + "\" is Podlane itself, which gives no addresses",
                     "use host-local or static"};
    return find_program(request.path, request.config.ipam_type, "IPAM plugin", "correct \"ipam.type\"");
}

// Ours with the CNI variables of the request: GC deletes attachments other than the one it was called for.
std::vector<std::string> environment_for(const cni::Request &request, std::string_view command) {
    std::vector<std::string> all;
    for (char **entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const bool replaced = text.starts_with("CNI_COMMAND=") || text.starts_with("CNI_CONTAINERID=") ||
                              text.starts_with("CNI_IFNAME=") || text.starts_with("CNI_NETNS=") ||
                              text.starts_with("CNI_ARGS=") || text.starts_with("CNI_PATH=");
        if (!replaced)
            all.emplace_back(text);
    }
    all.push_back("CNI_COMMAND=" + std::string(command));
    all.push_back("CNI_CONTAINERID=" + request.container_id);
    all.push_back("CNI_IFNAME=" + request.ifname);
    all.push_back("CNI_NETNS=" + request.netns);
    all.push_back("CNI_PATH=" + join(request.path, ":")); // podlanectl has none of its own
    if (const std::string &args = request.ipam_args.empty() ? request.args : request.ipam_args; !args.empty())
        all.push_back("CNI_ARGS=" + args);
    return all;
}

Result<Finished> run_plugin(const std::string &plugin, const cni::Request &request, std::string_view command,
                            const std::string &input) {
    auto finished = run_process(plugin, environment_for(request, command), input, {},
                                std::chrono::seconds(request.config.ipam_timeout_s));
    if (finished && is_logged(cni::Log::Level::debug))
        log(cni::Log::Level::debug, "IPAM plugin " + plugin + " " + std::string(command) + ": " +
                                        exit_words(*finished) +
                                        (finished->out.empty() ? "" : ", answer: " + cni::masked(finished->out)));
    if (finished)
        return finished;
    if (finished.error().code != ErrorCode::try_again_later) {
        if (finished.error().hint.empty())
            finished.error().hint = kOwnLog;
        return std::move(finished).error().context("IPAM plugin \"" + request.config.ipam_type + "\"");
    }
    finished.error().message = "IPAM plugin " + finished.error().message;
    finished.error().hint = "if it needs longer, set \"ipamTimeout\" (seconds) to more than " +
                            std::to_string(request.config.ipam_timeout_s);
    return finished;
}

// Errors of the system begin with a capital or a small letter, by the plugin's language.
const char *remedy_of(const Finished &finished) {
    const std::string said = finished.out + finished.err;
    const auto says = [&](std::string_view words) { return said.find(words) != std::string::npos; };
    if (says("o space left on device"))
        return "make room on the file system of the plugin's data (`df` and `df -i` show it)";
    if (says("ead-only file system"))
        return "mount the file system of the plugin's data for writing, or name another directory in \"ipam\"";
    return kOwnLog;
}

// The error that it printed, or how it ended.
Error error_of(const std::string &plugin, const cni::Request &request, const Finished &finished) {
    const Error ended{ErrorCode::ipam, "IPAM plugin " + plugin + " " + how_it_ended(finished),
                      finished.signal != 0 ? remedy_of_signal(plugin, finished) : remedy_of(finished)};
    return finished.signal != 0 ? ended : cni::parse_plugin_error(finished.out, request.config.ipam_type, ended);
}

bool wants_other_version(const Finished &finished) {
    return finished.exit_code != 0 && cni::plugin_error_code(finished.out) == kIncompatible;
}

// The newest version the plugin speaks that is not newer than ours. `answered` is set if the plugin ended by itself.
Result<cni::Version> common_version(const std::string &plugin, const cni::Request &request, bool &answered) {
    const std::string question = "{\"cniVersion\":\"" + cni::to_string(request.config.cni_version) + "\"}";
    const Finished answer = TRY(run_plugin(plugin, request, "VERSION", question));
    if (answer.signal != 0)
        return error_of(plugin, request, answer);
    answered = true;
    auto spoken = cni::parse_version_reply(answer.out);
    if (!spoken && answer.exit_code != 0)
        return error_of(plugin, request, answer);
    if (!spoken) {
        spoken.error().hint = "install another build of " + plugin;
        return std::move(spoken).error().context("IPAM plugin \"" + request.config.ipam_type + "\"");
    }
    std::optional<cni::Version> best;
    for (const cni::Version version : *spoken)
        if (cni::is_supported(version) && version <= request.config.cni_version && (!best || *best < version))
            best = version;
    if (!best)
        return Error{ErrorCode::incompatible_cni_version, "IPAM plugin \"" + request.config.ipam_type +
                                                              "\" speaks no CNI version up to " +
                                                              cni::to_string(request.config.cni_version)};
    return *best;
}

std::string input_of(const cni::Request &request) {
    if (!request.ipam_config.empty())
        return request.ipam_config;
    return request.ignored.empty() ? request.raw_config : cni::without_ignored_arguments(request.raw_config);
}

// The plugin's own error comes first: its versions are only how Podlane goes on.
Error with_own_error(Error of_version, Error own, bool other_version) {
    if (of_version.message.find(own.message) == std::string::npos)
        own.message += "; and " + of_version.message;
    if (own.hint.empty())
        own.hint = std::move(of_version.hint);
    if (own.system_errno == 0)
        own.system_errno = of_version.system_errno;
    if (other_version)
        own.code = of_version.code;
    return own;
}

struct Ending {
    bool killed = false;  // the plugin did not end by itself
    bool refused = false; // it did, with an error that does not say to try again
};

Result<Finished> run_as(const cni::Request &request, std::string_view command, bool may_lack_command, Ending &ending) {
    const Step step(STEP_IPAM);
    const std::string plugin = TRY(find_plugin(request));
    const std::string input = input_of(request);
    auto ran = run_plugin(plugin, request, command, input);
    ending.killed |= !ran || ran->signal != 0;
    Finished finished = TRY(std::move(ran));
    const bool other_version = wants_other_version(finished);
    // A plugin from before 1.1.0 may stumble over what a new command leaves out before it looks at the version.
    if (other_version || (may_lack_command && finished.exit_code != 0)) {
        bool answered = false;
        const auto version = common_version(plugin, request, answered);
        ending.refused = other_version && finished.signal == 0 && answered; // until it is called again
        if (!version)
            return with_own_error(version.error(), error_of(plugin, request, finished), other_version);
        if (may_lack_command && *version < cni::kFirstWithGc)
            return Finished{};
        if (!other_version)
            return error_of(plugin, request, finished);
        const std::string config = TRY(cni::with_cni_version(input, *version));
        auto again = run_plugin(plugin, request, command, config);
        ending.refused = false;
        ending.killed |= !again || again->signal != 0;
        finished = TRY(std::move(again));
    }
    if (finished.exit_code == 0)
        return finished;
    Error error = error_of(plugin, request, finished);
    ending.refused = finished.signal == 0 && cni::plugin_error_code(finished.out) && error.code == ErrorCode::ipam;
    return error;
}

// The error of host-local for an address that the attachment got from an ADD that was killed.
bool holds_lease(const Error &error) { return error.message.find("duplicate allocation") != std::string::npos; }

Result<void> run_without_answer(const cni::Request &request, std::string_view command, bool may_lack_command) {
    Ending ending;
    TRY(run_as(request, command, may_lack_command, ending));
    return {};
}

} // namespace

// A plugin that could not be looked for may be there: running it says what failed.
std::optional<Error> why_missing(const cni::Request &request) {
    const auto plugin = find_plugin(request);
    return plugin || plugin.error().system_errno != 0 ? std::nullopt : std::optional(plugin.error());
}

Error with_present_cause(const cni::Request &request, Error earlier) {
    auto found = request.config.ipam_type.empty() ? Result<std::string>(std::string{}) : find_plugin(request);
    if (found || earlier.message.find(found.error().message) != std::string::npos)
        return earlier;
    Error present = std::move(found).error();
    present.message += "; and " + earlier.message;
    present.hint += (present.hint.empty() || earlier.hint.empty() ? "" : "; ") + earlier.hint;
    return present;
}

Result<cni::Attachment> add(const cni::Request &request, bool &killed) {
    Ending ending;
    auto leased = run_as(request, "ADD", false, ending);
    if (!leased && holds_lease(leased.error())) {
        log(cni::Log::Level::warning, leased.error().message + ": releasing that lease, and requesting another");
        auto released = remove(request);
        killed |= !released;
        TRY(std::move(released));
        leased = run_as(request, "ADD", false, ending);
    }
    killed |= ending.killed;
    const Finished finished = TRY(std::move(leased));
    auto lease = cni::parse_lease(finished.out);
    if (lease && lease->addresses.empty() && cni::plugin_error_code(finished.out)) // with exit code 0 all the same
        lease = error_of(TRY(find_plugin(request)), request, finished);
    if (lease)
        return std::move(lease).value();
    // The plugin has given something away all the same.
    Error error = std::move(lease).error().context("result of IPAM plugin \"" + request.config.ipam_type + "\"");
    if (error.hint.empty())
        error.hint = "correct \"ipam\", which the plugin was called with, or install another build of it";
    if (auto returned = remove(request); !returned) {
        killed = true;
        error.message += "; and releasing the lease: " + returned.error().message;
    }
    return error;
}

Result<void> remove(const cni::Request &request) { return run_without_answer(request, "DEL", false); }

Result<void> remove(const cni::Request &request, bool &refused) {
    Ending ending;
    const auto ran = run_as(request, "DEL", false, ending);
    refused = ending.refused;
    return ran ? Result<void>{} : ran.error();
}

Result<void> check(const cni::Request &request) {
    if (request.config.cni_version < cni::kFirstWithCheck)
        return {};
    return run_without_answer(request, "CHECK", false);
}

Result<void> status(const cni::Request &request) { return run_without_answer(request, "STATUS", true); }

Result<void> gc(const cni::Request &request) { return run_without_answer(request, "GC", true); }

} // namespace podlane::ipam
