// SPDX-License-Identifier: MIT
#include "plugin/turn.hpp"

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

constexpr const char *kTurnsFile = "/.turns"; // hidden: other files and directories there are records' and settings'

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

// false: another call has a lock beside which there is none of this type.
bool set(const Fd &file, const std::string &turn, short type) {
    struct flock lock = byte_of(turn, type);
    return fcntl(file.get(), F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

bool is_held(const Fd &file, const std::string &turn) {
    struct flock lock = byte_of(turn, F_WRLCK);
    return fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// false: it is not by then.
bool wait_until(const std::function<bool()> &is_free) {
    constexpr std::uint64_t kLongest = 10 * kNsPerSecond;
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 5'000'000};
    const std::uint64_t until = monotonic_ns() + kLongest;
    while (!is_free()) {
        if (monotonic_ns() >= until)
            return false;
        nanosleep(&kPause, nullptr);
    }
    return true;
}

Fd open_file(const std::string &state_directory, int flags) {
    return Fd(open((state_directory + kTurnsFile).c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
}

Result<Fd> create_file(const cni::Config &config) {
    if (Fd file = open_file(config.state_dir, O_RDWR | O_CREAT))
        return file;
    TRY(records_of(config).prepare());
    if (Fd file = open_file(config.state_dir, O_RDWR | O_CREAT))
        return file;
    Error error = system_error(ErrorCode::io_failure, "opening " + config.state_dir + kTurnsFile, errno);
    error.hint = "remove what is there, or set \"stateDir\" to a directory that root can write to";
    return error;
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

} // namespace

Result<Fd> take_turn_of_add(const cni::Request &request) {
    Fd file;
    do { // an uninstall may remove the file meanwhile
        file = TRY(create_file(request.config));
        // Shared with a second ADD, which does not wait for ever.
        (void)wait_until([&] { return set(file, of_add(request), F_RDLCK); });
    } while (is_removed(file));
    if (!wait_until([&] { return !is_held(file, of_del(request)); }))
        return still_removed(request);
    // A second ADD of an attachment under way would release the lease of the first.
    (void)wait_until([&] { return set(file, of_adds(request.container_id), F_WRLCK); });
    return file;
}

std::vector<Fd> take_turn_of_del(const cni::Request &request) {
    std::vector<Fd> turn;
    for (const std::string &directory : state_directories_of(request.config)) {
        Fd file = open_file(directory, directory == request.config.state_dir ? O_RDWR | O_CREAT : O_RDWR);
        // Either of two that begin at once sees the other's: the ADD keeps its turn.
        const bool is_free = !file || wait_until([&] {
            set(file, of_del(request), F_RDLCK);
            if (!is_held(file, of_add(request)))
                return true;
            set(file, of_del(request), F_UNLCK);
            return false;
        });
        if (!is_free) {
            set(file, of_del(request), F_RDLCK); // an ADD that begins from here on waits
            log(cni::Log::Level::warning, "an ADD of container " + request.container_id + ", " + request.ifname +
                                              " is still going on: this DEL does not wait for it any longer");
        }
        turn.push_back(std::move(file));
    }
    return turn;
}

bool is_add_under_way(const AttachmentRecord &record) {
    const Fd file = open_file(record.state_directory, O_RDONLY);
    const cni::Request request = request_of(record, record.state_directory);
    return file && (is_held(file, of_adds(record.container_id)) || is_held(file, of_add(request)));
}

Result<void> forget_turns(const std::string &state_directory) {
    const Fd file = open_file(state_directory, O_RDWR);
    struct flock all {};
    all.l_type = F_WRLCK;
    all.l_whence = SEEK_SET;
    if (file && fcntl(file.get(), F_OFD_SETLK, &all) != 0)
        return {}; // calls of other networks have theirs
    auto removed = remove_if_present(state_directory + kTurnsFile);
    return !removed && removed.error().system_errno == EISDIR ? Result<void>{} : removed; // none of Podlane's
}

bool is_call_under_way(const AttachmentRecord &record) {
    const cni::Request request = request_of(record, record.state_directory);
    const Fd file = open_file(record.state_directory, O_RDONLY);
    return file && (is_held(file, of_add(request)) || is_held(file, of_del(request)));
}

} // namespace podlane
