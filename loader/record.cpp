// SPDX-License-Identifier: MIT
#include "loader/record.hpp"

#include "loader/net/namespace.hpp"
#include "loader/net/sysctl.hpp"
#include "loader/state_file.hpp"
#include "maps/abi/names.h"
#include "maps/file.hpp"
#include "maps/hash.hpp"
#include "maps/text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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
constexpr const char *kGenerationFile = ".generation"; // empty after an uninstall: also a full disk has room for that
constexpr std::size_t kSumDigits = 16;

std::string checksum(std::string_view text) {
    std::array<char, kSumDigits + 1> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(fnv1a_64(text)));
    return digits.data();
}

// Whole or torn: what another version has written, that version removes.
bool is_of_other_version(std::string_view text) {
    if (!text.starts_with(kAnyVersion) || text.starts_with(kMagic) || text.starts_with(kOldMagic))
        return false;
    const std::string_view number =
        text.substr(kAnyVersion.size(), text.find(' ', kAnyVersion.size()) - kAnyVersion.size());
    return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
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

std::set<std::string> with_default(const std::string &state_directory) { return {state_directory, kStateDirectory}; }

template <typename List> Result<std::vector<AttachmentRecord>> all_or_error(const List &list) {
    Errors unread;
    auto all = TRY(list(unread));
    TRY(std::move(unread).result());
    return all;
}

// "/sys/fs/bpf/podlane" -> "sys-fs-bpf-podlane"
std::string escaped(std::string_view root) {
    std::string name(root.substr(std::min(root.find_first_not_of('/'), root.size())));
    std::ranges::replace(name, '/', '-');
    return name;
}

} // namespace

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

std::string record_file_name(const std::string &container_id, const std::string &ifname) {
    return container_id + ":" + ifname;
}

AttachmentRecords::AttachmentRecords(const std::string &state_directory, const std::string &root)
    : state_directory_(state_directory), directory_(state_directory + "/" + escaped(root)) {}

Result<void> AttachmentRecords::prepare() const {
    TRY(make_directory(directory_));
    return check();
}

Result<void> AttachmentRecords::check() const {
    std::string there = directory_;
    while (access(there.c_str(), F_OK) != 0 && errno == ENOENT) {
        const auto parent = there.rfind('/');
        there = parent == std::string::npos ? "." : there.substr(0, std::max(parent, std::size_t{1}));
    }
    TRY(check_writable(there));
    return check_replaceable(directory_, kGenerationFile);
}

Result<void> AttachmentRecords::write(const AttachmentRecord &record, Begin begin) const {
    return replace_file(directory_, record_file_name(record.container_id, record.ifname), record_text(record), begin);
}

Result<bool> AttachmentRecords::add(const AttachmentRecord &news) const {
    return append_to_file(directory_ + "/" + record_file_name(news.container_id, news.ifname), record_text(news));
}

Result<std::uint64_t> AttachmentRecords::seen_generation() const {
    std::uint64_t generation = 0;
    if (const auto text = TRY(read_state_file(directory_ + "/" + kGenerationFile)))
        read_number(*text, generation);
    return generation;
}

Result<void> AttachmentRecords::note_generation(std::uint64_t generation) const {
    return replace_file(directory_, kGenerationFile, std::to_string(generation));
}

Result<bool> AttachmentRecords::is_uninstalled() const {
    const auto text = TRY(read_state_file(directory_ + "/" + kGenerationFile));
    return text && text->empty();
}

Result<void> AttachmentRecords::note_uninstalled() const { return replace_file(directory_, kGenerationFile, {}); }

Result<void> AttachmentRecords::forget_uninstall() const {
    return TRY(is_uninstalled()) ? note_generation(0) : Result<void>{};
}

Result<std::optional<AttachmentRecord>> AttachmentRecords::find(const std::string &container_id,
                                                                const std::string &ifname) const {
    const auto text = TRY(read_state_file(directory_ + "/" + record_file_name(container_id, ifname)));
    auto record = text ? parse_record(*text) : std::nullopt;
    if (record && (record->container_id != container_id || record->ifname != ifname))
        record.reset();
    if (record)
        record->state_directory = state_directory_;
    return record;
}

Result<std::vector<AttachmentRecord>> AttachmentRecords::list() const {
    return all_or_error([&](Errors &unread) { return list(unread); });
}

Result<std::vector<AttachmentRecord>> AttachmentRecords::list(Errors &unread, std::vector<AttachmentRecord> *torn,
                                                              const RecordNames &without) const {
    std::vector<AttachmentRecord> all;
    for (const std::string &name : TRY(names_in(directory_))) {
        const auto colon = name.find(':');
        if (colon == std::string::npos || without.contains(name)) // foreign; known
            continue;
        const auto text = read_state_file(directory_ + "/" + name);
        if (!text)
            unread.add(text);
        else if (auto record = *text ? parse_record(**text) : std::nullopt) {
            record->state_directory = state_directory_;
            if (name == record_file_name(record->container_id, record->ifname))
                all.push_back(*std::move(record));
        } else if (*text && torn != nullptr && !is_of_other_version(**text)) {
            AttachmentRecord &one = torn->emplace_back();
            one.container_id = name.substr(0, colon);
            one.ifname = name.substr(colon + 1);
            one.state_directory = state_directory_;
            one.is_torn = true;
        }
    }
    return all;
}

Result<void> AttachmentRecords::erase(const std::string &container_id, const std::string &ifname) const {
    const std::string name = record_file_name(container_id, ifname);
    for (const std::string &path : {directory_ + "/." + name, directory_ + "/" + name})
        if (auto removed = remove_if_present(path); !removed && removed.error().system_errno != EISDIR)
            return removed; // a directory is none of Podlane's
    return {};
}

Result<void> AttachmentRecords::remove_unfinished() const {
    for (const std::string &name : TRY(names_in(directory_, Hidden::too)))
        if (name.starts_with('.') && name.find(':') != std::string::npos)
            TRY(podlane::remove_unfinished(directory_ + "/" + name));
    return {};
}

Result<std::vector<AttachmentRecord>> list_all_records(const std::string &state_directory) {
    return all_or_error([&](Errors &unread) { return list_all_records(state_directory, unread); });
}

Result<std::vector<AttachmentRecord>> list_all_records(const std::string &state_directory, Errors &unread,
                                                       const std::string &root, const RecordNames &without) {
    std::vector<AttachmentRecord> all;
    for (const std::string &directory : with_default(state_directory))
        for (const std::string &name : TRY(names_in(directory)))
            std::ranges::move(TRY(AttachmentRecords(directory, name)
                                      .list(unread, nullptr, name == escaped(root) ? without : RecordNames{})),
                              std::back_inserter(all));
    return all;
}

std::set<std::string> roots_on_record(const std::string &state_directory, std::uint64_t node_netns, Errors &unread) {
    std::set<std::string> roots;
    const auto look_in = [&](const std::string &directory) -> Result<void> {
        for (const std::string &name : TRY(names_in(directory))) {
            const auto text = read_state_file(directory + "/" + name);
            if (!text)
                unread.add(text);
            if (const auto record = text && *text ? parse_record(**text) : std::nullopt;
                record && record->node_netns == node_netns) {
                roots.insert(record->root);
                break;
            }
        }
        return {};
    };
    for (const std::string &directory : with_default(state_directory)) {
        const auto names = names_in(directory);
        if (!names)
            unread.add(names.error());
        for (const std::string &root : names ? *names : std::vector<std::string>{})
            unread.add(look_in(directory + "/" + root));
    }
    return roots;
}

Result<std::optional<AttachmentRecord>>
find_record_anywhere(const std::string &state_directory, const std::string &container_id, const std::string &ifname) {
    const ThisNode node = TRY(ThisNode::now());
    std::optional<AttachmentRecord> earlier;
    for (const std::string &directory : with_default(state_directory))
        for (const std::string &root : TRY(names_in(directory)))
            if (auto record = TRY(AttachmentRecords(directory, root).find(container_id, ifname));
                record && node.may_have_made(*record)) {
                if (record->boot_id == node.boot)
                    return record;
                earlier = std::move(record);
            }
    return earlier;
}

Result<ThisNode> ThisNode::now() { return ThisNode{TRY(net::own_netns()), TRY(boot_id())}; }

bool ThisNode::has_made(const AttachmentRecord &record) const {
    return record.node_netns == netns && record.boot_id == boot;
}

bool ThisNode::may_have_made(const AttachmentRecord &record) const {
    return record.node_netns == netns || record.boot_id != boot;
}

Result<std::string> boot_id() {
    auto text = TRY(net::read_sysctl({"kernel", "random", "boot_id"}));
    if (!text)
        return Error{ErrorCode::io_failure, "/proc/sys/kernel/random/boot_id is missing", "mount /proc"};
    return *std::move(text);
}

} // namespace podlane
