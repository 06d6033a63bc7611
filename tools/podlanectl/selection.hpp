// Which endpoints a command is about: every option given must match.
#pragma once

#include "cli.hpp"

#include "maps/tables.hpp"

#include <optional>
#include <string>
#include <utility>

namespace podlane::ctl {

using EndpointEntry = std::pair<endpoint_key, endpoint>;

inline constexpr Opts kSelect{Opt::pod, Opt::ns, Opt::container, Opt::address, Opt::interface, Opt::network};

class Selection {
  public:
    // From the options, and from an argument that may be any of: pod, namespace/pod, container prefix, address, host
    // interface. A malformed address is a usage error.
    static Result<Selection> of(const Call &call);
    [[nodiscard]] bool matches(const EndpointEntry &entry) const;
    [[nodiscard]] bool selects_all() const { return words_.empty(); }
    // "--pod web-0 --network blue", for messages.
    [[nodiscard]] const std::string &words() const { return words_; }

  private:
    std::optional<std::string> pod_, namespace_, container_, interface_, network_, any_;
    std::optional<ip_addr> address_;
    std::string words_;
};

// Endpoints that match, by namespace, pod, container and interface. An error where a selection matches none.
Result<std::vector<EndpointEntry>> selected_endpoints(const Selection &selection, const World &world);

} // namespace podlane::ctl
