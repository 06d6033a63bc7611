// SPDX-License-Identifier: MIT
#include "plugin/cni/ipam_config.hpp"

#include "plugin/cni/attachment.hpp"
#include "plugin/cni/config.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/version.hpp"

namespace podlane::cni {
namespace {

constexpr std::uint64_t kLargestCode = std::numeric_limits<std::uint32_t>::max();

// Alone in a configuration: whether DEL leaves anything of it out.
bool is_read_whole(const std::string &key, const json::Value &value) {
    json::Value alone = json::Value::object();
    alone["name"] = "alone";
    alone["type"] = "podlane";
    alone[key] = value;
    std::vector<std::string> ignored;
    return read_config(alone, Command::del, Arguments{}, ignored) && ignored.empty();
}

// Codes whose meaning is the same whoever says them: try again later, not available, limited.
ErrorCode kept_code(std::uint64_t code) {
    for (const auto meant : {ErrorCode::try_again_later, ErrorCode::plugin_not_available, ErrorCode::plugin_limited})
        if (code == static_cast<std::uint64_t>(meant))
            return meant;
    return ErrorCode::ipam;
}

} // namespace

Result<std::string> with_cni_version(std::string_view raw, Version version) {
    json::Value config = TRY(json::parse_object(raw, "the network configuration"));
    const json::Node root(&config, {});
    std::string present = to_string(kOldestVersion);
    TRY(json::read(root.at_any_case("cniVersion"), present));
    if (present == to_string(version))
        return std::string(raw);
    const json::Node prev_result = root.at_any_case("prevResult");
    if (prev_result.present()) {
        const Attachment attachment = TRY(read_attachment(prev_result));
        json::Value converted = TRY(json::parse_object(to_json(attachment, version), "the converted prevResult"));
        json::erase_any_case(config, "prevResult");
        config["prevResult"] = std::move(converted);
    }
    json::erase_any_case(config, "cniVersion");
    config["cniVersion"] = to_string(version);
    return json::print(config);
}

std::string without_valid_attachments(const std::string &raw) {
    auto config = json::parse_object(raw, "the network configuration");
    if (!config)
        return raw;
    json::erase_any_case(*config, "cni.dev/valid-attachments");
    json::erase_any_case(*config, "cni.dev/attachments");
    return json::print(*config);
}

std::string without_ignored_arguments(const std::string &raw) {
    auto config = json::parse_object(raw, "the network configuration");
    if (!config)
        return raw;
    bool is_changed = false;
    for (const char *const key : {"runtimeConfig", "args"}) {
        const json::Node node = json::Node(&*config, {}).at_any_case(key);
        if (!node.present() || is_read_whole(key, node.value()))
            continue;
        json::erase_any_case(*config, key);
        is_changed = true;
    }
    return is_changed ? json::print(*config) : raw;
}

std::string without_arguments(const std::string &raw) {
    auto config = json::parse_object(raw, "the network configuration");
    if (!config)
        return raw;
    for (const char *const key : {"runtimeConfig", "args", "prevResult"})
        json::erase_any_case(*config, key);
    return json::print(*config);
}

std::optional<IpamSection> find_ipam(std::string_view raw) {
    const auto config = json::parse_object(raw, "the network configuration");
    if (!config)
        return std::nullopt;
    const json::Node ipam = json::Node(&*config, {}).at_any_case("ipam");
    const auto type = ipam.at_any_case("type").text();
    if (!type || type->empty() || *type == "." || *type == ".." || type->find('/') != std::string::npos)
        return std::nullopt;
    const auto data_dir = ipam.at_any_case("dataDir").text();
    return IpamSection{*type, data_dir ? *data_dir : "", json::print(ipam.value())};
}

bool is_without_ipam(std::string_view raw) {
    const auto config = json::parse_object(raw, "the network configuration");
    if (!config)
        return false;
    const json::Node root(&*config, {});
    return root.at_any_case("type").present() && !root.at_any_case("ipam").present();
}

Result<std::vector<Version>> parse_version_reply(std::string_view stdout_text) {
    const json::Value reply = TRY(json::parse_object(stdout_text, "the answer to VERSION"));
    const json::Node root(&reply, {});
    std::string spoken;
    std::vector<std::string> listed;
    TRY(json::read(root.at_any_case("cniVersion"), spoken));
    TRY(json::read(root.at_any_case("supportedVersions"), listed));
    if (listed.empty() && spoken == "0.2.0") // the list came later; the reference decoder assumes the same
        listed = {"0.1.0", "0.2.0"};
    std::vector<Version> versions;
    for (const std::string &text : listed)
        if (const auto version = parse_version(text))
            versions.push_back(*version);
    if (versions.empty())
        return Error{ErrorCode::decode_failure, "the answer to VERSION lists no supportedVersions"};
    return versions;
}

std::optional<std::uint64_t> plugin_error_code(std::string_view stdout_text) {
    const auto parsed = json::parse_object(stdout_text, "the error");
    if (!parsed)
        return std::nullopt;
    const auto code = json::Node(&*parsed, {}).at_any_case("code").number(kLargestCode);
    return code ? std::optional(*code) : std::nullopt;
}

Error parse_plugin_error(std::string_view stdout_text, std::string_view plugin, const Error &ended) {
    const std::string name(plugin);
    const auto parsed = json::parse_object(stdout_text, "the error");
    if (!parsed)
        return ended;
    const json::Node root(&*parsed, {});
    const auto code = root.at_any_case("code").number(kLargestCode);
    const auto msg = root.at_any_case("msg").text();
    const auto details = root.at_any_case("details").text();
    if (!code && !msg)
        return ended;
    Error error{code ? kept_code(*code) : ErrorCode::ipam, msg ? name + ": " + *msg : ended.message};
    if (code)
        error.message += " (code " + std::to_string(*code) + ")";
    error.hint = details && !details->empty() ? name + ": " + *details : ended.hint;
    return error;
}

} // namespace podlane::cni
