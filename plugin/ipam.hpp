// SPDX-License-Identifier: MIT
// Delegation to the IPAM plugin (CNI spec 1.1.0, section 4). Its output is untrusted.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <optional>

namespace podlane::ipam {

// Each finds the plugin named in "ipam" on CNI_PATH and runs it with this process's environment. A plugin that does
// not support the configuration's version is queried for its versions, and called again in the newest that both know.
// A lease that this attachment holds already, from an ADD that was killed, is released and requested again. `killed`
// is set if a lease may be left that nobody can name: the plugin did not end by itself, or has released neither that
// lease nor one that cannot be read.
Result<cni::Attachment> add(const cni::Request &request, bool &killed);
Result<void> remove(const cni::Request &request); // CNI DEL: releases the lease
// `refused` is set if the plugin ended by itself, with a CNI error other than those that say to try again.
Result<void> remove(const cni::Request &request, bool &refused);
// Of a plugin that is not there, or not to be executed.
[[nodiscard]] std::optional<Error> why_missing(const cni::Request &request);
// An error with the IPAM plugin of an earlier configuration, behind that of the present one if it cannot be run.
[[nodiscard]] Error with_present_cause(const cni::Request &request, Error earlier);
Result<void> check(const cni::Request &request);
// STATUS and GC came with 1.1.0: with an older plugin they end well when the plugin is there at all.
Result<void> status(const cni::Request &request);
Result<void> gc(const cni::Request &request);

} // namespace podlane::ipam
