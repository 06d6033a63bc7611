// SPDX-License-Identifier: MIT
#include "plugin/cni/config.hpp"

#include "plugin/cni/isolation.hpp"
#include "plugin/cni/key.hpp"
#include "plugin/cni/keys.hpp"
#include "plugin/cni/pod_ranges.hpp"
#include "plugin/cni/version.hpp"

#include <functional>
#include <string>
#include <utility>

namespace podlane::cni {
namespace {

using json::Node;

constexpr const char *kValidAttachments = "cni.dev/valid-attachments";
constexpr const char *kOlderAttachments = "cni.dev/attachments"; // of CRI-O, beside or before the other

// A missing list never means an empty one: that would remove every pod's attachment. CRI-O sends null for each network
// that is not its default one, such as that behind multus.
Result<void> read_valid_attachments(const Node &root, Config &config) {
    Node list = root.at_any_case(kValidAttachments);
    if (const Node older = root.at_any_case(kOlderAttachments); !list.present() && older.present())
        list = older;
    for (const Node &element : TRY(list.elements(R"([{"containerID": "…", "ifname": "eth0"}])"))) {
        if (!element.present() || !element.value().is_object())
            return element.wrong(R"(an object, such as {"containerID": "…", "ifname": "eth0"})");
        ValidAttachment attachment;
        attachment.container_id = TRY(element.at_any_case("containerID").text());
        attachment.ifname = TRY(element.at_any_case("ifname").text());
        if (attachment.container_id.empty() || attachment.ifname.empty())
            return element.wrong("containerID and ifname, not empty");
        config.valid_attachments.push_back(std::move(attachment));
    }
    return {};
}

Result<void> check_version(Version version, Command command) {
    const auto refuse = [&](const std::string &what) {
        return Error{ErrorCode::incompatible_cni_version, "cniVersion " + to_string(version) + " " + what,
                     "supported versions: " + supported_versions_text()};
    };
    if (!is_supported(version))
        return refuse("is not supported, supported are " + supported_versions_text());
    if (command == Command::check && version < kFirstWithCheck)
        return refuse("does not allow CHECK, which came with 0.4.0");
    if ((command == Command::gc || command == Command::status) && version < kFirstWithGc)
        return refuse("does not allow GC and STATUS, which came with 1.1.0");
    return {};
}

// Required environment variables of a command.
Result<void> check_sources(const Node &root, const Config &config, Command command) {
    if (command == Command::check && !config.prev_result)
        return root.at("prevResult")
            .wrong("the result of ADD, which CHECK compares with, such as "
                   R"({"interfaces": [{"name": "eth0"}], "ips": [{"address": "192.0.2.7/24", "interface": 0}]})");
    if (command == Command::add && config.ipam_type.empty() && !config.prev_result &&
        root.at_any_case("plugins").present())
        return Error{ErrorCode::invalid_network_config,
                     "standard input is a whole configuration list (it has \"plugins\"), expected the configuration of "
                     "one plugin",
                     "let the runtime call podlane, or pass one element of \"plugins\" with cniVersion and name"};
    if (command == Command::add && config.ipam_type.empty() && !config.prev_result &&
        root.at_any_case("ipam").present())
        return Error{ErrorCode::invalid_network_config, "\"ipam\" has no \"type\", so no IPAM plugin is known",
                     R"(name the plugin, as in "ipam": {"type": "host-local", …})"};
    if (command == Command::add && config.ipam_type.empty() && !config.prev_result)
        return Error{ErrorCode::invalid_network_config, "neither ipam nor prevResult is there, so no address is known",
                     "add ipam, or place podlane after another plugin in the list"};
    return {};
}

Result<void> check_pod_ranges(const Config &config, Command command) {
    const bool is_needed = command == Command::add || command == Command::status;
    if (!is_needed || config.pod_ranges == 0 || !config.kubernetes.kubeconfig.empty() ||
        !config.kubernetes.server.empty())
        return {};
    return Error{ErrorCode::invalid_network_config,
                 "\"ipam\" requests the node's range (\"usePodCidr\"), and the configuration does not say how to reach "
                 "the API server",
                 R"(add "kubernetes": {"kubeconfig": "PATH"}, or name the range)"};
}

// The addresses are needed to make the interface; dhcp needs the interface to request them.
Result<void> check_ipam(const Config &config, Command command) {
    const bool is_needed = command == Command::add || command == Command::status;
    if (is_needed && names_itself_for_ipam(config))
        return Error{ErrorCode::invalid_network_config,
                     "\"ipam\" names Podlane itself, \"" + config.ipam_type + "\", which gives no addresses",
                     "use host-local or static"};
    if (!is_needed || config.ipam_type != "dhcp")
        return {};
    return Error{ErrorCode::unsupported_field,
                 "the IPAM plugin \"dhcp\" sends by the container's interface, which is made for the addresses that it "
                 "would return",
                 "use host-local or static; or place podlane behind macvlan or bridge, which can use dhcp"};
}

// Reads one part of a configuration after the other. DEL and GC leave out a part that is wrong, and note why.
class Reader {
  public:
    Reader(Command command, std::vector<std::string> &ignored)
        : lenient_(command == Command::del || command == Command::gc), ignored_(ignored) {
        config_.cni_version = kNewestVersion;
    }

    Result<void> operator()(const std::function<Result<void>(Config &)> &part) {
        if (!lenient_)
            return part(config_);
        Config attempt = config_; // a part that fails may have written half of it
        if (auto read = part(attempt); !read) {
            ignored_.push_back(read.error().message);
            return {};
        }
        config_ = std::move(attempt);
        return {};
    }
    [[nodiscard]] Config take() && { return std::move(config_); }

  private:
    Config config_;
    bool lenient_;
    std::vector<std::string> &ignored_;
};

// "log.file" is in the object "log".
Node find(const Node &root, const Key &key) {
    if (key.place == Key::Place::specification)
        return root.at_any_case(key.name);
    const auto dot = key.name.find('.');
    return dot == std::string_view::npos ? root.at(key.name)
                                         : root.at(key.name.substr(0, dot)).at(key.name.substr(dot + 1));
}

} // namespace

bool names_itself_for_ipam(const Config &config) {
    return !config.ipam_type.empty() && (config.ipam_type == "podlane" || config.ipam_type == config.type);
}

Result<Version> read_version(const Node &root) {
    std::string text;
    const Node node = root.at_any_case("cniVersion");
    TRY(json::read(node, text));
    if (text.empty())
        return kOldestVersion;
    const auto version = parse_version(text);
    if (!version)
        return Error{ErrorCode::incompatible_cni_version,
                     "cniVersion " + json::quote(text) + " is not supported, supported are " +
                         supported_versions_text(),
                     "supported versions: " + supported_versions_text()};
    return *version;
}

Result<Config> read_config(const json::Value &document, Command command, const Arguments &arguments,
                           std::vector<std::string> &ignored) {
    const Node root(&document, {});
    Reader read(command, ignored);
    if (command == Command::gc) // a runtime that speaks no GC does not mean this one
        TRY(check_version(TRY(read_version(root)), command));
    TRY(read([&](Config &c) -> Result<void> {
        const Version version = TRY(read_version(root));
        TRY(check_version(version, command));
        c.cni_version = version;
        return {};
    }));
    TRY(read([&](Config &c) -> Result<void> { // args.cni and runtimeConfig override them
        c.requested_ips = arguments.ips;
        c.requested_mac = arguments.mac;
        return {};
    }));
    TRY(read([&](Config &) { return check_top_level_keys(document); }));
    for (const Key &key : keys())
        if (key.read != nullptr)
            TRY(read([&](Config &c) { return key.read(root, find(root, key), c); }));
    Config config = std::move(read).take();
    if (command == Command::gc)
        TRY(read_valid_attachments(root, config));
    config.pod_ranges = families_of_pod_ranges(document);
    TRY(check_sources(root, config, command));
    TRY(check_pod_ranges(config, command));
    TRY(check_ipam(config, command));
    if (command == Command::add)
        for (const auto check : {check_isolation, check_egress})
            TRY(check(root, config));
    return config;
}

} // namespace podlane::cni
