// SPDX-License-Identifier: MIT
#include "loader/embedded.hpp"

#include "maps/fd.hpp"
#include "maps/map.hpp"

#include <bpf/bpf.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace podlane {
namespace {

std::mutex log_mutex; // programs are loaded by two threads

std::string &libbpf_log() {
    static std::string log;
    return log;
}

// The verifier gives its reason for a refusal at the end.
int keep_log(libbpf_print_level level, const char *format, va_list arguments) {
    constexpr std::size_t kKept = 2048;
    if (level != LIBBPF_WARN)
        return 0;
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, arguments);
    std::string text(length < 0 ? 0 : static_cast<std::size_t>(length), '\0');
    std::vsnprintf(text.data(), text.size() + 1, format, again);
    va_end(again);
    const std::lock_guard guard(log_mutex);
    std::string &log = libbpf_log();
    log += text;
    if (log.size() > kKept)
        log.erase(0, log.size() - kKept);
    return length;
}

Result<void> check_layout(const bpf_map *map, int pinned, const std::string &path) {
    const MapFacts there = TRY(map_facts(pinned));
    if (there.type == static_cast<std::uint32_t>(bpf_map__type(map)) && there.key_size == bpf_map__key_size(map) &&
        there.value_size == bpf_map__value_size(map))
        return {};
    return Error{ErrorCode::plugin_not_available, "map " + path + " has another layout than its name says",
                 "it is not of a released version: delete the node's pods, and remove the directory it is in"};
}

} // namespace

void keep_libbpf_log() {
    libbpf_set_print(&keep_log);
    const std::lock_guard guard(log_mutex);
    libbpf_log().clear();
}

Error load_error(std::string_view doing, int system_errno) {
    Error error = system_error(ErrorCode::plugin_not_available, "kernel: " + std::string(doing), system_errno);
    const std::lock_guard guard(log_mutex);
    error.hint = libbpf_log();
    return error;
}

Result<void> reuse_maps(bpf_object *object, const std::string &directory) {
    bpf_map *map = nullptr;
    bpf_object__for_each_map(map, object) {
        if (bpf_map__is_internal(map))
            continue;
        const std::string path = directory + "/" + bpf_map__name(map);
        const Fd pinned(bpf_obj_get(path.c_str()));
        if (!pinned && errno == ENOENT)
            continue;
        if (!pinned)
            return system_error(ErrorCode::bpf, "opening map " + path, errno);
        TRY(check_layout(map, pinned.get(), path));
        if (bpf_map__reuse_fd(map, pinned.get()) != 0)
            return load_error("sharing map " + path, errno);
    }
    return {};
}

} // namespace podlane
