// SPDX-License-Identifier: MIT
// Feeds hostile bytes to everything pure below plugin/cni: CNI_* lines, an empty line, then standard input.
#include "plugin/cni/error.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/cni/request.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/version.hpp"

#include "tests/fuzz/require.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using namespace podlane;

// Takes the lines up to the first empty one; what is left of `input` is standard input.
cni::Environment take_environment(std::string_view &input) {
    cni::Environment environment;
    while (!input.empty()) {
        const auto end = std::min(input.find('\n'), input.size());
        const std::string_view line = input.substr(0, end);
        input.remove_prefix(std::min(end + 1, input.size()));
        if (line.empty())
            break;
        const auto equals = std::min(line.find('='), line.size());
        environment[std::string(line.substr(0, equals))] = line.substr(std::min(equals + 1, line.size()));
    }
    return environment;
}

// Printed output can be read again, and is then printed the same.
void check_printing(const cni::Attachment &attachment) {
    for (const cni::Version version : cni::kSupportedVersions) {
        const std::string text = cni::to_json(attachment, version);
        const auto again = cni::parse_attachment(text);
        if (text.size() > (std::size_t{1} << 20U)) // longer than what is read, since printed in many lines
            continue;
        require(again.has_value());
        require(cni::to_json(*again, version) == text);
    }
}

void check_error(const Error &error) {
    require(!error.message.empty());
    require(cni::to_json(error, cni::kNewestVersion).size() < (std::size_t{1} << 24U));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    std::string_view input(reinterpret_cast<const char *>(data), size);
    const cni::Environment environment = take_environment(input);

    const auto request = cni::parse_request(environment, input);
    if (!request)
        check_error(request.error());
    else if (request->config.prev_result)
        check_printing(*request->config.prev_result);

    if (const auto version = cni::version_of(input))
        require(cni::is_supported(*version));
    if (const auto attachment = cni::parse_attachment(input))
        check_printing(*attachment);
    for (const cni::Version version : cni::kSupportedVersions)
        if (const auto rewritten = cni::with_cni_version(input, version); rewritten && rewritten->size() < 100000)
            require(cni::version_of(*rewritten) == version);
    if (const auto versions = cni::parse_version_reply(input))
        require(!versions->empty());
    check_error(cni::parse_plugin_error(input, "ipam", {ErrorCode::ipam, "exited with code 1"}));
    return 0;
}
