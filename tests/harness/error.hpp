// SPDX-License-Identifier: MIT
// An expected error of a Result, for EXPECT_THAT.
#pragma once

#include "maps/result.hpp"
#include "tests/harness/test.hpp"

namespace podlane::test {

class IsError {
  public:
    using is_gtest_matcher = void;

    IsError(std::optional<ErrorCode> code, std::vector<std::string> parts) : code_(code), parts_(std::move(parts)) {}
    template <typename T> bool MatchAndExplain(const Result<T> &result, std::ostream *out) const {
        if (result)
            return false;
        if (out != nullptr)
            *out << "code " << static_cast<int>(result.error().code) << ": " << result.error().message;
        for (const std::string &part : parts_)
            if (result.error().message.find(part) == std::string::npos)
                return false;
        return !code_ || result.error().code == *code_;
    }
    void DescribeTo(std::ostream *out) const {
        *out << "is an error";
        if (code_)
            *out << " of code " << static_cast<int>(*code_);
        for (const std::string &part : parts_)
            *out << ", says \"" << part << "\"";
    }
    void DescribeNegationTo(std::ostream *out) const { *out << "is another error, or none"; }

  private:
    std::optional<ErrorCode> code_;
    std::vector<std::string> parts_; // of the message
};

inline IsError is_error(ErrorCode code, std::vector<std::string> parts = {}) { return {code, std::move(parts)}; }
inline IsError is_error(std::vector<std::string> parts) { return {{}, std::move(parts)}; }

} // namespace podlane::test
