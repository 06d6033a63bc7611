// SPDX-License-Identifier: MIT
// A document as the log may show it.
#pragma once

#include <string>
#include <string_view>

namespace podlane::cni {

// In one line, with "(masked)" for what is no business of the log's readers: values whose name sounds like a secret, in
// lists, commands and texts too, users and passwords in URLs, keys, and kubectl's copy of a whole object. What is not a
// JSON object is described by its size.
std::string masked(std::string_view text);
// Whether a label, an annotation or a key of this name holds what the log should not.
bool sounds_secret(std::string_view name);
// Of a value.
std::string masked_text(std::string_view text);
// Of CNI_ARGS.
std::string masked_pairs(std::string_view pairs);

} // namespace podlane::cni
