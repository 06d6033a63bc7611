// SPDX-License-Identifier: MIT
#include "plugin/ipam.hpp"

#include "maps/text.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/cni/masked.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/version.hpp"
#include "plugin/history.hpp"
#include "plugin/log.hpp"
#include "plugin/program.hpp"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace podlane::ipam {
namespace {

constexpr auto kIncompatible = static_cast<unsigned>(ErrorCode::incompatible_cni_version);

Result<std::string> find_plugin(const cni::Request &request) {
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
    if (finished.error().code != ErrorCode::try_again_later)
        return std::move(finished).error().context("IPAM plugin \"" + request.config.ipam_type + "\"");
    finished.error().message = "IPAM plugin " + finished.error().message;
    finished.error().hint = "if it needs longer, set \"ipamTimeout\" (seconds) to more than " +
                            std::to_string(request.config.ipam_timeout_s);
    return finished;
}

// The error that it printed, or how it ended.
Error error_of(const std::string &plugin, const cni::Request &request, const Finished &finished) {
    const Error ended{ErrorCode::ipam, "IPAM plugin " + plugin + " " + how_it_ended(finished),
                      finished.signal != 0
                          ? "see `journalctl -k` for the reason, and install another build of " + plugin
                          : "correct \"ipam\", or see the plugin's own log"};
    return finished.signal != 0 ? ended : cni::parse_plugin_error(finished.out, request.config.ipam_type, ended);
}

bool wants_other_version(const Finished &finished) {
    return finished.exit_code != 0 && cni::plugin_error_code(finished.out) == kIncompatible;
}

// The newest version the plugin speaks that is not newer than ours.
Result<cni::Version> common_version(const std::string &plugin, const cni::Request &request) {
    const std::string question = "{\"cniVersion\":\"" + cni::to_string(request.config.cni_version) + "\"}";
    const Finished answer = TRY(run_plugin(plugin, request, "VERSION", question));
    if (answer.signal != 0)
        return error_of(plugin, request, answer);
    const auto spoken = cni::parse_version_reply(answer.out);
    if (!spoken)
        return spoken.error().context("IPAM plugin \"" + request.config.ipam_type + "\"");
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

// `killed` is set if the plugin did not end by itself.
Result<Finished> run_as(const cni::Request &request, std::string_view command, bool may_lack_command, bool &killed) {
    const Step step(STEP_IPAM);
    const std::string plugin = TRY(find_plugin(request));
    const std::string &input = request.ipam_config.empty() ? request.raw_config : request.ipam_config;
    auto ran = run_plugin(plugin, request, command, input);
    killed |= !ran || ran->signal != 0;
    Finished finished = TRY(std::move(ran));
    const bool other_version = wants_other_version(finished);
    // A plugin from before 1.1.0 may stumble over what a new command leaves out before it looks at the version.
    if (other_version || (may_lack_command && finished.exit_code != 0)) {
        const cni::Version version = TRY(common_version(plugin, request));
        if (may_lack_command && version < cni::kFirstWithGc)
            return Finished{};
        if (!other_version)
            return error_of(plugin, request, finished);
        const std::string config = TRY(cni::with_cni_version(input, version));
        auto again = run_plugin(plugin, request, command, config);
        killed |= !again || again->signal != 0;
        finished = TRY(std::move(again));
    }
    if (finished.exit_code != 0)
        return error_of(plugin, request, finished);
    return finished;
}

// The error of host-local for an address that the attachment got from an ADD that was killed.
bool holds_lease(const Error &error) { return error.message.find("duplicate allocation") != std::string::npos; }

Result<void> run_without_answer(const cni::Request &request, std::string_view command, bool may_lack_command) {
    bool killed = false;
    TRY(run_as(request, command, may_lack_command, killed));
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
    auto leased = run_as(request, "ADD", false, killed);
    if (!leased && holds_lease(leased.error())) {
        log(cni::Log::Level::warning, leased.error().message + ": releasing that lease, and requesting another");
        TRY(remove(request));
        leased = run_as(request, "ADD", false, killed);
    }
    const Finished finished = TRY(std::move(leased));
    auto lease = cni::parse_lease(finished.out);
    if (lease)
        return std::move(lease).value();
    // The plugin has given something away all the same.
    Error error = std::move(lease).error().context("result of IPAM plugin \"" + request.config.ipam_type + "\"");
    if (error.hint.empty())
        error.hint = "correct \"ipam\", which the plugin was called with, or install another build of it";
    if (auto returned = remove(request); !returned)
        error.message += "; and releasing the lease: " + returned.error().message;
    return error;
}

Result<void> remove(const cni::Request &request) { return run_without_answer(request, "DEL", false); }

Result<void> check(const cni::Request &request) {
    if (request.config.cni_version < cni::kFirstWithCheck)
        return {};
    return run_without_answer(request, "CHECK", false);
}

Result<void> status(const cni::Request &request) { return run_without_answer(request, "STATUS", true); }

Result<void> gc(const cni::Request &request) { return run_without_answer(request, "GC", true); }

} // namespace podlane::ipam
