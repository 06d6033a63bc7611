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

struct Question {
    std::string ns, pod, uid;
    std::string node; // instead of a pod
    std::string kubeconfig;
    std::string server, token_file, ca_file;
};

Result<Question> parse_question(std::string_view text) {
    const Value document = TRY(cni::json::parse_object(text, "the question on standard input"));
    const Node root(&document, {});
    Question question;
    TRY(cni::json::read(root.at("namespace"), question.ns));
    TRY(cni::json::read(root.at("pod"), question.pod));
    TRY(cni::json::read(root.at("uid"), question.uid));
    TRY(cni::json::read(root.at("node"), question.node));
    TRY(cni::json::read(root.at("kubeconfig"), question.kubeconfig));
    TRY(cni::json::read(root.at("server"), question.server));
    TRY(cni::json::read(root.at("tokenFile"), question.token_file));
    TRY(cni::json::read(root.at("caFile"), question.ca_file));
    const bool names_pod = cni::is_dns_name(question.ns) && cni::is_dns_name(question.pod);
    if (question.node.empty() ? !names_pod : !cni::is_dns_name(question.node))
        return Error{ErrorCode::invalid_environment, "the question names neither a pod nor a node"};
    return question;
}

// The API object of a static pod has another UID, and names that of the kubelet in an annotation.
Result<void> check_uid(const Node &metadata, const Question &question) {
    const auto uid = metadata.at("uid").text();
    const auto of_kubelet = metadata.at("annotations").at("kubernetes.io/config.hash").text();
    if (question.uid.empty() || (uid && *uid == question.uid) || (of_kubelet && *of_kubelet == question.uid))
        return {};
    return Error{ErrorCode::try_again_later, "the pod " + question.ns + "/" + question.pod +
                                                 " of the API server has another UID than that of the runtime"};
}

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
