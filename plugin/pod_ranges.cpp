// SPDX-License-Identifier: MIT
#include "plugin/pod_ranges.hpp"

#include "loader/state_file.hpp"
#include "maps/clock.hpp"
#include "maps/file.hpp"
#include "maps/hash.hpp"
#include "maps/text.hpp"
#include "plugin/cni/kubernetes.hpp"
#include "plugin/cni/pod_ranges.hpp"
#include "plugin/kubernetes.hpp"
#include "plugin/log.hpp"
#include "plugin/state.hpp"

#include <cctype>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

namespace podlane {
namespace {

using cni::json::Node;
using cni::json::Value;
using Kept = cni::KeptRanges;
using Ranges = std::vector<std::string>;

constexpr std::string_view kRangesFile = "pod-ranges-";
constexpr std::uint64_t kFreshNs = 300 * kNsPerSecond;

std::string ranges_file(const std::string &question) {
    return std::string(kRangesFile) + std::to_string(fnv1a_64(question));
}

// None if the file is not whole, as after a power cut.
Result<std::optional<Kept>> read_kept(const std::string &directory, const std::string &name) {
    const auto text = TRY(read_own_state_file(directory + "/" + name));
    auto kept = text ? cni::parse_kept_ranges(*text, name) : Error{};
    return kept ? std::optional(*std::move(kept)) : std::nullopt;
}

// The kept file spares a query, and no more: without it the API server says the same.
std::optional<Kept> find_kept(const std::string &directory, const std::string &question) {
    auto kept = read_kept(directory, ranges_file(question));
    if (!kept)
        log(cni::Log::Level::warning, "the node's ranges that were kept are not used: " + kept.error().message);
    return kept && *kept && (*kept)->question == question ? *std::move(kept) : std::nullopt;
}

void keep(const std::string &directory, const std::string &question, const Ranges &ranges) {
    const auto written =
        replace_file(directory, ranges_file(question), cni::kept_ranges_text({question, ranges, realtime_ns()}));
    if (!written)
        log(cni::Log::Level::warning, "the node's ranges are not kept: " + written.error().message);
}

// Kubernetes has no capital letters in a name.
Result<std::string> name_in_kubernetes(const cni::Config &config) {
    const std::string name = lower_case(node_name(config));
    if (!cni::is_dns_name(name))
        return Error{ErrorCode::invalid_network_config,
                     "the node is called " + cni::json::quote(name) + ", which is no name of a node in Kubernetes",
                     "set \"nodename\" to its name there"};
    return name;
}

Result<Ranges> query(const cni::Request &request, const std::string &question) {
    const std::string said = TRY(query_kubernetes(request, question, "name the range instead of \"usePodCidr\""));
    return cni::ranges_in(TRY(cni::json::parse_object(said, "the answer of podlane-k8s")), "the answer of podlane-k8s");
}

Error no_ranges(Error error, const std::string &node) {
    error.code = ErrorCode::try_again_later;
    if (error.hint.empty() && error.system_errno == 0)
        error.hint = "correct \"kubernetes\" or \"nodename\", or name the range instead of \"usePodCidr\"";
    return std::move(error).context("\"ipam\" has \"usePodCidr\": querying the API server for node " + node);
}

bool is_fresh(const Kept &kept) {
    const std::uint64_t now = realtime_ns();
    return kept.queried_ns <= now && now - kept.queried_ns < kFreshNs;
}

Result<Ranges> find_ranges(const cni::Request &request) {
    const std::string node = TRY(name_in_kubernetes(request.config));
    const std::string question = cni::node_question(request.config.kubernetes, node);
    const auto kept = find_kept(request.config.state_dir, question);
    if (kept && (request.command == cni::Command::status || is_fresh(*kept)))
        return kept->ranges;
    auto said = query(request, question);
    if (!said && !kept)
        return no_ranges(std::move(said).error(), node);
    if (!said)
        log(cni::Log::Level::warning, "querying the API server for node " + node + ": " + said.error().message +
                                          "; its ranges are taken to be what they were: " + join(kept->ranges, ", "));
    else if (kept && kept->ranges != *said)
        log(cni::Log::Level::warning,
            "the ranges of node " + node + " are no longer " + join(kept->ranges, ", ") + " but " + join(*said, ", "));
    const Ranges ranges = said ? *std::move(said) : kept->ranges;
    keep(request.config.state_dir, question, ranges);
    return ranges;
}

// The query of a plugin's configuration, and the node that it is about; without `nodename` the runtime's environment
// names it.
Result<Value> question_of(const Value &plugin) {
    const Node root(&plugin, {});
    cni::Kubernetes server;
    TRY(cni::read_kubernetes(root.at("kubernetes"), server));
    const Node name = root.at("nodename");
    return cni::json::parse_object(
        cni::node_question(server, name.present() ? lower_case(TRY(name.text())) : std::string()), "the question");
}

bool is_answer_to(const Value &wanted, const Kept &kept) {
    auto question = cni::json::parse_object(kept.question, "the question");
    if (question && wanted.at("node") == Value("") && question->contains("node"))
        (*question)["node"] = "";
    return question && *question == wanted;
}

std::optional<Kept> find_last_kept(const std::string &directory, const Value &wanted) {
    std::optional<Kept> last;
    const auto names = names_in(directory);
    for (const std::string &name : names ? *names : std::vector<std::string>{}) {
        if (!name.starts_with(kRangesFile))
            continue;
        auto kept = read_kept(directory, name);
        if (kept && *kept && is_answer_to(wanted, **kept) && (!last || last->queried_ns < (*kept)->queried_ns))
            last = *std::move(kept);
    }
    return last;
}

} // namespace

Result<cni::Request> complete_pod_ranges(const cni::Request &request, const cni::Environment &environment) {
    if (request.config.pod_ranges == 0)
        return request;
    if (request.command == cni::Command::add || request.command == cni::Command::status)
        return parse_again(request, environment,
                           TRY(cni::with_pod_ranges(request.raw_config, TRY(find_ranges(request)))));
    const auto config = cni::with_any_ranges(request.raw_config);
    auto completed = config ? parse_again(request, environment, *config) : Result<cni::Request>(request);
    return completed ? std::move(completed) : request; // DEL goes on with what it has
}

Value with_kept_pod_ranges(const Value &plugin, const std::string &state_directory) {
    const auto wanted = question_of(plugin);
    if (!wanted || cni::families_of_pod_ranges(plugin) == 0)
        return plugin;
    const auto last = find_last_kept(state_directory, *wanted);
    const auto completed = last ? cni::with_pod_ranges(cni::json::print(plugin), last->ranges) : Error{};
    auto parsed = completed ? cni::json::parse_object(*completed, "the network configuration") : Error{};
    return parsed ? *std::move(parsed) : plugin;
}

Result<void> forget_pod_ranges(const std::string &state_directory) {
    for (const std::string &name : TRY(names_in(state_directory, Hidden::too)))
        if (name.starts_with(kRangesFile) || name.starts_with("." + std::string(kRangesFile)))
            if (auto removed = remove_if_present(state_directory + "/" + name);
                !removed && removed.error().system_errno != EISDIR) // a directory, which Podlane has not made
                return removed;
    return {};
}

} // namespace podlane
