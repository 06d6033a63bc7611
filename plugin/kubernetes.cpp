// SPDX-License-Identifier: MIT
#include "plugin/kubernetes.hpp"

#include "plugin/cni/ipam_config.hpp"
#include "plugin/cni/kubernetes.hpp"
#include "plugin/cni/masked.hpp"
#include "plugin/log.hpp"
#include "plugin/program.hpp"
#include "plugin/state.hpp"

#include <algorithm>
#include <chrono>

namespace podlane {
namespace {

constexpr const char *kProgram = "podlane-k8s";
constexpr std::chrono::seconds kTimeLimit{2};

} // namespace

// It gets the question and nothing of this call's environment.
Result<std::string> query_kubernetes(const cni::Request &request, const std::string &question,
                                     const std::string &correct) {
    const std::string program = TRY(find_program(request.path, kProgram, "program", correct));
    Finished finished = TRY(run_process(program, {}, question, {}, kTimeLimit));
    if (finished.exit_code != 0)
        return cni::parse_plugin_error(finished.out, kProgram,
                                       {ErrorCode::ipam, program + " " + how_it_ended(finished)});
    log(cni::Log::Level::debug, "answer of podlane-k8s: " + cni::masked(finished.out));
    return std::move(finished.out);
}

Result<cni::Request> parse_again(const cni::Request &request, const cni::Environment &environment,
                                 const std::string &config) {
    cni::Request completed = TRY(cni::parse_request(environment, config));
    for (const std::string &sentence : completed.warnings) // the others are logged already
        if (std::ranges::find(request.warnings, sentence) == request.warnings.end())
            log(cni::Log::Level::warning, sentence);
    return completed;
}

Result<cni::Request> complete_identity(const cni::Request &request, const cni::Environment &environment) {
    if (request.command == cni::Command::check && (request.config.identity & cni::kKubernetes) != 0) {
        const auto record = TRY(find_record(request));
        return record ? parse_again(request, environment, cni::with_kubernetes_of(request.raw_config, record->config))
                      : request;
    }
    if (!TRY(cni::has_pod_to_look_up(request)))
        return request;
    auto answer =
        query_kubernetes(request, cni::kubernetes_question(request), R"(remove "kubernetes" from "identity")");
    auto config = answer ? cni::with_kubernetes(request.raw_config, *answer) : std::move(answer);
    if (config)
        return parse_again(request, environment, *config);
    if (request.config.kubernetes.required) {
        config.error().code = ErrorCode::try_again_later;
        return std::move(config).error().context("querying the API server");
    }
    log(cni::Log::Level::warning,
        "querying the API server: " + config.error().message + "; the pod starts without what it says");
    return request;
}

} // namespace podlane
