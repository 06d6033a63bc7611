// SPDX-License-Identifier: MIT
// The endpoints a command applies to: every option given must match.
#pragma once

#include "maps/tables.hpp"
#include "tools/podlanectl/cli/cli.hpp"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace podlane::ctl {

using EndpointEntry = std::pair<endpoint_key, endpoint>;

class Selection {
  public:
    // From the options, and from an argument that may be any of: pod, namespace/pod, container prefix, address, host
    // interface. A malformed address is a usage error.
    static Result<Selection> of(const Call &call);
    // From the options alone, if the argument is something else.
    static Result<Selection> of_options(const Call &call);
    // The argument alone.
    static Selection of_word(std::string word);
    [[nodiscard]] bool matches(const EndpointEntry &entry) const;
    // Whether the argument is a whole name of the endpoint, which goes before the prefixes of container IDs.
    [[nodiscard]] bool names(const EndpointEntry &entry) const;
    [[nodiscard]] bool selects_all() const { return words_.empty(); }
    // A word that may name an interface that is not an endpoint's.
    [[nodiscard]] const std::optional<std::string> &interface() const { return interface_ ? interface_ : any_; }
    // "--pod web-0 --network blue", for messages.
    [[nodiscard]] const std::string &words() const { return words_; }
    [[nodiscard]] Error no_match() const;
    // Leaves those that --selector names, by their records on disk.
    [[nodiscard]] Result<void> keep_labelled(std::vector<EndpointEntry> &entries, const World &world) const;

  private:
    std::optional<std::string> pod_, namespace_, container_, interface_, network_, any_;
    std::optional<ip_addr> address_;
    std::optional<std::string> labels_; // --selector
    std::string state_directory_;       // of the records that have them
    std::string words_;
};

// Endpoints that match, by namespace, pod, container and interface. An error if a selection matches none.
Result<std::vector<EndpointEntry>> selected_endpoints(const Selection &selection, const World &world);

// The matching endpoints, by the ifindex and network in the entries of other maps.
class Chosen {
  public:
    static Result<Chosen> of(const Selection &selection, const World &world);
    // Whether an entry belongs to one of them or, if its ifindex is 0, to one of their networks.
    [[nodiscard]] bool has(std::uint32_t ifindex, std::uint32_t network) const;

  private:
    bool all_ = true;
    std::set<std::uint32_t> ifindexes_{}, networks_{};
};

} // namespace podlane::ctl
