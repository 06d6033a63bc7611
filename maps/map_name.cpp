// SPDX-License-Identifier: MIT
#include "map_name.hpp"

#include <bpf/bpf.h>

#include <cerrno>

namespace podlane {

Result<bpf_map_info> map_info(int fd) {
    bpf_map_info info{};
    __u32 size = sizeof info;
    if (bpf_obj_get_info_by_fd(fd, &info, &size) != 0)
        return system_error(ErrorCode::bpf, "querying a map", errno);
    return info;
}

bool is_name_of(std::string_view map_name, std::string_view pin) {
    return map_name.empty() || map_name == pin.substr(0, BPF_OBJ_NAME_LEN - 1);
}

} // namespace podlane
