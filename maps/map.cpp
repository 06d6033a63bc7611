#include "map.hpp"

#include <bpf/libbpf.h>

#include <cstdio>
#include <cstdlib>

namespace podlane {

Result<MapFacts> map_facts(int fd) {
    bpf_map_info info{};
    __u32 size = sizeof info;
    if (bpf_obj_get_info_by_fd(fd, &info, &size) != 0)
        return system_error(ErrorCode::bpf, "asking the kernel about a map", errno);
    return MapFacts{info.id, info.type, info.key_size, info.value_size, info.max_entries, info.map_flags};
}

Result<unsigned> possible_cpus() {
    const int count = libbpf_num_possible_cpus();
    if (count < 0)
        return system_error(ErrorCode::bpf, "counting possible CPUs", -count);
    return static_cast<unsigned>(count);
}

namespace detail {

Result<Fd> open_map(const std::string &path, std::uint32_t key_size, std::uint32_t value_size, Access access) {
    LIBBPF_OPTS(bpf_obj_get_opts, options);
    options.file_flags = access == Access::read_only ? BPF_F_RDONLY : 0;
    Fd fd(bpf_obj_get_opts(path.c_str(), &options));
    if (!fd) {
        const int error = errno;
        if (error == ENOENT)
            return Error{ErrorCode::missing, "map " + path + " is not there",
                         "no pod was set up since the node booted, or the bpffs was unmounted", error};
        return system_error(ErrorCode::bpf, "opening map " + path, error);
    }
    const MapFacts facts = TRY(map_facts(fd.get()));
    if (facts.key_size != key_size || facts.value_size != value_size) {
        std::fprintf(stderr, "podlane: map %s has keys of %u and values of %u bytes, this binary expects %u and %u\n",
                     path.c_str(), facts.key_size, facts.value_size, key_size, value_size);
        std::abort();
    }
    return fd;
}

Result<void> put(int fd, const std::string &path, const void *key, const void *value, Put how) {
    const std::uint64_t flags = how == Put::any ? BPF_ANY : how == Put::must_not_exist ? BPF_NOEXIST : BPF_EXIST;
    if (bpf_map_update_elem(fd, key, value, flags) == 0)
        return {};
    const int error = errno;
    if (error == E2BIG || error == ENOSPC)
        return Error{ErrorCode::map_full, "map " + path + " is full",
                     "remove endpoints that are gone, or enlarge the map in the configuration", error};
    if (error == EEXIST)
        return Error{ErrorCode::already_exists, "map " + path + " holds this key already", {}, error};
    return system_error(ErrorCode::bpf, "writing map " + path, error);
}

Result<bool> find(int fd, const std::string &path, const void *key, void *value) {
    if (bpf_map_lookup_elem(fd, key, value) == 0)
        return true;
    if (errno == ENOENT)
        return false;
    return system_error(ErrorCode::bpf, "reading map " + path, errno);
}

Result<bool> erase(int fd, const std::string &path, const void *key) {
    if (bpf_map_delete_elem(fd, key) == 0)
        return true;
    if (errno == ENOENT)
        return false;
    return system_error(ErrorCode::bpf, "erasing from map " + path, errno);
}

} // namespace detail
} // namespace podlane
