// SPDX-License-Identifier: MIT
// Expected answers of a plugin or podlanectl, for EXPECT_THAT: a failure prints the whole answer.
#pragma once

#include "tests/harness/node.hpp"
#include "tests/harness/test.hpp"

namespace podlane::test {

using Parts = std::vector<std::string>; // a text has them all

void PrintTo(const Output &output, std::ostream *stream);

// Of a plugin: exit code 0; or an error of this code, its message with all of `parts`.
testing::Matcher<const Reply &> succeeds();
testing::Matcher<const Reply &> fails_with(int code, const Parts &parts = {});

// The answer of a call that must succeed, or the end of this test.
Reply succeeded(Reply reply);

// Of a program: this exit code, and all of `parts` on its standard output or its standard error.
testing::Matcher<const Output &> prints(int rc, const Parts &parts = {});
testing::Matcher<const Output &> complains(int rc, const Parts &parts = {});

// Of a text.
testing::Matcher<const std::string &> has_all(const Parts &parts);

// Of an object: these members of it, with these values.
testing::Matcher<const Json &> has_members(const std::map<std::string, Json> &members);

} // namespace podlane::test
