// SPDX-License-Identifier: MIT
#include "tools/kubernetes/access.hpp"

#include "maps/file.hpp"
#include "plugin/cni/kubernetes.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace podlane::k8s {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 20U;
constexpr std::size_t kLongestToken = std::size_t{16} << 10U;

Result<std::string> read_bounded(const std::string &path) {
    std::string text = TRY(read_file(path, kLargestFile));
    if (text.size() > kLargestFile)
        return Error{ErrorCode::decode_failure, path + " is larger than 1 MiB"};
    return text;
}

// A line end in it would begin another header.
Result<std::string> checked_token(std::string text, const std::string &from) {
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    const bool clean = std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
    if (text.empty() || text.size() > kLongestToken || !clean)
        return Error{ErrorCode::decode_failure, "the token in " + from + " is none"};
    return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    constexpr unsigned kBits = 6;
    constexpr unsigned kByte = 8;
    std::string bytes;
    std::uint32_t pending = 0;
    unsigned held = 0;
    for (const char c : text.substr(0, text.find('='))) {
        const auto digit = kDigits.find(c);
        if (digit == std::string_view::npos)
            return std::nullopt;
        pending = pending << kBits | static_cast<std::uint32_t>(digit);
        held += kBits;
        if (held >= kByte) {
            held -= kByte;
            bytes += static_cast<char>(pending >> held & 0xffU);
        }
    }
    return bytes;
}

std::string text_at(const YAML::Node &node, const char *key) {
    const YAML::Node value = node.IsMap() ? node[key] : YAML::Node();
    return value && value.IsScalar() ? value.Scalar() : std::string();
}

// The element of a list that is called `name`, and of that the object `what`.
Result<YAML::Node> named(const YAML::Node &root, const char *list, const char *what, const std::string &name) {
    const YAML::Node all = root[list];
    if (all && all.IsSequence())
        for (const YAML::Node &one : all)
            if (text_at(one, "name") == name && one[what] && one[what].IsMap())
                return YAML::Node(one[what]);
    return Error{ErrorCode::decode_failure, std::string("there is no ") + what + " \"" + name + "\" in it"};
}

class Kubeconfig {
  public:
    Kubeconfig(const std::string &path, const ReadFile &read_file)
        : directory_(path.substr(0, path.rfind('/') + 1)), read_file_(read_file) {}

    Result<Access> read(const std::string &text) const {
        const YAML::Node root = YAML::Load(text);
        if (!root.IsMap())
            return Error{ErrorCode::decode_failure, "it is no kubeconfig",
                         "write what `kubectl config view --raw --minify` prints"};
        const YAML::Node context = TRY(named(root, "contexts", "context", text_at(root, "current-context")));
        const YAML::Node cluster = TRY(named(root, "clusters", "cluster", text_at(context, "cluster")));
        const YAML::Node user = TRY(named(root, "users", "user", text_at(context, "user")));
        TRY(refuse(cluster, {"insecure-skip-tls-verify", "proxy-url", "tls-server-name"}));
        TRY(refuse(user, {"exec", "auth-provider", "username"}));
        Access access;
        access.server = text_at(cluster, "server");
        access.token = text_at(user, "token");
        access.ca = TRY(text_or_file(cluster, "certificate-authority"));
        access.certificate = TRY(text_or_file(user, "client-certificate"));
        access.key = TRY(text_or_file(user, "client-key"));
        if (const std::string file = text_at(user, "tokenFile"); !file.empty())
            access.token = TRY(read_file_(resolved(file)));
        return access;
    }

  private:
    static Result<void> refuse(const YAML::Node &node, const std::array<const char *, 3> &keys) {
        for (const char *key : keys)
            if (const YAML::Node value = node[key]; value && !(value.IsScalar() && value.Scalar() == "false"))
                return Error{ErrorCode::unsupported_field, std::string("\"") + key + "\" in it is not supported"};
        return {};
    }
    [[nodiscard]] std::string resolved(const std::string &file) const {
        return file.starts_with('/') ? file : directory_ + file;
    }
    // "KEY-data", in base64, goes before "KEY", a path.
    [[nodiscard]] Result<std::string> text_or_file(const YAML::Node &node, const std::string &key) const {
        if (const std::string data = text_at(node, (key + "-data").c_str()); !data.empty()) {
            auto text = decode_base64(data);
            return text ? Result<std::string>(*std::move(text))
                        : Error{ErrorCode::decode_failure, "\"" + key + "-data\" in it is no base64"};
        }
        const std::string file = text_at(node, key.c_str());
        return file.empty() ? Result<std::string>(file) : read_file_(resolved(file));
    }
    std::string directory_;
    const ReadFile &read_file_;
};

Result<Access> checked(Access access, const std::string &from) {
    if (!cni::is_server_url(access.server))
        return Error{ErrorCode::decode_failure, "the server in " + from + " is no https:// address"};
    if (access.ca.empty())
        return Error{ErrorCode::decode_failure, "there is no certificate-authority in " + from};
    if (access.certificate.empty() != access.key.empty())
        return Error{ErrorCode::decode_failure, "of client-certificate and client-key one is missing in " + from};
    if (access.certificate.empty() || !access.token.empty())
        access.token = TRY(checked_token(std::move(access.token), from));
    access.server.erase(access.server.find_last_not_of('/') + 1);
    return access;
}

} // namespace

Result<Access> parse_kubeconfig(const std::string &text, const std::string &path, const ReadFile &read_file) {
    try {
        auto access = Kubeconfig(path, read_file).read(text);
        return access ? checked(std::move(access).value(), path) : std::move(access).error().context(path);
    } catch (const YAML::Exception &) { // its text may quote a secret
        return Error{ErrorCode::decode_failure, path + " is no YAML"};
    }
}

Result<Access> read_kubeconfig(const std::string &path) {
    return parse_kubeconfig(TRY(read_bounded(path)), path, read_bounded);
}

Result<Access> read_service_account(const std::string &server, const std::string &token_file,
                                    const std::string &ca_file) {
    Access access;
    access.server = server;
    access.token = TRY(read_bounded(token_file));
    access.ca = TRY(read_bounded(ca_file));
    return checked(std::move(access), token_file);
}

} // namespace podlane::k8s
