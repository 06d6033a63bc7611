// SPDX-License-Identifier: MIT
// Feeds hostile bytes to what podlane-k8s reaches the API server by: a kubeconfig and, behind a NUL byte, what each
// file that it names holds. No file is read. The bytes are a kubeconfig, and the values of one that is otherwise right.
#include "tools/kubernetes/access.hpp"

#include "tests/fuzz/require.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

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

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string input(reinterpret_cast<const char *>(data), size);
    const std::string text = input.substr(0, input.find('\0'));
    const std::string rest = input.substr(std::min(text.size() + 1, size));
    const auto read_file = [&rest](const std::string &path) -> Result<std::string> {
        require(path.starts_with('/'));
        return rest;
    };
    check(k8s::parse_kubeconfig(text, "/etc/podlane/kubeconfig", read_file));
    for (const std::string &value : {std::string("tokenFile: token"), "token: " + text,
                                     "{client-certificate: node.pem, client-key-data: \"" + text + "\"}"})
        check(k8s::parse_kubeconfig(kBegin + ("    " + value) + "\n", "/etc/podlane/kubeconfig", read_file));
    return 0;
}
