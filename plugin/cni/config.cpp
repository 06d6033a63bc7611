// SPDX-License-Identifier: MIT
#include "plugin/cni/config.hpp"

#include "maps/abi/interface.h"
#include "maps/abi/names.h"
#include "maps/abi/network.h"
#include "plugin/cni/attachment.hpp"
#include "plugin/cni/bandwidth.hpp"
#include "plugin/cni/keys.hpp"
#include "plugin/cni/version.hpp"
#include "plugin/cni/egress_route.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace podlane::cni {
namespace {

using json::Node;
template <typename T> using Word = std::pair<std::string_view, T>;

constexpr std::uint64_t kSmallestMtu = 68; // RFC 791; IPv6 wants more, which the plan knows
constexpr std::uint64_t kLargestMtu = 65535;
constexpr std::uint64_t kLargestMap = std::uint64_t{1} << 24U; // entries; far above what a node can hold
constexpr std::size_t kLongestUplinkPattern = 64;
constexpr std::size_t kLongestPrefix = 4; // leaves 11 of 15 characters for the hash
constexpr const char *kValidAttachments = "cni.dev/valid-attachments";
constexpr const char *kOlderAttachments = "cni.dev/attachments"; // of CRI-O, beside or before the other
constexpr std::array<std::string_view, 2> kLogKeys{"file", "level"};

bool is_clean_absolute_path(std::string_view path) {
    if (!path.starts_with('/'))
        return false;
    while (!path.empty()) {
        path.remove_prefix(1);
        const auto end = std::min(path.find('/'), path.size());
        if (path.substr(0, end) == "..")
            return false;
        path.remove_prefix(end);
    }
    return true;
}

template <typename T, std::size_t N>
Result<void> read_word(const Node &node, const std::array<Word<T>, N> &words, T &into) {
    if (!node.present())
        return {};
    std::string expected;
    const auto text = node.text();
    for (const auto &[word, meaning] : words) {
        expected += (expected.empty() ? "\"" : ", \"") + std::string(word) + "\"";
        if (text && *text == word) {
            into = meaning;
            return {};
        }
    }
    return node.wrong("one of " + expected);
}

Result<void> read_fast_path(const Node &node, FastPath &into) {
    constexpr std::array<Word<FastPath>, 3> kWords{
        {{"on", FastPath::on}, {"local", FastPath::local}, {"off", FastPath::off}}};
    if (!node.present() || !node.value().is_boolean())
        return read_word(node, kWords, into);
    into = TRY(node.boolean()) ? FastPath::on : FastPath::off;
    return {};
}

Result<void> read_attach(const Node &node, AttachBy &into) {
    constexpr std::array<Word<AttachBy>, 3> kWords{
        {{"auto", AttachBy::automatic}, {"tcx", AttachBy::tcx}, {"clsact", AttachBy::clsact}}};
    return read_word(node, kWords, into);
}

Result<void> read_ether_types(const Node &node, std::uint32_t &into) {
    constexpr std::array<Word<std::uint32_t>, 6> kWords{{{"llc", INTERFACE_ETHER_LLC},
                                                         {"lldp", INTERFACE_ETHER_LLDP},
                                                         {"mpls", INTERFACE_ETHER_MPLS},
                                                         {"pppoe", INTERFACE_ETHER_PPPOE},
                                                         {"vlan", INTERFACE_ETHER_VLAN},
                                                         {"any", INTERFACE_ETHER_ANY}}};
    if (!node.present())
        return {};
    for (const Node &element : TRY(node.elements())) {
        std::uint32_t flag = 0;
        TRY(read_word(element, kWords, flag));
        if (flag == 0)
            return element.wrong("a name");
        into |= flag;
    }
    return {};
}

Result<void> read_limiter(const Node &node, Limiter &into) {
    constexpr std::array<Word<Limiter>, 4> kWords{
        {{"auto", Limiter::automatic}, {"pace", Limiter::pace}, {"edt", Limiter::edt}, {"bucket", Limiter::bucket}}};
    return read_word(node, kWords, into);
}

Result<void> read_log(const Node &node, Log &into) {
    using Level = Log::Level;
    constexpr std::array<Word<Level>, 4> kLevels{
        {{"error", Level::error}, {"warning", Level::warning}, {"info", Level::info}, {"debug", Level::debug}}};
    TRY(check_keys(node, kLogKeys));
    TRY(json::read(node.at("file"), into.file));
    if (!into.file.empty() && !is_clean_absolute_path(into.file))
        return node.at("file").wrong("an absolute path without \"..\"");
    return read_word(node.at("level"), kLevels, into.level);
}

Result<void> read_mtu(const Node &node, std::optional<std::uint32_t> &into) {
    TRY(json::read(node, into));
    if (into == 0U) // the reference plugins' "choose one"
        into.reset();
    if (into && (*into < kSmallestMtu || *into > kLargestMtu))
        return node.wrong("0, or from 68 to 65535");
    return {};
}

Result<void> read_host_prefix(const Node &node, std::string &into) {
    TRY(json::read(node, into));
    const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
    const auto allowed = [&](char c) { return lower(c) || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
    if (into.empty() || into.size() > kLongestPrefix || !lower(into.front()) || !std::ranges::all_of(into, allowed))
        return node.wrong("a lower case letter and up to three more of a-z, 0-9, '_' and '-'");
    return {};
}

Result<void> read_directory(const Node &node, std::string &into) {
    TRY(json::read(node, into));
    if (!is_clean_absolute_path(into) || into.find_first_not_of('/') == std::string::npos)
        return node.wrong("the absolute path of a directory, without \"..\"");
    while (into.ends_with('/'))
        into.pop_back();
    return {};
}

Result<void> read_map_size(const Node &node, std::uint32_t &into) {
    if (!node.present())
        return {};
    const auto size = node.number(kLargestMap);
    if (!size || *size == 0)
        return node.wrong("a whole number from 1 to " + std::to_string(kLargestMap));
    into = static_cast<std::uint32_t>(*size);
    return {};
}

Result<void> read_ipam_type(const Node &node, std::string &into) {
    TRY(node.must_be_object());
    const Node type = node.at_any_case("type");
    TRY(json::read(type, into));
    if (into == "." || into == ".." || into.find('/') != std::string::npos)
        return type.wrong("the name of a plugin in CNI_PATH");
    return {};
}

Result<std::vector<Prefix>> read_prefixes(const Node &node) {
    std::vector<Prefix> prefixes;
    if (node.present())
        for (const Node &element : TRY(node.elements()))
            prefixes.push_back(TRY(read_prefix(element, true)));
    return prefixes;
}

// A list for both directions, or an object with one for each.
Result<void> read_limited(const Node &node, Config &config, std::vector<Prefix> LimitedPrefixes::*which) {
    constexpr std::array<std::string_view, 2> kDirections{"ingress", "egress"}; // as enum limit_direction
    if (!node.present())
        return {};
    const bool by_direction = node.value().is_object();
    if (by_direction)
        TRY(check_keys(node, kDirections));
    for (std::size_t i = 0; i < kDirections.size(); ++i)
        config.limited_prefixes[i].*which = TRY(read_prefixes(by_direction ? node.at(kDirections[i]) : node));
    return {};
}

// As in the reference plugin: the one list or the other.
Result<void> read_shaped(const Node &root, Config &config) {
    for (const Node &object : {root, root.at("bandwidth")}) {
        TRY(read_limited(object.at("unshapedSubnets"), config, &LimitedPrefixes::unshaped));
        TRY(read_limited(object.at("shapedSubnets"), config, &LimitedPrefixes::shaped));
        for (const LimitedPrefixes &of : config.limited_prefixes)
            if (!of.unshaped.empty() && !of.shaped.empty())
                return object.at("shapedSubnets").wrong("either unshapedSubnets or shapedSubnets, not both");
    }
    return {};
}

Result<void> read_mac(const Node &node, std::optional<Mac> &into) {
    std::string text;
    TRY(json::read(node, text));
    if (text.empty())
        return {};
    const auto mac = parse_mac(text);
    if (!mac || !is_interface_mac(*mac))
        return node.wrong("a unicast address such as 02:00:00:00:00:01");
    into = *mac;
    return {};
}

// What the runtime asks for, the most specific last: CNI_ARGS, args.cni, capabilities.
Result<void> read_requested(const Node &root, const Arguments &arguments, Config &config) {
    config.requested_ips = arguments.ips;
    config.requested_mac = arguments.mac;
    const Node args = root.at_any_case("args");
    const Node runtime = root.at_any_case("runtimeConfig");
    TRY(args.must_be_object());
    TRY(args.at_any_case("cni").must_be_object());
    TRY(runtime.must_be_object());
    TRY(root.at_any_case("capabilities").must_be_object());
    for (const Node &asked : {args.at_any_case("cni"), runtime}) {
        if (auto ips = TRY(read_prefixes(asked.at_any_case("ips"))); !ips.empty())
            config.requested_ips = std::move(ips);
        TRY(read_mac(asked.at_any_case("mac"), config.requested_mac));
    }
    return {};
}

Result<void> read_prev_result(const Node &root, Config &config) {
    const Node prev_result = root.at_any_case("prevResult");
    if (prev_result.present())
        config.prev_result = TRY(read_attachment(prev_result));
    return {};
}

// A missing list never means an empty one: that would remove every pod's attachment.
Result<void> read_valid_attachments(const Node &root, Config &config) {
    Node list = root.at_any_case(kValidAttachments);
    if (const Node older = root.at_any_case(kOlderAttachments); !list.present() && older.present())
        list = older;
    for (const Node &element : TRY(list.elements())) {
        ValidAttachment attachment{TRY(element.at_any_case("containerID").text()),
                                   TRY(element.at_any_case("ifname").text())};
        if (attachment.container_id.empty() || attachment.ifname.empty())
            return element.wrong("containerID and ifname, not empty");
        config.valid_attachments.push_back(std::move(attachment));
    }
    return {};
}

Result<void> check_name(const Node &node) {
    const std::string name = TRY(node.text());
    if (!is_valid_name(name))
        return node.wrong("a letter or digit, then letters, digits, '_', '.' or '-', at most 127 characters in all");
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

// An interface's name, or a shell pattern of one; they are kept as one text with spaces between them.
bool is_uplink_pattern(std::string_view text) {
    const auto allowed = [](unsigned char c) { return c > ' ' && c < 127 && c != '/'; };
    return !text.empty() && text.size() < kLongestUplinkPattern && std::ranges::all_of(text, allowed);
}

Result<void> read_uplinks(const Node &node, std::vector<std::string> &into) {
    TRY(json::read(node, into));
    std::size_t length = 0;
    for (const std::string &pattern : into) {
        if (!is_uplink_pattern(pattern))
            return node.wrong("names of interfaces or shell patterns of them, such as \"eth0\" or \"ens*\"");
        length += pattern.size() + 1;
    }
    if (length > NETWORK_UPLINKS_SIZE)
        return node.wrong("at most " + std::to_string(NETWORK_UPLINKS_SIZE) + " characters in all");
    return {};
}

Result<void> read_mark(const Node &node, std::uint32_t &into) {
    constexpr std::uint32_t kKubeProxy = 0x4000U | 0x8000U, kPortmap = 0x2000U, kCalico = 0xffff0000U;
    if (!node.present())
        return {};
    const auto mark = node.number(std::numeric_limits<std::uint32_t>::max());
    if (!mark || !std::has_single_bit(*mark) || (*mark & (kKubeProxy | kPortmap | kCalico)) != 0)
        return node.wrong("one bit as a number, of 1 to 4096: those above are portmap's, kube-proxy's and Calico's");
    into = static_cast<std::uint32_t>(*mark);
    return {};
}

Result<void> read_first_packet(const Node &node, bool &direct) {
    std::string text = "host";
    TRY(json::read(node, text));
    if (text != "host" && text != "direct")
        return node.wrong("\"host\" or \"direct\"");
    direct = text == "direct";
    return {};
}

// A number in decimal or, behind 0x, in hexadecimal digits.
std::optional<std::uint32_t> parse_mark(std::string_view text) {
    const bool is_hex = text.starts_with("0x");
    if (is_hex)
        text.remove_prefix(2);
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, is_hex ? 16 : 10);
    if (error != std::errc() || end != text.data() + text.size())
        return std::nullopt;
    return value;
}

Result<void> read_slow_path_mark(const Node &node, Config &config) {
    std::string text;
    TRY(json::read(node, text));
    if (!node.present())
        return {};
    const std::size_t slash = text.find('/');
    const auto value = parse_mark(std::string_view(text).substr(0, slash));
    const auto mask = slash == std::string::npos ? value : parse_mark(std::string_view(text).substr(slash + 1));
    if (!value || !mask || *mask == 0 || (*value & ~*mask) != 0)
        return node.wrong("\"VALUE/MASK\" of a conntrack mark, such as \"0x10/0x10\", with no bit outside of the mask");
    config.slow_path_mark = *value;
    config.slow_path_mask = *mask;
    return {};
}

Result<void> read_confirm_interval(const Node &node, std::uint32_t &into) {
    constexpr std::uint64_t kLeast = 10, kMost = 60'000;
    if (!node.present())
        return {};
    const auto ms = node.number(kMost);
    if (!ms || *ms < kLeast)
        return node.wrong("milliseconds from 10 to 60000");
    into = static_cast<std::uint32_t>(*ms);
    return {};
}

// What a command cannot do without.
Result<void> check_sources(const Node &root, const Config &config, Command command) {
    if (command == Command::check && !config.prev_result)
        return root.at("prevResult").wrong("the result of ADD, which CHECK compares with");
    if (command == Command::add && config.ipam_type.empty() && !config.prev_result)
        return Error{ErrorCode::invalid_network_config, "neither ipam nor prevResult is there, so no address is known",
                     "add ipam, or place podlane after another plugin in the list"};
    return {};
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

Result<void> read_own_keys(const Node &root, Reader &read) {
    TRY(read([&](Config &c) { return read_mtu(root.at("mtu"), c.mtu); }));
    TRY(read([&](Config &c) -> Result<void> {
        c.routes = TRY(read_routes(root.at("routes")));
        return {};
    }));
    TRY(read([&](Config &c) { return json::read(root.at("defaultRoute"), c.default_route); }));
    TRY(read([&](Config &c) { return read_host_prefix(root.at("hostInterfacePrefix"), c.host_interface_prefix); }));
    TRY(read([&](Config &c) { return read_fast_path(root.at("fastPath"), c.fast_path); }));
    TRY(read([&](Config &c) { return read_attach(root.at("attach"), c.attach); }));
    TRY(read([&](Config &c) { return json::read(root.at("antiSpoof"), c.anti_spoof); }));
    TRY(read([&](Config &c) -> Result<void> {
        c.allowed_sources = TRY(read_prefixes(root.at("allowedSources")));
        return {};
    }));
    TRY(read([&](Config &c) { return read_uplinks(root.at("uplinks"), c.uplinks); }));
    TRY(read([&](Config &c) -> Result<void> {
        c.cluster_cidrs = TRY(read_prefixes(root.at("clusterCIDRs")));
        return {};
    }));
    TRY(read([&](Config &c) { return read_way(root, c); }));
    TRY(read([&](Config &c) { return read_mark(root.at("mark"), c.mark); }));
    TRY(read([&](Config &c) { return read_ether_types(root.at("allowedEtherTypes"), c.allowed_ether_types); }));
    TRY(read([&](Config &c) { return read_first_packet(root.at("firstPacket"), c.first_packet_direct); }));
    TRY(read([&](Config &c) { return read_slow_path_mark(root.at("slowPathMark"), c); }));
    TRY(read([&](Config &c) { return read_confirm_interval(root.at("confirmIntervalMs"), c.confirm_interval_ms); }));
    TRY(read([&](Config &c) { return json::read(root.at("conntrackLiberal"), c.conntrack_liberal); }));
    TRY(read([&](Config &c) { return read_directory(root.at("bpffs"), c.bpffs); }));
    TRY(read([&](Config &c) { return read_directory(root.at("stateDir"), c.state_dir); }));
    TRY(read([&](Config &c) { return read_map_size(root.at("maxEndpoints"), c.max_endpoints); }));
    TRY(read([&](Config &c) { return read_map_size(root.at("maxPaths"), c.max_paths); }));
    TRY(read([&](Config &c) { return read_log(root.at("log"), c.log); }));
    TRY(read([&](Config &c) -> Result<void> {
        c.bandwidth = TRY(read_bandwidth(root));
        return {};
    }));
    TRY(read([&](Config &c) { return read_limiter(root.at("limiter"), c.limiter); }));
    return read([&](Config &c) { return read_shaped(root, c); });
}

} // namespace

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
    TRY(read([&](Config &c) -> Result<void> {
        TRY(check_name(root.at_any_case("name")));
        return json::read(root.at_any_case("name"), c.name);
    }));
    if (command == Command::gc) // a runtime that speaks no GC does not mean this one
        TRY(check_version(TRY(read_version(root)), command));
    TRY(read([&](Config &c) -> Result<void> {
        const Version version = TRY(read_version(root));
        TRY(check_version(version, command));
        c.cni_version = version;
        return {};
    }));
    TRY(read([&](Config &) { return check_top_level_keys(document); }));
    TRY(read([&](Config &c) { return json::read(root.at_any_case("ipMasq"), c.ip_masq); }));
    TRY(read([&](Config &c) { return json::read(root.at_any_case("type"), c.type); }));
    TRY(read([&](Config &c) { return read_ipam_type(root.at_any_case("ipam"), c.ipam_type); }));
    TRY(read([&](Config &c) -> Result<void> {
        c.dns = TRY(read_dns(root.at_any_case("dns")));
        return {};
    }));
    TRY(read([&](Config &c) { return read_requested(root, arguments, c); }));
    TRY(read_own_keys(root, read));
    TRY(read([&](Config &c) { return read_prev_result(root, c); }));
    Config config = std::move(read).take();
    if (command == Command::gc)
        TRY(read_valid_attachments(root, config));
    TRY(check_sources(root, config, command));
    return config;
}

} // namespace podlane::cni
