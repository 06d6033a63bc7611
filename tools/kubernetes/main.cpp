// SPDX-License-Identifier: MIT
// podlane-k8s: queries the API server for who a pod is, or which ranges a node has. The plugin runs it as it runs an
// IPAM plugin: the question on standard input, the answer, or a CNI error, on standard output.
#include "loader/expedited_rcu.hpp"
#include "maps/file.hpp"
#include "maps/printable.hpp"
#include "maps/version.hpp"
#include "plugin/cni/error.hpp"
#include "plugin/cni/kubernetes.hpp"
#include "plugin/cni/pod_ranges.hpp"
#include "plugin/cni/version.hpp"
#include "tools/kubernetes/question.hpp"
#include "tools/kubernetes/session.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace podlane::k8s {
namespace {

using cni::json::Node;
using cni::json::Value;

constexpr std::chrono::milliseconds kTimeLimit{1700}; // the plugin kills it after 2 s
constexpr std::size_t kMostInput = std::size_t{64} << 10U;

Result<Value> object(Session &session, const std::string &path) {
    Value answer = TRY(session.get(path));
    if (!answer.contains("metadata") || !answer["metadata"].is_object())
        return Error{ErrorCode::decode_failure, "GET " + path + ": the answer has no metadata"};
    return std::move(answer["metadata"]);
}

Result<std::string> answer_of_pod(const Question &question, const Access &access) {
    // A pod's specification is long, and none of our business.
    Session session = TRY(Session::open(access, kTimeLimit, Session::Wants::metadata));
    const std::string ns_path = "/api/v1/namespaces/" + question.ns;
    const Value pod = TRY(object(session, ns_path + "/pods/" + question.pod));
    TRY(check_uid(Node(&pod, {}), question));
    const Value ns = TRY(object(session, ns_path));
    return cni::json::print(Value{{"pod", cni::texts_of(Node(&pod, {}))}, {"namespace", cni::texts_of(Node(&ns, {}))}});
}

Result<std::string> answer_of_node(const Question &question, const Access &access) {
    Session session = TRY(Session::open(access, kTimeLimit, Session::Wants::whole_object));
    const std::string path = "/api/v1/nodes/" + question.node;
    const Value node = TRY(session.get(path));
    return cni::json::print(Value{{"podCIDRs", TRY(cni::ranges_of_node(node, "GET " + path + ": the answer"))}});
}

Result<std::string> answer(std::string_view input) {
    const Question question = TRY(parse_question(input));
    const Access access =
        TRY(question.kubeconfig.empty() ? read_service_account(question.server, question.token_file, question.ca_file)
                                        : read_kubeconfig(question.kubeconfig));
    return question.node.empty() ? answer_of_pod(question, access) : answer_of_node(question, access);
}

int run(bool is_version) {
    (void)ExpeditedRcu::clean_up(); // of a killed call of the plugin
    if (is_version) {
        std::printf("podlane-k8s %s\n", std::string(kVersion).c_str());
        return EXIT_SUCCESS;
    }
    const auto input = read_all(STDIN_FILENO, "the question on standard input", kMostInput);
    auto said = input ? answer(*input) : Result<std::string>(input.error());
    if (!said) // it may quote the server
        said.error().message = printable(said.error().message);
    const auto printed = write_all(STDOUT_FILENO, "the answer to standard output",
                                   said ? *said : cni::to_json(said.error(), cni::kNewestVersion));
    return said && printed ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace
} // namespace podlane::k8s

int main(int count, char **words) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-bounds-pointer-arithmetic)
    const bool is_version = count > 1 && std::string_view(words[1]) == "--version";
    // Without the destructors of libraries: a name that is still being resolved would hold it.
    std::fflush(stdout);
    const int code = podlane::k8s::run(is_version);
    std::fflush(stdout);
    _exit(code);
}
