// SPDX-License-Identifier: MIT
#include "plugin/turn.hpp"

#include "loader/record.hpp"
#include "maps/clock.hpp"
#include "maps/file.hpp"
#include "maps/hash.hpp"
#include "plugin/log.hpp"
#include "plugin/state.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <functional>

namespace podlane {
namespace {

constexpr const char *kOfGc = "GC";

std::string of_add(const cni::Request &request) { return "ADD " + request.container_id + ":" + request.ifname; }
std::string of_del(const cni::Request &request) { return "DEL " + request.container_id + ":" + request.ifname; }
std::string of_adds(const std::string &container_id) { return "ADDs " + container_id; }

// A byte of the file, whose number is a hash of the turn's name.
struct flock byte_of(const std::string &turn, short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(fnv1a_64(turn) >> 2U);
    lock.l_len = 1;
    return lock;
}

bool is_held_by_another(int error) { return error == EAGAIN || error == EACCES; }

Error cannot_lock(int error) {
    Error failed = system_error(ErrorCode::io_failure, "locking .turns in the directory of \"stateDir\"", error);
    failed.hint = "repeat the call; if that fails too, set \"stateDir\" to a directory on a disk of the node's own";
    return failed;
}

// false: another call has a lock beside which there is none of this type.
Result<bool> set(const Fd &file, const std::string &turn, short type) {
    struct flock lock = byte_of(turn, type);
    if (fcntl(file.get(), F_OFD_SETLK, &lock) == 0)
        return true;
    return is_held_by_another(errno) ? Result<bool>(false) : cannot_lock(errno);
}

Result<bool> is_held(const Fd &file, const std::string &turn) {
    struct flock lock = byte_of(turn, F_WRLCK);
    if (fcntl(file.get(), F_OFD_GETLK, &lock) != 0)
        return cannot_lock(errno);
    return lock.l_type != F_UNLCK;
}

// false: it is not by then.
Result<bool> wait_until(const std::function<Result<bool>()> &is_free) {
    constexpr std::uint64_t kLongest = 10 * kNsPerSecond;
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 5'000'000};
    const std::uint64_t until = monotonic_ns() + kLongest;
    while (!TRY(is_free())) {
        if (monotonic_ns() >= until)
            return false;
        nanosleep(&kPause, nullptr);
    }
    return true;
}

// None if there is no file: then no call has a turn.
Result<Fd> open_file(const std::string &state_directory, int flags) {
    const std::string path = state_directory + "/" + kTurnsFile;
    Fd file(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (file || errno == ENOENT || errno == ENOTDIR)
        return file;
    Error error = system_error(ErrorCode::io_failure, "opening " + path, errno);
    error.hint = "remove what is there, or set \"stateDir\" to a directory that root can write to";
    return error;
}

Result<Fd> create_file(const cni::Config &config) {
    if (auto file = open_file(config.state_dir, O_RDWR | O_CREAT); file && *file)
        return file;
    TRY(records_of(config).prepare());
    return open_file(config.state_dir, O_RDWR | O_CREAT);
}

bool is_removed(const Fd &file) {
    struct stat facts {};
    return fstat(file.get(), &facts) == 0 && facts.st_nlink == 0;
}

Error still_removed(const cni::Request &request) {
    return {ErrorCode::try_again_later,
            "a DEL of container " + request.container_id + ", " + request.ifname +
                " is still going on, and would remove what this ADD makes",
            "repeat the ADD when the DEL has ended; one that does not end waits for its IPAM plugin: see the processes "
            "of podlane and the plugin, and end those that hang"};
}

Error still_made(const cni::Request &request) {
    return {ErrorCode::try_again_later,
            "another ADD of container " + request.container_id + ", " + request.ifname +
                " is still going on, and would release what this ADD requests",
            "repeat the ADD when the other one has ended; one that does not end waits for its IPAM plugin: see the "
            "processes of podlane and the plugin, and end those that hang"};
}

Result<Fd> take_turn_of_del_in(const std::string &directory, const cni::Request &request, bool &is_beside_add) {
    Fd file = TRY(open_file(directory, directory == request.config.state_dir ? O_RDWR | O_CREAT : O_RDWR));
    // Either of two that begin at once sees the other's: the ADD keeps its turn.
    const bool is_free = !file || TRY(wait_until([&]() -> Result<bool> {
        TRY(set(file, of_del(request), F_RDLCK));
        if (!TRY(is_held(file, of_add(request))))
            return true;
        TRY(set(file, of_del(request), F_UNLCK));
        return false;
    }));
    if (!is_free) {
        is_beside_add = true;
        TRY(set(file, of_del(request), F_RDLCK)); // an ADD that begins from here on waits
        log(cni::Log::Level::warning, "an ADD of container " + request.container_id + ", " + request.ifname +
                                          " is still going on: this DEL does not wait for it any longer");
    }
    return file;
}

} // namespace

Result<Fd> take_turn_of_add(const cni::Request &request) {
    Fd file;
    do { // an uninstall may remove the file meanwhile
        file = TRY(create_file(request.config));
        // Shared with a second ADD, which does not wait for ever.
        TRY(wait_until([&] { return set(file, of_add(request), F_RDLCK); }));
    } while (is_removed(file));
    if (!TRY(wait_until([&]() -> Result<bool> { return !TRY(is_held(file, of_del(request))); })))
        return still_removed(request);
    // Of two ADDs of an attachment, either would release the other's lease.
    const bool is_alone = TRY(wait_until([&] { return set(file, of_adds(request.container_id), F_WRLCK); }));
    if (!is_alone && TRY(is_held(file, of_add(request))))
        return still_made(request);
    return file;
}

std::vector<Fd> take_turn_of_del(const cni::Request &request) {
    bool is_beside_add = false;
    return take_turn_of_del(request, is_beside_add);
}

std::vector<Fd> take_turn_of_del(const cni::Request &request, bool &is_beside_add) {
    std::vector<Fd> turn;
    for (const std::string &directory : state_directories_of(request.config)) {
        auto file = take_turn_of_del_in(directory, request, is_beside_add);
        if (file)
            turn.push_back(std::move(file).value());
        else
            log(cni::Log::Level::warning, file.error().message + ": this DEL waits for no ADD of container " +
                                              request.container_id + ", " + request.ifname);
    }
    return turn;
}

Result<Fd> take_turn_of_gc(const cni::Config &config) {
    Fd file;
    do { // an uninstall may remove the file meanwhile
        file = TRY(open_file(config.state_dir, O_RDWR | O_CREAT));
        if (file)
            TRY(wait_until([&] { return set(file, kOfGc, F_RDLCK); }));
    } while (file && is_removed(file));
    return file;
}

Result<void> wait_for_gc(const cni::Config &config) {
    const Fd file = TRY(open_file(config.state_dir, O_RDONLY));
    if (!file || TRY(wait_until([&]() -> Result<bool> { return !TRY(is_held(file, kOfGc)); })))
        return {};
    return Error{ErrorCode::try_again_later,
                 "the IPAM plugin's GC is still going on, and would release this ADD's lease",
                 "repeat the ADD when the GC has ended; if it does not end, see the processes of podlane and the IPAM "
                 "plugin, and end those that hang"};
}

Result<bool> is_add_under_way(const AttachmentRecord &record) {
    const Fd file = TRY(open_file(record.state_directory, O_RDONLY));
    const cni::Request request = request_of(record, record.state_directory);
    return file && (TRY(is_held(file, of_adds(record.container_id))) || TRY(is_held(file, of_add(request))));
}

Result<bool> is_own_add_under_way(const AttachmentRecord &record) {
    const Fd file = TRY(open_file(record.state_directory, O_RDONLY));
    return file && TRY(is_held(file, of_add(request_of(record, record.state_directory))));
}

Result<void> forget_turns(const std::string &state_directory) {
    auto opened = open_file(state_directory, O_RDWR);
    if (!opened)
        return opened.error().system_errno == EISDIR ? Result<void>{} : std::move(opened).error(); // none of Podlane's
    const Fd file = std::move(opened).value();
    struct flock all {};
    all.l_type = F_WRLCK;
    all.l_whence = SEEK_SET;
    if (file && fcntl(file.get(), F_OFD_SETLK, &all) != 0) // calls of other networks may have theirs
        return is_held_by_another(errno) ? Result<void>{} : cannot_lock(errno);
    return remove_if_present(state_directory + "/" + kTurnsFile);
}

Result<bool> is_call_under_way(const AttachmentRecord &record) {
    const cni::Request request = request_of(record, record.state_directory);
    const Fd file = TRY(open_file(record.state_directory, O_RDONLY));
    return file && (TRY(is_held(file, of_add(request))) || TRY(is_held(file, of_del(request))));
}

Result<bool> may_be_under_way(const AttachmentRecord &record, std::uint64_t at_ns) {
    constexpr std::uint64_t kLongestAddNs = 120 * kNsPerSecond;
    constexpr std::uint64_t kMostIpamCalls = 12; // of an ADD that releases a lease first, each with its VERSION
    const bool is_to_come = record.created_boottime_ns > at_ns;
    const std::uint64_t age_ns = is_to_come ? 0 : at_ns - record.created_boottime_ns;
    if (record.only_lease)
        return false;
    if (!record.entry && !is_to_come && age_ns < kLongestAddNs)
        return true;
    if (!TRY(is_add_under_way(record)))
        return false;
    const auto made = recorded_request(record);
    const std::uint32_t ipam_timeout_s = made ? made->config.ipam_timeout_s : 0;
    return age_ns < kLongestAddNs + kMostIpamCalls * ipam_timeout_s * kNsPerSecond;
}

Result<bool> is_unfinished(const AttachmentRecord &record) {
    if (record.entry || record.only_lease || record.is_torn || TRY(may_be_under_way(record, boottime_ns())) ||
        TRY(is_call_under_way(record)))
        return false;
    const auto now = // a call may have ended since the record was read
        TRY(AttachmentRecords(record.state_directory, record.root).find(record.container_id, record.ifname));
    return now && !now->entry && !now->only_lease && now->created_boottime_ns == record.created_boottime_ns;
}

} // namespace podlane
