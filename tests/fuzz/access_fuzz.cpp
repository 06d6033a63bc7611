// SPDX-License-Identifier: MIT
// Feeds hostile bytes to what podlane-k8s reaches the API server by: a kubeconfig and, behind a NUL byte, what each
// file that it names holds. No file is read. The bytes are a kubeconfig, and the values of one that is otherwise right.
// They are also the question on standard input and, behind a NUL byte, the metadata of the server's pod.
#include "tools/kubernetes/access.hpp"
#include "tools/kubernetes/question.hpp"

#include "plugin/cni/kubernetes.hpp"
#include "tests/fuzz/require.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace podlane;

constexpr const char *kBegin = R"(
current-context: node
contexts: [{name: node, context: {cluster: pods, user: kubelet}}]
clusters: [{name: pods, cluster: {server: "https://192.0.2.1:6443/", certificate-authority: ca.pem}}]
users:
- name: kubelet
  user:
)";

// The token is one word of a header of HTTP, and there is something to check the server by.
void check(const Result<k8s::Access> &access) {
    if (!access) {
        require(!access.error().message.empty());
        return;
    }
    require(access->server.starts_with("https://") && !access->server.ends_with('/') && !access->ca.empty());
    require(access->certificate.empty() == access->key.empty());
    require(!access->token.empty() || !access->certificate.empty());
    require(std::ranges::all_of(access->token, [](char c) { return c > ' ' && c < 127; }));
}

// It is one part of a URL's path, and leads to no other place.
void check_name(const std::string &name) {
    require(cni::is_dns_name(name) && name.find("..") == std::string::npos);
    require(name.find_first_of(std::string_view("/?#%\\ \r\n\0", 9)) == std::string::npos);
}

// The pod of the API server is another one, unless its metadata have the UID.
void check_question(const std::string &text, const std::string &metadata) {
    auto question = k8s::parse_question(text);
    if (!question) {
        require(!question.error().message.empty());
        return;
    }
    for (const std::string &name : question->node.empty() ? std::vector<std::string>{question->ns, question->pod}
                                                          : std::vector<std::string>{question->node})
        check_name(name);
    const auto document = cni::json::parse_object(metadata, "the metadata");
    if (!document)
        return;
    const cni::json::Node root(&*document, {});
    const std::string uid = cni::json::print(cni::json::Value(question->uid));
    if (k8s::check_uid(root, *question))
        require(question->uid.empty() || cni::json::print(*document).find(uid) != std::string::npos);
    question->uid.clear();
    require(k8s::check_uid(root, *question).has_value());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string input(reinterpret_cast<const char *>(data), size);
    const std::string text = input.substr(0, input.find('\0'));
    const std::string rest = input.substr(std::min(text.size() + 1, size));
    const auto read_file = [&rest](const std::string &path) -> Result<std::string> {
        require(path.starts_with('/'));
        return rest;
    };
    check_question(text, rest);
    check(k8s::parse_kubeconfig(text, "/etc/podlane/kubeconfig", read_file));
    for (const std::string &value : {std::string("tokenFile: token"), "token: " + text,
                                     "{client-certificate: node.pem, client-key-data: \"" + text + "\"}"})
        check(k8s::parse_kubeconfig(kBegin + ("    " + value) + "\n", "/etc/podlane/kubeconfig", read_file));
    return 0;
}
