// SPDX-License-Identifier: MIT
// The text of a record.
#include "loader/record.hpp"

#include "maps/abi/names.h"
#include "maps/hash.hpp"
#include "maps/text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace podlane {
namespace {

// A record is parts, each of which adds to those before: "podlane-record 2 CHECKSUM LENGTH\n", and as many bytes.
constexpr std::string_view kAnyVersion = "podlane-record ";
constexpr std::string_view kMagic = "podlane-record 2 ";
constexpr std::string_view kOldMagic = "podlane-record 1 "; // one part without a length, up to the end of the file
constexpr std::size_t kSumDigits = 16;

std::string checksum(std::string_view text) {
    std::array<char, kSumDigits + 1> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(fnv1a_64(text)));
    return digits.data();
}

// "name length\nbytes\n"; empty values are left out.
void put(std::string &into, std::string_view name, std::string_view value) {
    if (value.empty())
        return;
    into += std::string(name) + " " + std::to_string(value.size()) + "\n";
    into += value;
    into += '\n';
}

void put_number(std::string &into, std::string_view name, std::uint64_t value) {
    put(into, name, value == 0 ? "" : std::to_string(value));
}

// Each text of a record, by the name that it has in the file.
constexpr std::array<std::pair<std::string_view, std::string AttachmentRecord::*>, 16> kTexts = {
    {{"container", &AttachmentRecord::container_id},
     {"ifname", &AttachmentRecord::ifname},
     {"network", &AttachmentRecord::network},
     {"root", &AttachmentRecord::root},
     {"boot", &AttachmentRecord::boot_id},
     {"netns", &AttachmentRecord::netns},
     {"args", &AttachmentRecord::args},
     {"path", &AttachmentRecord::path},
     {"config", &AttachmentRecord::config},
     {"lease", &AttachmentRecord::lease},
     {"groups", &AttachmentRecord::groups},
     {"ipam-config", &AttachmentRecord::ipam_config},
     {"ipam-args", &AttachmentRecord::ipam_args},
     {"node-name", &AttachmentRecord::node_name},
     {"labels", &AttachmentRecord::labels},
     {"annotations", &AttachmentRecord::annotations}}};

template <typename Number> void read_number(std::string_view text, Number &into) {
    into = parse_number<Number>(text).value_or(into);
}

void set(AttachmentRecord &record, std::string_view name, std::string_view value) {
    for (const auto &[known, text] : kTexts)
        if (name == known)
            record.*text = value;
    if (name == "created")
        read_number(value, record.created_ns);
    else if (name == "created-boottime")
        read_number(value, record.created_boottime_ns);
    else if (name == "node")
        read_number(value, record.node_netns);
    else if (name == "netns-cookie")
        read_number(value, record.netns_cookie);
    else if (name == "uplink")
        read_number(value, record.uplink);
    else if (name == "held-since")
        read_number(value, record.held_since_ns);
    else if (name == "held-until")
        read_number(value, record.held_until_ns);
    else if (name == "egress-rules")
        record.has_egress_rules = value == "1";
    else if (name == "only-lease")
        record.only_lease = value == "1";
    else if (name == PODLANE_MAP_ENDPOINTS && value.size() == sizeof(endpoint)) {
        record.entry.emplace();
        std::memcpy(&*record.entry, value.data(), value.size());
    }
}

// The fields of the first part, which is taken off; none if it is not whole.
std::optional<std::string_view> take_part(std::string_view &text) {
    static_assert(kMagic.size() == kOldMagic.size());
    const bool is_old = text.starts_with(kOldMagic);
    const auto end = text.find('\n');
    if ((!is_old && !text.starts_with(kMagic)) || end == std::string_view::npos || end < kMagic.size() + kSumDigits)
        return std::nullopt;
    const std::string_view header = text.substr(kMagic.size(), end - kMagic.size());
    std::string_view fields = text.substr(end + 1);
    if (!is_old) {
        std::size_t length = 0;
        read_number(header.substr(std::min(kSumDigits + 1, header.size())), length);
        fields = fields.substr(0, length);
    }
    if (header.substr(0, kSumDigits) != checksum(fields))
        return std::nullopt;
    text.remove_prefix(end + 1 + fields.size());
    return fields;
}

bool read_fields(std::string_view text, AttachmentRecord &into) {
    while (!text.empty()) {
        const auto end = text.find('\n');
        const auto space = text.find(' ');
        if (end == std::string_view::npos || space > end)
            return false;
        std::size_t length = 0;
        read_number(text.substr(space + 1, end - space - 1), length);
        if (length >= text.size() - end - 1)
            return false;
        set(into, text.substr(0, space), text.substr(end + 1, length));
        text.remove_prefix(end + 1 + length + 1);
    }
    return true;
}

} // namespace

bool is_of_other_version(std::string_view text) {
    if (!text.starts_with(kAnyVersion) || text.starts_with(kMagic) || text.starts_with(kOldMagic))
        return false;
    const std::string_view number =
        text.substr(kAnyVersion.size(), text.find(' ', kAnyVersion.size()) - kAnyVersion.size());
    return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string record_text(const AttachmentRecord &record) {
    std::string body;
    for (const auto &[name, text] : kTexts)
        put(body, name, record.*text);
    put_number(body, "created", record.created_ns);
    put_number(body, "created-boottime", record.created_boottime_ns);
    put_number(body, "node", record.node_netns);
    put_number(body, "netns-cookie", record.netns_cookie);
    put_number(body, "uplink", record.uplink);
    put(body, "egress-rules", record.has_egress_rules ? "1" : "");
    put(body, "only-lease", record.only_lease ? "1" : "");
    put_number(body, "held-since", record.held_since_ns);
    put_number(body, "held-until", record.held_until_ns);
    if (record.entry) {
        static_assert(std::is_trivially_copyable_v<endpoint>);
        std::string bytes(sizeof(endpoint), '\0');
        std::memcpy(bytes.data(), &*record.entry, bytes.size());
        put(body, PODLANE_MAP_ENDPOINTS, bytes);
    }
    return std::string(kMagic) + checksum(body) + " " + std::to_string(body.size()) + "\n" + body;
}

std::optional<AttachmentRecord> parse_record(std::string_view text) {
    AttachmentRecord record;
    record.file_size = text.size();
    while (const auto fields = take_part(text)) // a torn addition counts as none
        if (!read_fields(*fields, record))
            return std::nullopt;
    record.whole_size = record.file_size - text.size();
    record.is_torn = !text.empty();
    return record.container_id.empty() || record.ifname.empty() ? std::nullopt : std::optional(std::move(record));
}

std::string lines_of(const std::map<std::string, std::string, std::less<>> &pairs) {
    std::string lines;
    for (const auto &[key, value] : pairs)
        lines += key + "=" + value + "\n";
    return lines;
}

std::map<std::string, std::string, std::less<>> pairs_in(std::string_view lines) {
    std::map<std::string, std::string, std::less<>> pairs;
    while (!lines.empty()) {
        const std::string_view line = lines.substr(0, lines.find('\n'));
        if (const auto equals = line.find('='); equals != std::string_view::npos)
            pairs.emplace(line.substr(0, equals), line.substr(equals + 1));
        lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    }
    return pairs;
}

} // namespace podlane
