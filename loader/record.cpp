// SPDX-License-Identifier: MIT
#include "loader/record.hpp"

#include "loader/net/namespace.hpp"
#include "loader/net/sysctl.hpp"
#include "loader/state_file.hpp"
#include "maps/abi/names.h"
#include "maps/file.hpp"
#include "maps/text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace podlane {
namespace {

constexpr const char *kGenerationFile = ".generation"; // empty after an uninstall: also a full disk has room for that

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

// None, too, if it names another root than the one whose records are in this directory.
std::optional<AttachmentRecord> parse_in(const std::string &directory, std::string_view text) {
    auto record = parse_record(text);
    if (record && !directory.ends_with("/" + escaped(record->root)))
        record.reset();
    return record;
}

} // namespace

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
        if (struct stat facts{}; lstat(there.c_str(), &facts) == 0)
            return leads_to_nothing(there);
        const auto parent = there.rfind('/');
        there = parent == std::string::npos ? "." : there.substr(0, std::max(parent, std::size_t{1}));
    }
    TRY(check_writable(there));
    TRY(check_replaceable(directory_, kGenerationFile));
    TRY(check_replaceable(state_directory_, kTurnsFile));
    const std::string held = directory_ + "/" + kHeldDirectory;
    return TRY(exists(held)) ? check_writable(held) : Result<void>{};
}

Result<void> AttachmentRecords::write(const AttachmentRecord &record, Begin begin) const {
    return replace_file(directory_, record_file_name(record.container_id, record.ifname), record_text(record), begin);
}

Result<bool> AttachmentRecords::add(const AttachmentRecord &news) const {
    return append_to_file(directory_ + "/" + record_file_name(news.container_id, news.ifname), record_text(news));
}

Result<std::uint64_t> AttachmentRecords::seen_generation() const {
    const auto text = TRY(read_state_file(directory_ + "/" + kGenerationFile));
    return text ? parse_number<std::uint64_t>(*text).value_or(0) : 0;
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
    auto record = text ? parse_in(directory_, *text) : std::nullopt;
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
        else if (auto record = *text ? parse_in(directory_, **text) : std::nullopt) {
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
            if (const auto record = text && *text ? parse_in(directory, **text) : std::nullopt;
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
