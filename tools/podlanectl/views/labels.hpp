// SPDX-License-Identifier: MIT
// Records of a pod beside its endpoint: labels, annotations, the node's name; and --selector by them.
#pragma once

#include "loader/record.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

// As in kubectl: "app=web", "app==web", "tier!=db", "app", "!app", separated by commas; all must hold.
class LabelSelector {
  public:
    static Result<LabelSelector> parse(std::string_view text); // a malformed one is a usage error
    // By labels, and by annotations if there is no label of the key.
    [[nodiscard]] bool matches(const AttachmentRecord &record) const;

  private:
    struct Requirement {
        std::string key;
        std::string value{};
        bool any_value = false;
        bool negated = false;
    };
    std::vector<Requirement> all_;
};

// One without labels if there is none on disk.
Result<AttachmentRecord> recorded(const AttachmentRecords &records, const EndpointEntry &entry);

// The value that a selector finds for the key: a label, or else an annotation.
struct SaidOfPod {
    bool is_label = false;
    std::string value;
};
std::optional<SaidOfPod> said_of(const AttachmentRecord &record, std::string_view key);
// Of "app,team"; a malformed one is a usage error.
Result<std::set<std::string>> parse_label_keys(std::string_view text);

std::vector<std::string> recorded_groups(const AttachmentRecord &record);

// The columns of what is recorded, a row for each endpoint.
Result<output::Table> recorded_table(const std::vector<EndpointEntry> &entries, const std::string &state_directory,
                                     const World &world);

} // namespace podlane::ctl
