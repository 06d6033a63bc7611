// SPDX-License-Identifier: MIT
#include "plugin/cni/bandwidth.hpp"

#include "maps/abi/limit_math.h"
#include "maps/text.hpp"
#include "plugin/cni/keys.hpp"
#include "plugin/cni/labels.hpp"
#include "plugin/cni/values.hpp"
#include "plugin/cni/words.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace podlane::cni {
namespace {

using json::Node;
using Wide = unsigned __int128;

constexpr std::array<std::string_view, 4> kLimits{"ingressRate", "ingressBurst", "egressRate", "egressBurst"};

constexpr std::uint64_t kLowestAnnotation = 1000;              // as the kubelet has it: 1k
constexpr std::uint64_t kHighestAnnotation = 1000000000000000; // and 1P bits per second
constexpr unsigned kMostDigits = 18;

Result<void> check_pair(const Node &object, const char *rate_key, std::uint64_t rate, const char *burst_key,
                        std::uint64_t burst) {
    if ((rate == 0) == (burst == 0))
        return {};
    const Node given = object.at_any_case(rate != 0 ? rate_key : burst_key);
    return given.wrong(std::string(rate != 0 ? burst_key : rate_key) + " beside it, not 0");
}

Result<Bandwidth> read_limits(const Node &object) {
    Bandwidth limits;
    TRY(object.must_be_object(R"({"ingressRate": 10000000, "ingressBurst": 2147483647})"));
    TRY(json::read(object.at_any_case(kLimits[0]), limits.ingress_rate));
    TRY(json::read(object.at_any_case(kLimits[1]), limits.ingress_burst));
    TRY(json::read(object.at_any_case(kLimits[2]), limits.egress_rate));
    TRY(json::read(object.at_any_case(kLimits[3]), limits.egress_burst));
    TRY(check_pair(object, "ingressRate", limits.ingress_rate, "ingressBurst", limits.ingress_burst));
    TRY(check_pair(object, "egressRate", limits.egress_rate, "egressBurst", limits.egress_burst));
    return limits;
}

// Of the names for one thing, the first that is there.
struct Names {
    std::array<const char *, 3> rate;
    std::array<const char *, 2> burst;
};
constexpr Names kIngress{
    {"podlane/ingressRate", "kubernetes.io/ingress-bandwidth", "qos.projectcalico.org/ingressBandwidth"},
    {"podlane/ingressBurst", "qos.projectcalico.org/ingressBurst"}};
constexpr Names kEgress{
    {"podlane/egressRate", "kubernetes.io/egress-bandwidth", "qos.projectcalico.org/egressBandwidth"},
    {"podlane/egressBurst", "qos.projectcalico.org/egressBurst"}};

Node first_of(const Node &root, std::span<const char *const> names) {
    for (const char *name : names)
        if (Node found = pod_setting(root, name); found.present())
            return found;
    return pod_setting(root, names.front());
}

Result<std::uint64_t> read_annotation(const Node &annotation) {
    if (!annotation.present())
        return std::uint64_t{0};
    const std::string text = TRY(annotation.text());
    const auto rate = parse_quantity(text);
    if (!rate || *rate < kLowestAnnotation || *rate > kHighestAnnotation)
        return annotation.wrong("bits per second from 1k to 1P, such as \"10M\"");
    return *rate;
}

Result<void> read_direction(const Node &root, const Names &names, std::uint64_t &rate, std::uint64_t &burst) {
    rate = TRY(read_annotation(first_of(root, names.rate)));
    const Node given = first_of(root, names.burst);
    burst = TRY(read_annotation(given));
    if (rate == 0 && burst != 0)
        return given.wrong("a rate beside it");
    if (rate != 0 && burst == 0)
        burst = AUTO_BURST_BITS;
    return {};
}

Result<std::optional<Bandwidth>> read_annotations(const Node &root) {
    TRY(root.at_any_case("runtimeConfig").at_any_case(kPodAnnotations).must_be_object());
    Bandwidth limits;
    TRY(read_direction(root, kIngress, limits.ingress_rate, limits.ingress_burst));
    TRY(read_direction(root, kEgress, limits.egress_rate, limits.egress_burst));
    if (limits.ingress_rate == 0 && limits.egress_rate == 0)
        return std::optional<Bandwidth>{};
    return std::optional(limits);
}

// "static" is the reference plugin's rule: what the configuration says, if it says anything of limits.
Result<bool> read_rule(const Node &node) {
    constexpr std::array<Word<bool>, 2> kWords{{{"smaller", false}, {"static", true}}};
    bool only_static = false;
    TRY(read_word(node, kWords, only_static));
    return only_static;
}

bool is_smaller(std::uint64_t rate, std::uint64_t than) { return rate != 0 && (than == 0 || rate < than); }

// The burst of a smaller rate than the operator's lasts no longer than the operator's, if that is not automatic.
std::uint64_t burst_within(std::uint64_t burst, std::uint64_t rate, std::uint64_t most_burst, std::uint64_t most_rate) {
    if (most_rate == 0 || is_auto_burst_bits(most_rate, most_burst))
        return burst;
    const Wide most = std::max<Wide>(Wide{most_burst} * rate / most_rate, 1);
    const std::uint64_t own = is_auto_burst_bits(rate, burst) ? rate / (NS_PER_S / AUTO_HORIZON_NS) : burst;
    return own <= most ? burst : static_cast<std::uint64_t>(most);
}

// The smaller rate of each direction, with its burst; 0 is no limit.
Bandwidth smaller_of(const Bandwidth &configured, const Bandwidth &requested) {
    Bandwidth limits = configured;
    if (is_smaller(requested.ingress_rate, configured.ingress_rate)) {
        limits.ingress_rate = requested.ingress_rate;
        limits.ingress_burst = burst_within(requested.ingress_burst, requested.ingress_rate, configured.ingress_burst,
                                            configured.ingress_rate);
    }
    if (is_smaller(requested.egress_rate, configured.egress_rate)) {
        limits.egress_rate = requested.egress_rate;
        limits.egress_burst = burst_within(requested.egress_burst, requested.egress_rate, configured.egress_burst,
                                           configured.egress_rate);
    }
    return limits;
}

// The factor of a suffix as numerator and denominator; numerator 0 if there is no such suffix.
std::pair<Wide, Wide> scale(std::string_view suffix) {
    constexpr std::string_view kDecimal = "kMGTPE";
    constexpr std::string_view kBinary = "KMGTPE";
    constexpr std::string_view kSmall = "mun";
    Wide factor = 1;
    if (suffix.empty())
        return {1, 1};
    if (suffix.size() == 2 && suffix[1] == 'i' && kBinary.find(suffix[0]) != std::string_view::npos)
        return {Wide{1} << (10 * (kBinary.find(suffix[0]) + 1)), 1};
    if (suffix.size() == 1 && kDecimal.find(suffix[0]) != std::string_view::npos) {
        for (std::size_t i = 0; i <= kDecimal.find(suffix[0]); ++i)
            factor *= 1000;
        return {factor, 1};
    }
    if (suffix.size() == 1 && kSmall.find(suffix[0]) != std::string_view::npos) {
        for (std::size_t i = 0; i <= kSmall.find(suffix[0]); ++i)
            factor *= 1000;
        return {1, factor};
    }
    if (suffix[0] != 'e' && suffix[0] != 'E')
        return {0, 1};
    const bool plus = suffix.starts_with("e+") || suffix.starts_with("E+");
    suffix.remove_prefix(plus ? 2 : 1);
    if (plus && suffix.starts_with('-'))
        return {0, 1};
    const auto exponent = parse_number<int>(suffix);
    if (!exponent || *exponent < -18 || *exponent > 18)
        return {0, 1};
    for (int i = 0; i < std::abs(*exponent); ++i)
        factor *= 10;
    return *exponent < 0 ? std::pair<Wide, Wide>{1, factor} : std::pair<Wide, Wide>{factor, 1};
}

// A list for both directions, or an object with one for each.
Result<void> read_prefixes_of(const Node &node, Config &config, std::vector<Prefix> LimitedPrefixes::*which) {
    constexpr std::array<std::string_view, 2> kDirections{"ingress", "egress"}; // as enum limit_direction
    if (!node.present())
        return {};
    const bool by_direction = node.value().is_object();
    if (by_direction)
        TRY(check_keys(node, kDirections));
    for (std::size_t i = 0; i < kDirections.size(); ++i)
        TRY(read_prefixes(by_direction ? node.at(kDirections[i]) : node, config.limited_prefixes[i].*which));
    return {};
}

} // namespace

std::optional<std::uint64_t> parse_quantity(std::string_view text) {
    Wide digits = 0;
    Wide fraction = 1;
    unsigned count = 0;
    bool after_point = false;
    if (text.starts_with('+'))
        text.remove_prefix(1);
    for (; !text.empty() && (text[0] == '.' || (text[0] >= '0' && text[0] <= '9')); text.remove_prefix(1)) {
        if (text[0] == '.' && std::exchange(after_point, true))
            return std::nullopt;
        if (text[0] == '.')
            continue;
        if (++count > kMostDigits)
            return std::nullopt;
        digits = digits * 10 + static_cast<unsigned>(text[0] - '0');
        fraction *= after_point ? 10 : 1;
    }
    const auto [numerator, denominator] = scale(text);
    if (count == 0 || numerator == 0)
        return std::nullopt;
    const Wide divisor = fraction * denominator;
    const Wide value = (digits * numerator + divisor - 1) / divisor;
    if (value > std::numeric_limits<std::uint64_t>::max())
        return std::nullopt;
    return static_cast<std::uint64_t>(value);
}

Result<std::optional<Bandwidth>> read_configured_limits(const Node &root) {
    const bool flat = std::ranges::any_of(kLimits, [&](std::string_view key) { return root.at(key).present(); });
    const Node object = root.at("bandwidth");
    if (!object.present() && !flat)
        return std::optional<Bandwidth>{};
    if (object.present() && flat)
        return Error{ErrorCode::invalid_network_config,
                     "bandwidth stands beside rates and bursts at the top level, not both can count",
                     "move all of them into \"bandwidth\", or out of it"};
    const Bandwidth limits = TRY(read_limits(object.present() ? object : root));
    if (object.present())
        TRY(check_keys(object, keys_of(Key::Place::limits)));
    return std::optional(limits);
}

// As in the reference plugin: the one list or the other.
Result<void> read_limited_prefixes(const Node &root, Config &config) {
    for (const Node &object : {root, root.at("bandwidth")}) {
        TRY(read_prefixes_of(object.at("unshapedSubnets"), config, &LimitedPrefixes::unshaped));
        TRY(read_prefixes_of(object.at("shapedSubnets"), config, &LimitedPrefixes::shaped));
        for (const LimitedPrefixes &of : config.limited_prefixes)
            if (!of.unshaped.empty() && !of.shaped.empty())
                return Error{ErrorCode::invalid_network_config,
                             "unshapedSubnets and shapedSubnets of one direction are both there", "remove one of them"};
    }
    return {};
}

// A pod lowers the operator's limit at most. `limitRule` "static": it has no say, as with the reference plugin.
Result<std::optional<Bandwidth>> read_bandwidth(const Node &root, bool pod_may) {
    // All are read, so that a wrong value is reported wherever it stands.
    const bool only_static = TRY(read_rule(root.at("limitRule")));
    const auto configured = TRY(read_configured_limits(root));
    const Node runtime = root.at_any_case("runtimeConfig");
    const auto annotated = pod_may ? TRY(read_annotations(root)) : std::optional<Bandwidth>{};
    Bandwidth limits = annotated.value_or(Bandwidth{});
    if (const Node capability = runtime.at_any_case("bandwidth"); capability.present())
        limits = TRY(read_limits(capability));
    if (configured)
        limits = only_static ? *configured : smaller_of(*configured, limits);
    return limits.ingress_rate == 0 && limits.egress_rate == 0 ? std::optional<Bandwidth>{} : std::optional(limits);
}

void warn_of_unread_limits(const Node &root, std::vector<std::string> &warnings) {
    const Node limits = root.at_any_case("runtimeConfig").at_any_case("bandwidth");
    if (!limits.present() || !limits.value().is_object())
        return;
    for (const auto &[key, value] : limits.value().items()) {
        const auto is_key = [&name = key](std::string_view known) { return json::equal_any_case(name, known); };
        if (!value.is_null() && std::ranges::none_of(kLimits, is_key))
            warnings.push_back("runtimeConfig.bandwidth has " + json::quote(key) +
                               ", which is no rate and no burst; it is ignored");
    }
}

} // namespace podlane::cni
