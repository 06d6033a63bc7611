// SPDX-License-Identifier: MIT
#include "tools/kubernetes/question.hpp"

#include "plugin/cni/kubernetes.hpp"

namespace podlane::k8s {

Result<Question> parse_question(std::string_view text) {
    const cni::json::Value document = TRY(cni::json::parse_object(text, "the question on standard input"));
    const cni::json::Node root(&document, {});
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

Result<void> check_uid(const cni::json::Node &metadata, const Question &question) {
    const auto uid = metadata.at("uid").text();
    const auto of_kubelet = metadata.at("annotations").at("kubernetes.io/config.hash").text();
    if (question.uid.empty() || (uid && *uid == question.uid) || (of_kubelet && *of_kubelet == question.uid))
        return {};
    return Error{ErrorCode::try_again_later, "the pod " + question.ns + "/" + question.pod +
                                                 " of the API server has another UID than that of the runtime"};
}

} // namespace podlane::k8s
