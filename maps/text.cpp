// SPDX-License-Identifier: MIT
#include "text.hpp"

namespace podlane {

std::string join(const std::vector<std::string> &items, std::string_view separator) {
    std::string text;
    for (const std::string &item : items) {
        if (!text.empty())
            text += separator;
        text += item;
    }
    return text;
}

} // namespace podlane
