#include "plugin/ipam.hpp"
#include "plugin/remove.hpp"
#include "plugin/verbs.hpp"

namespace podlane {

// The lease goes back even where the rest fails: a runtime repeats a failed DEL, but not for ever.
Result<std::string> del(const cni::Request &request) {
    auto removed = remove_attachment(request);
    auto returned = request.config.ipam_type.empty() ? Result<void>{} : ipam::remove(request);
    if (!removed && !returned)
        removed.error().message += "; " + returned.error().message;
    if (!removed)
        return std::move(removed).error();
    if (!returned)
        return std::move(returned).error();
    return std::string{};
}

} // namespace podlane
