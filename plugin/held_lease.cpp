// SPDX-License-Identifier: MIT
#include "plugin/held_lease.hpp"

#include "loader/lock_file.hpp"
#include "loader/state_file.hpp"
#include "maps/clock.hpp"
#include "maps/fd.hpp"
#include "maps/file.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/ipam_wishes.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/version.hpp"
#include "plugin/found.hpp"
#include "plugin/ipam.hpp"
#include "plugin/log.hpp"
#include "plugin/state.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

namespace podlane {
namespace {

// "web-0": what a StatefulSet calls its pods.
bool is_of_stateful_set(std::string_view name) {
    const auto dash = name.rfind('-');
    if (dash == std::string_view::npos || dash == 0)
        return false;
    const std::string_view number = name.substr(dash + 1);
    return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos &&
           (number == "0" || !number.starts_with('0'));
}

// A directory of empty files with the names of the records to look into, so that a call reads no others. It exists once
// a lease has been held, and then has the locks of whoever requests one, for each network.
std::string held_directory(const AttachmentRecords &records) { return records.directory() + "/" + kHeldDirectory; }

Result<bool> has_ever_held(const AttachmentRecords &records) { return exists(held_directory(records)); }

std::string held_file(const AttachmentRecords &records, const AttachmentRecord &record) {
    return held_directory(records) + "/" + record_file_name(record.container_id, record.ifname);
}

// Before the record says so.
Result<void> announce_held(const AttachmentRecords &records, const AttachmentRecord &record) {
    TRY(make_directory(held_directory(records)));
    const std::string path = held_file(records, record);
    if (const Fd file(open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)); !file)
        return system_error(ErrorCode::io_failure, "creating " + path, errno);
    return {};
}

// An IPAM plugin that hangs costs a call "ipamTimeout". After a try that failed, calls make none for ten times as long.
constexpr std::uint64_t kTimeoutsOfPause = 10;

std::uint64_t ipam_timeout_ns(const AttachmentRecord &held) {
    const auto made = recorded_request(held);
    return (made ? made->config : cni::Config{}).ipam_timeout_s * kNsPerSecond;
}

// Its file's time is that of the next try.
bool is_due(const AttachmentRecords &records, const AttachmentRecord &held) {
    struct stat facts {};
    if (stat(held_file(records, held).c_str(), &facts) != 0)
        return true;
    const std::uint64_t next_ns = static_cast<std::uint64_t>(facts.st_mtim.tv_sec) * kNsPerSecond +
                                  static_cast<std::uint64_t>(facts.st_mtim.tv_nsec);
    const std::uint64_t now = realtime_ns();
    return next_ns <= now || next_ns > now + kTimeoutsOfPause * ipam_timeout_ns(held); // the clock was set back
}

// On a file system that cannot be written, each call tries.
void put_off(const AttachmentRecords &records, const AttachmentRecord &held, std::uint64_t timeouts) {
    const std::uint64_t next_ns = realtime_ns() + timeouts * ipam_timeout_ns(held);
    const timespec next{.tv_sec = static_cast<time_t>(next_ns / kNsPerSecond),
                        .tv_nsec = static_cast<long>(next_ns % kNsPerSecond)};
    const std::array<timespec, 2> times{next, next};
    static_cast<void>(utimensat(AT_FDCWD, held_file(records, held).c_str(), times.data(), AT_SYMLINK_NOFOLLOW));
}

Result<Fd> lock_path(const std::string &path, int operation) {
    Fd file(open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) {
        Error error = system_error(ErrorCode::io_failure, "locking " + path, errno);
        error.hint = "remove what is there, or set \"stateDir\" to a directory that root can write to";
        return error;
    }
    TRY(lock_file(file, operation, path, ErrorCode::io_failure));
    return file;
}

// One call takes a held lease over while no other requests one: between its release and the next request its addresses
// are anybody's. Each waits behind those that came before: shared locks would let none in that waits for its own.
// Those of other networks wait for none of this: its IPAM plugin may hang.
Result<Fd> lock_leases(const cni::Config &config, int operation) {
    const std::string directory = held_directory(records_of(config));
    const Fd turn = TRY(lock_path(directory + "/.turn-" + config.name, LOCK_EX));
    return lock_path(directory + "/.lock-" + config.name, operation);
}

// One that cannot be read is most likely another pod's.
Result<std::vector<AttachmentRecord>> readable_leases(const AttachmentRecords &records) {
    Errors unread;
    auto held = held_leases(records, unread);
    if (const auto done = std::move(unread).result(); !done)
        log(cni::Log::Level::error, "the record of a lease counts as none: " + done.error().message);
    return held;
}

bool is_for(const AttachmentRecord &record, const cni::Request &request) {
    const auto arguments = cni::parse_arguments(record.args);
    return arguments && record.network == request.config.name && record.ifname == request.ifname &&
           arguments->pod.ns == request.pod.ns && arguments->pod.name == request.pod.name &&
           record.container_id != request.container_id;
}

Result<std::vector<AttachmentRecord>> held_for(const cni::Request &request) {
    std::vector<AttachmentRecord> held;
    if (request.pod.name.empty() || request.pod.ns.empty())
        return held;
    held = TRY(readable_leases(records_of(request.config)));
    std::erase_if(held, [&](const AttachmentRecord &one) { return !is_for(one, request); });
    return held;
}

std::vector<Prefix> recorded_addresses(const AttachmentRecord &record) {
    std::vector<Prefix> addresses;
    if (const auto lease = cni::parse_attachment(record.lease))
        for (const cni::Address &one : lease->addresses)
            addresses.push_back(host_prefix(one.prefix.addr));
    return addresses;
}

Error waits_for(const cni::Request &request, const AttachmentRecord &held) {
    const std::string pod = request.pod.ns + "/" + request.pod.name;
    const std::string remedy = "have the IPAM plugin answer; after ten times \"ipamTimeout\" an ADD tries again, and "
                               "this at once: podlanectl lease release ";
    return {ErrorCode::try_again_later,
            "the IPAM plugin did not release the lease of container " + held.container_id +
                " a while ago, whose addresses are held for " + pod,
            remedy + pod};
}

// false: it waits. An ADD does not depend on another IPAM plugin than its own, nor on a lease beyond its time.
Result<bool> release_for(const cni::Request &request, const AttachmentRecord &held) {
    const AttachmentRecords records = records_of(request.config);
    const bool due = is_due(records, held);
    for (const cni::Request &of_old : TRY(requests_with_lease(request_of(held, request.config.state_dir), held))) {
        const bool may_wait = !is_held(held) || of_old.config.ipam_type != request.config.ipam_type;
        if (!due)
            return may_wait ? Result<bool>(false) : waits_for(request, held);
        if (may_wait)
            put_off(records, held, 1); // others do not try meanwhile
        if (auto released = ipam::remove(of_old); !released) {
            Error &error = released.error();
            // Of the same network all wait for this call: one that fails at once may be repeated as often.
            if (may_wait || error.code == ErrorCode::try_again_later)
                put_off(records, held, kTimeoutsOfPause);
            if (!may_wait)
                return std::move(error);
            log(cni::Log::Level::warning, error.message + ": the held lease waits");
            return false;
        }
    }
    put_off(records, held, 0); // forget_held_leases() is to find it
    return true;
}

// The addresses that are free for the pod now.
Result<std::vector<Prefix>> release_own(const cni::Request &request, const std::vector<AttachmentRecord> &held) {
    std::vector<Prefix> addresses;
    for (const AttachmentRecord &one : held)
        if (TRY(release_for(request, one)))
            addresses = recorded_addresses(one);
    return addresses;
}

// Until when the addresses were held for the pod.
std::uint64_t held_until(const cni::Attachment &lease, const std::vector<AttachmentRecord> &held) {
    std::uint64_t until = 0;
    for (const AttachmentRecord &one : held)
        if (is_held(one) && std::ranges::any_of(recorded_addresses(one), [&](const Prefix &before) {
                return std::ranges::any_of(
                    lease.addresses, [&](const cni::Address &now) { return before == host_prefix(now.prefix.addr); });
            }))
            until = std::max(until, one.held_until_ns);
    return until;
}

// Addresses that the pod or the runtime requests go first.
Result<cni::Attachment> take_over(const cni::Request &request, const std::vector<Prefix> &addresses, bool &killed) {
    if (!request.config.pod_addresses.empty() || !request.config.requested_ips.empty() || addresses.empty())
        return ipam::add(request, killed);
    auto lease = ipam::add(TRY(cni::with_addresses(request, addresses)), killed);
    if (lease || killed)
        return lease;
    log(cni::Log::Level::warning,
        "the addresses that were held for the pod cannot be had: " + lease.error().message + "; others are requested");
    return ipam::add(request, killed);
}

// false: it was not held, or its time is over, or a DEL has come meanwhile.
Result<bool> hold_again(const cni::Request &request, const NewLease &given) {
    const AttachmentRecords records = records_of(request.config);
    auto record = TRY(records.find(request.container_id, request.ifname));
    if (!record)
        return false;
    record->held_since_ns = realtime_ns();
    record->held_until_ns = given.held_until_ns;
    if (!is_held(*record))
        return false;
    record->lease = cni::to_json(given.lease, cni::kNewestVersion);
    record->only_lease = true;
    record->entry.reset();
    TRY(announce_held(records, *record));
    TRY(records.write(*record));
    return true;
}

bool has_no_address_left(const Error &error) {
    return error.code == ErrorCode::try_again_later ||
           error.message.find("no IP addresses available") != std::string::npos;
}

// One whose IPAM plugin is not installed waits.
Result<void> release_or_keep(const AttachmentRecord &record, const std::string &state_directory) {
    return remove_found(record, state_directory);
}

void log_failure(const AttachmentRecord &record, const Result<void> &released) {
    if (!released)
        log(cni::Log::Level::warning,
            "releasing the held lease of container " + record.container_id + ": " + released.error().message);
}

// For an ADD whose range is full. false: there is none that could be.
Result<bool> release_oldest(const cni::Config &config, const Error &full) {
    const AttachmentRecords records = records_of(config);
    for (const AttachmentRecord &one : TRY(readable_leases(records))) {
        if (one.network != config.name || !is_due(records, one))
            continue;
        log(cni::Log::Level::warning, full.message + ": releasing the oldest held lease");
        put_off(records, one, 1); // others do not try meanwhile
        auto released = release_or_keep(one, config.state_dir);
        if (released)
            return true;
        if (released.error().code == ErrorCode::try_again_later) { // the next would take as long: it is the next call's
            put_off(records, one, kTimeoutsOfPause);
            return std::move(released).error();
        }
        log_failure(one, released);
    }
    return false;
}

// `network`: null: of all.
Result<std::vector<AttachmentRecord>> due_leases(const AttachmentRecords &records, const std::string *network) {
    std::vector<AttachmentRecord> due = TRY(readable_leases(records));
    std::erase_if(due, [&](const AttachmentRecord &one) {
        return is_held(one) || (network != nullptr && one.network != *network) || !is_due(records, one);
    });
    return due;
}

void release_due_leases(const cni::Config &config, const std::string *network) {
    for (const std::string &directory : state_directories_of(config)) {
        const AttachmentRecords records(directory, config.bpffs);
        if (const auto any = has_ever_held(records); any && !*any)
            continue;
        const auto due = due_leases(records, network);
        if (!due) {
            log(cni::Log::Level::warning, "looking for held leases: " + due.error().message);
            continue;
        }
        for (const AttachmentRecord &one : *due) // others do not try meanwhile
            put_off(records, one, 1);
        std::set<std::string> hanging; // networks whose other leases would take as long
        for (const AttachmentRecord &one : *due) {
            const auto released = hanging.contains(one.network) ? Result<void>{} : release_or_keep(one, directory);
            log_failure(one, released);
            if (!released && released.error().code == ErrorCode::try_again_later)
                hanging.insert(one.network);
            if (!released || hanging.contains(one.network))
                put_off(records, one, kTimeoutsOfPause);
        }
    }
}

} // namespace

bool keeps_address(const cni::Request &request) {
    const cni::Config &config = request.config;
    if (request.pod.name.empty() || request.pod.ns.empty() || config.ipam_type.empty() || !config.own_addresses.empty())
        return false;
    if (config.pod_keeps_address)
        return *config.pod_keeps_address;
    return config.keep_address == cni::KeepAddress::all ||
           (config.keep_address == cni::KeepAddress::stateful_set && is_of_stateful_set(request.pod.name));
}

bool is_held(const AttachmentRecord &record) {
    const std::uint64_t now = realtime_ns();
    return record.held_since_ns <= now && now < record.held_until_ns;
}

Result<bool> hold_lease(AttachmentRecord &record) {
    if (record.held_until_ns != 0)
        return is_held(record);
    if (record.lease.empty() || record.only_lease)
        return false;
    const auto request = recorded_request(record);
    if (!request || !keeps_address(*request))
        return false;
    TRY(announce_held(records_of(request->config), record));
    record.held_since_ns = realtime_ns();
    record.held_until_ns = record.held_since_ns + request->config.keep_address_s * kNsPerSecond;
    log(cni::Log::Level::info, "the lease is held for " + request->pod.ns + "/" + request->pod.name + " for " +
                                   std::to_string(request->config.keep_address_s) + " s");
    return true;
}

Result<NewLease> request_lease(const cni::Request &request, bool &killed) {
    const AttachmentRecords records = records_of(request.config);
    release_expired_leases(request.config);
    if (!TRY(has_ever_held(records)))
        return NewLease{TRY(ipam::add(request, killed))};
    std::vector<AttachmentRecord> own = TRY(held_for(request));
    const Fd lock = TRY(lock_leases(request.config, own.empty() ? LOCK_SH : LOCK_EX));
    if (!own.empty()) // another ADD may have had them released meanwhile
        own = TRY(held_for(request));
    auto lease = take_over(request, TRY(release_own(request, own)), killed);
    // One that was killed has said nothing about its range.
    if (!lease && !killed && has_no_address_left(lease.error()) && TRY(release_oldest(request.config, lease.error())))
        lease = ipam::add(request, killed);
    const std::uint64_t until = lease ? held_until(*lease, own) : 0;
    return NewLease{TRY(std::move(lease)), until};
}

void settle_on_failure(const cni::Request &request, const NewLease &given, Rollback &rollback) {
    // Like the record: nobody else may get the address of what is left.
    rollback.add_record("releasing the lease, or holding it again", [&request, &rollback, given]() -> Result<void> {
        const auto held = hold_again(request, given);
        if (!held)
            log(cni::Log::Level::warning, held.error().message + ": the lease is not held");
        if (!held || !*held)
            return ipam::remove(request);
        rollback.keep_records();
        forget_held_leases(request); // the record of before
        return {};
    });
}

void forget_held_leases(const cni::Request &request) {
    const AttachmentRecords records = records_of(request.config);
    if (const auto any = has_ever_held(records); any && !*any)
        return;
    if (const auto own = held_for(request))
        for (const AttachmentRecord &one : *own)
            if (is_due(records, one)) // otherwise it waits
                log_failure(one, release_or_keep(one, request.config.state_dir));
}

void release_expired_leases(const cni::Config &config) { release_due_leases(config, &config.name); }

void release_all_expired_leases(const cni::Config &config) { release_due_leases(config, nullptr); }

Result<std::vector<AttachmentRecord>> held_leases(const AttachmentRecords &records, Errors &unread) {
    std::vector<AttachmentRecord> held;
    for (const std::string &name : TRY(names_in(held_directory(records)))) {
        const auto colon = name.find(':');
        const auto record = colon == std::string::npos ? Result<std::optional<AttachmentRecord>>(std::nullopt)
                                                       : records.find(name.substr(0, colon), name.substr(colon + 1));
        if (!record)
            unread.add(record);
        else if (!*record)
            TRY(remove_if_present(held_directory(records) + "/" + name));
        else if ((*record)->held_until_ns != 0) // otherwise a DEL is about to write it, or was killed before
            held.push_back(**record);
    }
    std::ranges::sort(held, {}, &AttachmentRecord::held_since_ns);
    return held;
}

bool waits_for_release(const AttachmentRecord &record) { return record.only_lease && record.held_until_ns == 0; }

Result<void> release_held_lease(const AttachmentRecord &record, const std::string &state_directory) {
    return remove_found(record, state_directory, Lease::must_not_wait);
}

} // namespace podlane
