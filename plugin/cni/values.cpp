// SPDX-License-Identifier: MIT
#include "plugin/cni/values.hpp"

#include "maps/abi/interface.h"
#include "maps/abi/network.h"
#include "maps/file.hpp"
#include "maps/printable.hpp"
#include "maps/text.hpp"
#include "plugin/cni/attachment.hpp"
#include "plugin/cni/egress_route.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/kubernetes.hpp"
#include "plugin/cni/words.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

namespace podlane::cni {
namespace {

using json::Node;

constexpr std::uint64_t kSmallestMtu = 68; // RFC 791; IPv6 wants more, which the plan knows
constexpr std::uint64_t kLargestMtu = 65535;
constexpr std::uint64_t kLargestMap = std::uint64_t{1} << 24U; // entries; far above what a node can hold
constexpr std::size_t kLongestUplinkPattern = 64;
constexpr std::string_view kLoopback = "lo";
constexpr const char *kBpffsMount = "/sys/fs/bpf";
constexpr std::size_t kLongestPrefix = 4; // leaves 11 of 15 characters for the hash

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

// A list of words, each of which is a flag.
template <std::size_t N>
Result<void> read_flags(const Node &node, const std::array<Word<std::uint32_t>, N> &words, const char *example,
                        std::uint32_t &into) {
    if (!node.present())
        return {};
    for (const Node &element : TRY(node.elements(example))) {
        std::uint32_t flag = 0;
        TRY(read_word(element, words, flag));
        if (flag == 0)
            return element.wrong("a name");
        into |= flag;
    }
    return {};
}

// fnmatch(3) takes a '[' without its ']' for a character of the name.
bool has_open_bracket(std::string_view pattern) {
    const auto last = pattern.rfind('[');
    return last != std::string_view::npos && pattern.find(']', last) == std::string_view::npos;
}

// They are kept as one text with spaces between them.
bool is_uplink_word(std::string_view text) {
    const auto allowed = [](unsigned char c) { return c > ' ' && c < 127 && c != '/'; };
    return !text.empty() && text.size() < kLongestUplinkPattern && std::ranges::all_of(text, allowed);
}

// An interface's name, or a shell pattern of one.
bool is_uplink_pattern(std::string_view text) {
    return text.find_first_of("*?[") == std::string_view::npos
               ? is_uplink_name(text)
               : text.find('%') == std::string_view::npos && !has_open_bracket(text);
}

Error wrong_uplink(const Node &element) {
    return element.wrong("the name of an interface, of at most 15 characters, or a shell pattern of one, such as "
                         "\"eth0\", \"ens*\" or \"ens[12]\"");
}

// A number in decimal or, behind 0x, in hexadecimal digits.
std::optional<std::uint32_t> parse_mark(std::string_view text) {
    const bool is_hex = text.starts_with("0x");
    if (is_hex)
        text.remove_prefix(2);
    return parse_number<std::uint32_t>(text, is_hex ? 16 : 10);
}

Result<void> read_between(const Node &node, std::uint64_t least, std::uint64_t most, const std::string &what,
                          std::uint32_t &into) {
    if (!node.present())
        return {};
    const auto number = node.number(most);
    if (!number || *number < least)
        return node.wrong(what + " from " + std::to_string(least) + " to " + std::to_string(most));
    into = static_cast<std::uint32_t>(*number);
    return {};
}

Result<void> read_mac(const Node &node, std::optional<Mac> &into) {
    std::string text;
    TRY(json::read(node, text));
    if (text.empty())
        return {};
    const auto mac = parse_mac(text);
    if (!mac || !is_interface_mac(*mac))
        return node.wrong(kInterfaceMac);
    into = *mac;
    return {};
}

} // namespace

Result<void> read_name(const Node &node, std::string &into) {
    const std::string name = TRY(node.text(R"("pods")"));
    if (!is_valid_name(name))
        return node.wrong("a letter or digit, then letters, digits, '_', '.' or '-', at most 127 characters in all");
    into = name;
    return {};
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
    return read_flags(node, kWords, R"(["lldp"])", into);
}

Result<void> read_identity_sources(const Node &node, std::uint32_t &into) {
    constexpr std::array<Word<std::uint32_t>, 5> kWords{{{"annotations", kAnnotations},
                                                         {"labels", kLabels},
                                                         {"mesos", kMesos},
                                                         {"cni-args", kCniArgs},
                                                         {"kubernetes", kKubernetes}}};
    return read_flags(node, kWords, R"(["annotations"])", into);
}

Result<void> read_ip_families(const Node &node, std::uint32_t &into) {
    constexpr std::array<Word<std::uint32_t>, 2> kWords{{{"IPv4", kIpv4}, {"IPv6", kIpv6}}};
    if (!node.present())
        return {};
    TRY(read_flags(node, kWords, R"(["IPv4", "IPv6"])", into));
    return into == 0 ? Result<void>(node.wrong("at least one of \"IPv4\" and \"IPv6\"")) : Result<void>{};
}

Result<Dns> read_runtime_dns(const Node &node) {
    Dns dns;
    TRY(node.must_be_object(R"({"servers": ["192.0.2.53"]})"));
    TRY(json::read(node.at_any_case("servers"), dns.nameservers));
    TRY(json::read(node.at_any_case("searches"), dns.search));
    TRY(json::read(node.at_any_case("options"), dns.options));
    return dns;
}

Result<void> read_node_name(const Node &node, std::string &into) {
    TRY(json::read(node, into));
    if (node.present() && (into.empty() || into.size() > kLongestDnsName || !is_printable(into)))
        return node.wrong("1 to 253 printable characters");
    return {};
}

Result<void> read_limiter(const Node &node, Limiter &into) {
    constexpr std::array<Word<Limiter>, 4> kWords{
        {{"auto", Limiter::automatic}, {"pace", Limiter::pace}, {"edt", Limiter::edt}, {"bucket", Limiter::bucket}}};
    return read_word(node, kWords, into);
}

Result<void> read_log_file(const Node &node, std::string &into) {
    TRY(json::read(node, into));
    if (!into.empty() && !is_clean_absolute_path(into))
        return node.wrong("an absolute path without \"..\"");
    return {};
}

Result<void> read_log_level(const Node &node, Log::Level &into) {
    using Level = Log::Level;
    constexpr std::array<Word<Level>, 4> kLevels{
        {{"error", Level::error}, {"warning", Level::warning}, {"info", Level::info}, {"debug", Level::debug}}};
    return read_word(node, kLevels, into);
}

Result<void> read_mtu(const Node &node, std::optional<std::uint32_t> &into) {
    if (!node.present())
        return {};
    const auto mtu = node.number(kLargestMtu);
    if (!mtu || (*mtu != 0 && *mtu < kSmallestMtu))
        return node.wrong("0, or a whole number from 68 to 65535");
    into.reset();
    if (*mtu != 0) // the reference plugins' "choose one"
        into = static_cast<std::uint32_t>(*mtu);
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
    if (!is_clean_absolute_path(into) || plain_path(into) == "/")
        return node.wrong("the absolute path of a directory, without \"..\"");
    into = plain_path(std::move(into));
    return {};
}

Result<void> read_map_size(const Node &node, std::uint32_t &into) {
    return read_between(node, 1, kLargestMap, "a whole number", into);
}

Result<void> read_ipam_timeout(const Node &node, std::uint32_t &into) {
    return read_between(node, 1, 3600, "a whole number of seconds", into);
}

Result<void> read_keep_address(const Node &node, KeepAddress &into) {
    constexpr std::array<Word<KeepAddress>, 3> kWords{
        {{"none", KeepAddress::none}, {"statefulSet", KeepAddress::stateful_set}, {"all", KeepAddress::all}}};
    return read_word(node, kWords, into);
}

Result<void> read_keep_seconds(const Node &node, std::uint32_t &into) {
    constexpr std::uint32_t kWeek = 7 * 24 * 3600;
    return read_between(node, 1, kWeek, "a whole number of seconds", into);
}

Result<void> read_ipam_type(const Node &node, std::string &into) {
    TRY(node.must_be_object(R"({"type": "host-local", "subnet": "198.18.1.0/24"})"));
    const Node type = node.at_any_case("type");
    TRY(json::read(type, into));
    if (into == "." || into == ".." || into.find('/') != std::string::npos)
        return type.wrong("the name of a plugin in CNI_PATH");
    return {};
}

Result<void> read_prefixes(const Node &node, std::vector<Prefix> &into) {
    into.clear();
    if (node.present())
        for (const Node &element : TRY(node.elements(R"(["198.18.1.0/24", "2001:db8::/32"])")))
            into.push_back(TRY(read_prefix(element, true)));
    return {};
}

// Values that the runtime requests: of args.cni, of a capability.
Result<void> read_requested(const Node &node, Config &into) {
    std::vector<Prefix> ips;
    TRY(node.must_be_object(R"({"ips": ["192.0.2.7"]})"));
    TRY(read_prefixes(node.at_any_case("ips"), ips));
    if (!ips.empty())
        into.requested_ips = std::move(ips);
    return read_mac(node.at_any_case("mac"), into.requested_mac);
}

Result<void> read_uplinks(const Node &node, std::vector<std::string> &into) {
    if (!node.present())
        return {};
    into.clear();
    std::size_t length = 0;
    for (const Node &element : TRY(node.elements(R"(["eth0", "ens*"])"))) {
        const std::string pattern = element.text() ? *element.text() : std::string();
        if (!is_uplink_word(pattern))
            return wrong_uplink(element);
        if (pattern == kLoopback)
            return element.wrong("an interface that leads to other nodes");
        into.push_back(pattern);
        length += pattern.size() + 1;
    }
    if (length > NETWORK_UPLINKS_SIZE)
        return node.wrong("at most " + std::to_string(NETWORK_UPLINKS_SIZE) + " characters in all");
    return {};
}

Result<void> check_uplinks(const Node &node) {
    if (node.present())
        for (const Node &element : TRY(node.elements()))
            if (!is_uplink_pattern(TRY(element.text())))
                return wrong_uplink(element);
    return {};
}

Result<void> check_capabilities(const Node &node) {
    if (node.present())
        for (const auto &[name, value] : node.value().items())
            if (const Node capability = node.at(name); capability.present())
                TRY(capability.boolean());
    return {};
}

Result<void> check_state_directory(const Node &node, const Config &config) {
    for (const std::string &bpffs : {config.bpffs, std::string(kBpffsMount)})
        if ((config.state_dir + "/").starts_with(bpffs + "/"))
            return node.wrong("a directory on a disk, such as " + json::quote(Config{}.state_dir) +
                              ": a BPF file system, as at " + bpffs + ", holds no files");
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
    constexpr std::array<Word<bool>, 2> kWords{{{"host", false}, {"direct", true}}};
    return read_word(node, kWords, direct);
}

Result<void> read_slow_path_mark(const Node &node, std::uint32_t &into_value, std::uint32_t &into_mask) {
    std::string text;
    TRY(json::read(node, text));
    if (!node.present())
        return {};
    const std::size_t slash = text.find('/');
    const auto value = parse_mark(std::string_view(text).substr(0, slash));
    const auto mask = slash == std::string::npos ? value : parse_mark(std::string_view(text).substr(slash + 1));
    if (!value || !mask || *mask == 0 || (*value & ~*mask) != 0)
        return node.wrong("\"VALUE/MASK\" of a conntrack mark, such as \"0x10/0x10\", with no bit outside of the mask");
    into_value = *value;
    into_mask = *mask;
    return {};
}

Result<void> read_confirm_interval(const Node &node, std::uint32_t &into) {
    return read_between(node, 10, 60'000, "milliseconds", into);
}

} // namespace podlane::cni
