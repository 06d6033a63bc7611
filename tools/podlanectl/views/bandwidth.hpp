// SPDX-License-Identifier: MIT
// The limits of endpoints, and the limiters of this kernel.
#pragma once

#include "loader/limit.hpp"
#include "maps/tables.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <string>

namespace podlane::ctl {

// The limit states of the selected endpoints; with no selection, also those of endpoints that are gone.
Result<output::Table> limit_state_table(const Selection &selection, const World &world);
// The limiters this kernel supports, as "pace, edt, bucket".
Result<std::string> limiters_words(const World &world);

// Completes a change of the endpoint's limits that was killed before its flags were set.
Result<void> enforce_limits(const std::string &root, const endpoint_key &key);

// Fails if none of --ingress, --egress and their bursts is given; `example` is of a verb's arguments.
Result<void> require_rate(const Call &call, const std::string &verb, const std::string &example);
// Says on standard error which of the rates may have been meant in another unit.
Result<void> warn_of_rates(const Call &call, const World &world);
// The values of these options; values that are not given stay.
Result<void> read_rates(const Call &call, bandwidth &limits);

// Limits that pods share.
// Fails if the pod would have no limit of its own any more in a direction in which its group has a rate: it would not
// be held to the group's either.
Result<void> refuse_to_leave_group(const LimitTables &tables, const EndpointEntry &pod, const bandwidth &now,
                                   const bandwidth &limits, const World &world);
Result<int> limit_group_list(const Call &call, World &world);
Result<int> limit_group_set(const Call &call, World &world);

} // namespace podlane::ctl
