// SPDX-License-Identifier: MIT
// Feeds hostile bytes to what says in words what a map holds: anybody may have written it.
#include "tools/podlanectl/views/decode.hpp"

#include "tests/fuzz/require.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

using namespace podlane;

// The bytes as an entry of that type; zeros if there are too few.
template <typename T> T take(const std::uint8_t *&data, std::size_t &size) {
    T value{};
    const std::size_t taken = std::min(size, sizeof value);
    std::memcpy(&value, data, taken);
    data += taken;
    size -= taken;
    return value;
}

void check_endpoint(const endpoint_key &key, const endpoint &value) {
    require(ctl::address_words(value).size() <= ENDPOINT_ADDRESSES);
    require(ctl::pod_words(key, value).size() <= sizeof key + sizeof value);
    ctl::mac_words(value.pod_mac);
    require(field_text(value.pod_name).size() <= sizeof value.pod_name);
    mode_name(value.mode);
    ctl::mode_sentence(value.mode);
    attach_name(value.attach);
    ctl::ip_words(value.link_local);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const auto number = take<std::uint32_t>(data, size);
    require(!ctl::reason_name(number).empty());
    ctl::reason_kind_name(number);
    ctl::reason_sentence(number);
    flag_words(number);
    require(!ctl::fast_path_words(number).empty());
    ctl::via_name(number);
    ctl::map_type_name(number);
    require(!ctl::protocol_name(static_cast<std::uint8_t>(number)).empty());

    const auto key = take<endpoint_key>(data, size);
    check_endpoint(key, take<endpoint>(data, size));
    const auto allowed = take<allowed_source_key>(data, size);
    require(!to_string(ctl::allowed_prefix(allowed)).empty());
    const auto path = take<path_key>(data, size);
    require(!ctl::socket_words(path.peer, path.peer_port).empty());
    return 0;
}
