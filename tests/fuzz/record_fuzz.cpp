// SPDX-License-Identifier: MIT
// Feeds hostile bytes to the reader of records of attachments, held leases among them: a file may be torn, or written
// by another version. The bytes are a file, the fields of one whose checksum is right, and what a record was added to
// by.
#include "loader/record.hpp"
#include "maps/hash.hpp"
#include "tests/fuzz/require.hpp"

#include <array>
#include <cstdint>
#include <cstdio>

namespace {

using namespace podlane;

std::string whole(int version, std::string_view fields) {
    std::array<char, 80> header{};
    std::snprintf(header.data(), header.size(), "podlane-record %d %016llx", version,
                  static_cast<unsigned long long>(fnv1a_64(fields)));
    const std::string length = version == 1 ? "" : " " + std::to_string(fields.size());
    return header.data() + length + "\n" + std::string(fields);
}

// A record that was read is written, and read again, as the same.
void check(const std::string &file) {
    const auto record = parse_record(file);
    if (!record)
        return;
    require(!record->container_id.empty() && !record->ifname.empty());
    const std::string text = record_text(*record);
    const auto again = parse_record(text);
    require(again.has_value());
    require(record_text(*again) == text);
    for (const std::string &lines : {record->labels, record->annotations}) {
        const auto pairs = pairs_in(lines);
        require(pairs_in(lines_of(pairs)) == pairs);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string input(reinterpret_cast<const char *>(data), size);
    check(input);
    check(whole(1, input));
    check(whole(2, input));
    const std::string first = whole(2, "container 1\nx\nifname 1\ny\n");
    require(parse_record(first + "torn" + input).has_value());
    check(first + input);
    check(first + whole(2, input));
    return 0;
}
