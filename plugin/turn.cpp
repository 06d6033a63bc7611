// SPDX-License-Identifier: MIT
#include "plugin/turn.hpp"

#include "maps/clock.hpp"
#include "maps/hash.hpp"
#include "plugin/log.hpp"
#include "plugin/state.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>

namespace podlane {
namespace {

enum class Verb : std::uint8_t { add, del };

// Of one attachment: a byte of the file, whose number is a hash of the names. A lock of a range of bytes belongs to the
// open file (F_OFD_*), which is open for reading only: so whoever has a turn holds a lock for reading, and looks
// whether it could have one for writing.
struct flock turn_of(const cni::Request &request, Verb verb, short type) {
    const std::uint64_t number = fnv1a_64(request.container_id + ":" + request.ifname) >> 2U;
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(number * 2 + static_cast<std::uint64_t>(verb));
    lock.l_len = 1;
    return lock;
}

void set(int netns, const cni::Request &request, Verb verb, short type) {
    struct flock lock = turn_of(request, verb, type);
    (void)fcntl(netns, F_OFD_SETLK, &lock);
}

bool is_held(int netns, const cni::Request &request, Verb verb) {
    struct flock lock = turn_of(request, verb, F_WRLCK);
    return fcntl(netns, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
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

Fd open_file(const std::string &path) { return Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); }

Fd open_netns(const cni::Request &request) {
    if (Fd given = open_file(request.netns))
        return given;
    const auto record = find_record(request);
    return record && *record ? open_file((*record)->netns) : Fd{};
}

Error still_removed(const cni::Request &request) {
    return {ErrorCode::try_again_later,
            "a DEL of container " + request.container_id + ", " + request.ifname +
                " is still going on, and would remove what this ADD makes",
            "repeat the ADD when the DEL has ended; one that does not end waits for its IPAM plugin: see the processes "
            "of podlane and the plugin, and end those that hang"};
}

} // namespace

Result<void> take_turn_of_add(const cni::Request &request, const net::Namespace &pod) {
    set(pod.fd(), request, Verb::add, F_RDLCK);
    if (!wait_until([&] { return !is_held(pod.fd(), request, Verb::del); }))
        return still_removed(request);
    // A second ADD of an attachment under way would release the lease of the first.
    (void)wait_until(
        [&] { return flock(pod.fd(), LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR); });
    return {};
}

Fd take_turn_of_del(const cni::Request &request) {
    Fd netns = open_netns(request);
    // Either of two that begin at once sees the other's: the ADD keeps its turn.
    const bool is_free = !netns || wait_until([&] {
        set(netns.get(), request, Verb::del, F_RDLCK);
        if (!is_held(netns.get(), request, Verb::add))
            return true;
        set(netns.get(), request, Verb::del, F_UNLCK);
        return false;
    });
    if (!is_free) {
        set(netns.get(), request, Verb::del, F_RDLCK); // an ADD that begins from here on waits
        log(cni::Log::Level::warning, "an ADD of container " + request.container_id + ", " + request.ifname +
                                          " is still going on: this DEL does not wait for it any longer");
    }
    return netns;
}

} // namespace podlane
