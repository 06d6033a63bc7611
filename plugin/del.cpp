#include "maps/errors.hpp"
#include "plugin/ipam.hpp"
#include "plugin/remove.hpp"
#include "plugin/verbs.hpp"

namespace podlane {

// The lease is released even if the rest fails: a runtime repeats a failed DEL, but not forever.
Result<std::string> del(const cni::Request &request) {
    Errors errors;
    errors.add(remove_attachment(request));
    if (!request.config.ipam_type.empty())
        errors.add(ipam::remove(request));
    TRY(std::move(errors).result());
    return std::string{};
}

} // namespace podlane
