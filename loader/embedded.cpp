// SPDX-License-Identifier: MIT
#include "loader/embedded.hpp"

#include "maps/fd.hpp"
#include "maps/map.hpp"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>

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

bool has_types(const bpf_map *map) { return bpf_map__btf_value_type_id(map) != 0; }
bool has_variables(const bpf_map *map) { return (bpf_map__map_flags(map) & BPF_F_MMAPABLE) != 0; }

using IsWhole = bool (*)(const bpf_map *);
std::vector<const bpf_map *> maps_that(const bpf_object *object, IsWhole is_whole) {
    std::vector<const bpf_map *> all;
    const bpf_map *map = nullptr;
    bpf_object__for_each_map(map, object) {
        if (is_whole(map))
            all.push_back(map);
    }
    return all;
}

// Whether the kernel has the object's type information as it was compiled. For a kernel that does not know a kind of
// type libbpf changes it; no kernel that loads the programs lacks any kind they use.
Result<bool> kernel_has_types_of(const bpf_object *object) {
    const btf *types = bpf_object__btf(object);
    if (types == nullptr || btf__fd(types) < 0)
        return false;
    __u32 bytes = 0;
    const void *compiled = btf__raw_data(types, &bytes);
    std::vector<std::uint8_t> loaded(bytes);
    bpf_btf_info info{};
    info.btf = reinterpret_cast<std::uintptr_t>(loaded.data());
    info.btf_size = bytes;
    __u32 size = sizeof info;
    if (bpf_obj_get_info_by_fd(btf__fd(types), &info, &size) != 0)
        return system_error(ErrorCode::bpf, "querying type information", errno);
    return info.btf_size == bytes && std::memcmp(loaded.data(), compiled, bytes) == 0;
}

} // namespace

bool is_transient(int system_errno) {
    constexpr std::array<int, 10> kErrors = {ENOMEM, ENOSPC, EINTR, EIO, EPERM, EBUSY, EAGAIN, ENOBUFS, EMFILE, ENFILE};
    return std::ranges::find(kErrors, system_errno) != kErrors.end() ||
           (system_errno == ESRCH && access("/sys/kernel/btf/vmlinux", F_OK) == 0);
}

namespace {

// If creating a map or a probe of the kernel fails, libbpf does without type information, variables or other features,
// whatever the reason; a map with a spin lock or a large program is then refused with another error than the first.
Result<void> load_whole(bpf_object *object, const std::string &doing, const std::function<int()> &load) {
    const auto with_types = maps_that(object, &has_types), with_variables = maps_that(object, &has_variables);
    const int failed = load() != 0 ? errno : 0;
    if (failed != 0 && is_transient(failed))
        return load_error(doing, failed);
    if (!std::ranges::all_of(with_types, &has_types) || !TRY(kernel_has_types_of(object)))
        return load_error(doing + " with its type information", EAGAIN);
    if (!std::ranges::all_of(with_variables, &has_variables))
        return load_error(doing + " with its variables", EAGAIN);
    return failed != 0 ? load_error(doing, failed) : Result<void>{};
}

} // namespace

Result<void> load_object(bpf_object *object, const std::string &doing) {
    return load_whole(object, doing, [&] { return bpf_object__load(object); });
}

Result<void> load_object(bpf_object_skeleton *skeleton, const std::string &doing) {
    return load_whole(*skeleton->obj, doing, [&] { return bpf_object__load_skeleton(skeleton); });
}

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
