// SPDX-License-Identifier: MIT
#include "plugin/cni/error.hpp"

#include "plugin/cni/json.hpp"
#include "plugin/cni/version.hpp"

#include <cstring>

namespace podlane::cni {
namespace {

std::string details(const Error &error) {
    std::string text = error.hint;
    if (error.system_errno == 0)
        return text;
    if (!text.empty())
        text += "; ";
    text += "errno " + std::to_string(error.system_errno);
    if (const char *name = strerrorname_np(error.system_errno); name != nullptr)
        text.append(" ").append(name);
    return text;
}

} // namespace

std::string to_json(const Error &error, Version version) {
    json::Printable object{
        {"cniVersion", to_string(version)}, {"code", static_cast<unsigned>(error.code)}, {"msg", error.message}};
    if (std::string text = details(error); !text.empty())
        object["details"] = std::move(text);
    return json::print(object);
}

} // namespace podlane::cni
