// SPDX-License-Identifier: MIT
// Feeds hostile bytes to the reader of the settings that uninstall restores: the state directory may be anybody's. What
// it returns is written below /proc/sys.
#include "loader/changed_setting.hpp"
#include "tests/fuzz/require.hpp"

#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace podlane;
    constexpr std::string_view kBoot = "boot";
    const std::string input(reinterpret_cast<const char *>(data), size);
    for (const std::string &file : {input, std::string(kBoot) + "\n" + input}) {
        const auto all = settings_in(file, kBoot);
        if (!all)
            continue;
        for (const ChangedSetting &one : *all)
            for (const std::string &part : one.path())
                require(!part.empty() && part != "." && part != ".." && part.find('/') == std::string::npos);
        const std::string text = settings_text(*all, kBoot);
        const auto again = settings_in(text, kBoot);
        require(again && settings_text(*again, kBoot) == text);
    }
    return 0;
}
