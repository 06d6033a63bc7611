// SPDX-License-Identifier: MIT
#include "value.hpp"

#include <nlohmann/json.hpp>

namespace podlane::output {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Value &value);

struct Convert {
    Json operator()(const Array &items) const {
        Json array = Json::array();
        for (const Value &item : items)
            array.push_back(to_json(item));
        return array;
    }
    Json operator()(const Object &members) const {
        Json object = Json::object();
        for (const auto &[name, member] : members)
            object[name] = to_json(member);
        return object;
    }
    template <typename Scalar> Json operator()(const Scalar &scalar) const { return Json(scalar); }
};

Json to_json(const Value &value) { return std::visit(Convert{}, value.data); }

} // namespace

std::string json_text(const Value &value) {
    return to_json(value).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace podlane::output
