#include "loader/uplink.hpp"

#include <fnmatch.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>

namespace podlane {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE *)>;

// Of the main thread, which may have entered another namespace than the process began in.
constexpr const char *kIpv4Routes = "/proc/thread-self/net/route";
constexpr const char *kIpv6Routes = "/proc/thread-self/net/ipv6_route";
constexpr std::uint32_t kRejects = 0x0200; // RTF_REJECT

bool is_pattern(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

std::vector<std::string_view> fields(std::string_view line) {
    constexpr std::string_view kSpace = " \t\n";
    std::vector<std::string_view> all;
    while (true) {
        const auto start = line.find_first_not_of(kSpace);
        if (start == std::string_view::npos)
            return all;
        line.remove_prefix(start);
        all.push_back(line.substr(0, line.find_first_of(kSpace)));
        line.remove_prefix(all.back().size());
    }
}

std::optional<std::uint32_t> number(std::string_view text, int base) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// The interfaces of the default routes with the lowest metric.
struct DefaultRoutes {
    std::uint32_t metric = std::numeric_limits<std::uint32_t>::max();
    std::vector<std::string> names{};

    void add(std::string_view name, std::optional<std::uint32_t> its_metric) {
        if (!its_metric || *its_metric > metric)
            return;
        if (*its_metric < metric)
            names.clear();
        metric = *its_metric;
        names.emplace_back(name);
    }
};

template <typename Line> Result<DefaultRoutes> read_routes(const char *path, Line take) {
    DefaultRoutes routes;
    const File file(std::fopen(path, "re"), &std::fclose);
    if (!file && errno == ENOENT) // a kernel without this family
        return routes;
    if (!file)
        return system_error(ErrorCode::io_failure, std::string("reading ") + path, errno);
    std::array<char, 512> line{};
    while (std::fgets(line.data(), line.size(), file.get()) != nullptr)
        take(fields(line.data()), routes);
    return routes;
}

// Iface Destination Gateway Flags RefCnt Use Metric Mask …
void take_ipv4(const std::vector<std::string_view> &f, DefaultRoutes &routes) {
    constexpr std::size_t kFlags = 3, kMetric = 6, kMask = 7;
    if (f.size() <= kMask || f[1] != "00000000" || f[kMask] != "00000000")
        return;
    if ((number(f[kFlags], 16).value_or(kRejects) & kRejects) == 0)
        routes.add(f[0], number(f[kMetric], 10));
}

// destination length source length next-hop metric refcnt use flags device
void take_ipv6(const std::vector<std::string_view> &f, DefaultRoutes &routes) {
    constexpr std::size_t kMetric = 5, kFlags = 8, kDevice = 9;
    if (f.size() <= kDevice || f[1] != "00" || f[3] != "00")
        return;
    if ((number(f[kFlags], 16).value_or(kRejects) & kRejects) == 0)
        routes.add(f[kDevice], number(f[kMetric], 16));
}

std::vector<std::string> all_names() {
    std::vector<std::string> names;
    const std::unique_ptr<struct if_nameindex[], void (*)(struct if_nameindex *)> all(if_nameindex(),
                                                                                      &if_freenameindex);
    for (const struct if_nameindex *one = all.get(); one != nullptr && one->if_index != 0; ++one)
        names.emplace_back(one->if_name);
    return names;
}

enum class LinkKind { gone, host_veth, loopback, headerless, ethernet };

Result<LinkKind> kind_of(const std::string &name, std::uint32_t ifindex, const Interfaces &host_veths) {
    if (TRY(host_veths.find(ifindex)))
        return LinkKind::host_veth;
    const Fd any_socket(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    if (ioctl(any_socket.get(), SIOCGIFHWADDR, &request) != 0) {
        if (errno == ENODEV)
            return LinkKind::gone;
        return system_error(ErrorCode::netlink, "asking for the link type of " + name, errno);
    }
    const unsigned type = request.ifr_hwaddr.sa_family;
    return type == ARPHRD_ETHER      ? LinkKind::ethernet
           : type == ARPHRD_LOOPBACK ? LinkKind::loopback
                                     : LinkKind::headerless;
}

Error no_uplink(const std::string &name, LinkKind kind) {
    if (kind == LinkKind::headerless)
        return {ErrorCode::invalid_network_config,
                "uplink " + name + " has no Ethernet header (it is a tunnel or a tun device)",
                "name the interface below it in \"uplinks\", or set \"fastPath\" to \"local\": what goes through the "
                "tunnel takes the host stack"};
    return {ErrorCode::invalid_network_config,
            name + (kind == LinkKind::loopback ? " is the loopback interface" : " is a pod's host end") + ", no uplink",
            "correct \"uplinks\""};
}

// A name that leads nowhere now may do so later; one that can never be an uplink is a mistake.
Result<void> add(const std::string &name, bool named, const Interfaces &host_veths, FoundUplinks &found) {
    const std::uint32_t ifindex = if_nametoindex(name.c_str());
    const LinkKind kind = ifindex == 0 ? LinkKind::gone : TRY(kind_of(name, ifindex, host_veths));
    if (kind == LinkKind::ethernet)
        found.ifindexes.push_back(ifindex);
    else if (kind == LinkKind::gone)
        found.notes.push_back("there is no interface " + name);
    else if (named)
        return no_uplink(name, kind);
    else if (kind == LinkKind::headerless)
        found.notes.push_back(name +
                              " has no Ethernet header (it is a tunnel or a tun device): what leaves by it takes "
                              "the host stack");
    return {};
}

} // namespace

Result<bool> can_be_uplink(std::uint32_t ifindex, const Interfaces &host_veths) {
    std::array<char, IF_NAMESIZE> name{};
    return if_indextoname(ifindex, name.data()) != nullptr &&
           TRY(kind_of(name.data(), ifindex, host_veths)) == LinkKind::ethernet;
}

Result<FoundUplinks> find_uplinks(std::span<const std::string> patterns, const Interfaces &host_veths) {
    FoundUplinks found;
    if (patterns.empty())
        for (const DefaultRoutes &routes :
             {TRY(read_routes(kIpv4Routes, take_ipv4)), TRY(read_routes(kIpv6Routes, take_ipv6))})
            for (const std::string &name : routes.names)
                TRY(add(name, false, host_veths, found));
    for (const std::string &pattern : patterns) {
        if (!is_pattern(pattern)) {
            TRY(add(pattern, true, host_veths, found));
            continue;
        }
        for (const std::string &name : all_names())
            if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0)
                TRY(add(name, false, host_veths, found));
    }
    std::ranges::sort(found.ifindexes);
    found.ifindexes.erase(std::unique(found.ifindexes.begin(), found.ifindexes.end()), found.ifindexes.end());
    return found;
}

std::string join_patterns(std::span<const std::string> patterns) {
    std::string text;
    for (const std::string &pattern : patterns)
        text += (text.empty() ? "" : " ") + pattern;
    return text;
}

std::vector<std::string> split_patterns(std::string_view text) {
    std::vector<std::string> patterns;
    for (const std::string_view pattern : fields(text))
        patterns.emplace_back(pattern);
    return patterns;
}

} // namespace podlane
