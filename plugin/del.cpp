// SPDX-License-Identifier: MIT
#include "plugin/remove.hpp"
#include "plugin/verbs.hpp"

namespace podlane {

Result<std::string> del(const cni::Request &request) {
    TRY(remove_attachment(request));
    return std::string{};
}

} // namespace podlane
