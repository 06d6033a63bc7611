// SPDX-License-Identifier: MIT
// Collects the errors of steps that all run even if some of them fail.
#pragma once

#include "maps/result.hpp"

#include <optional>
#include <utility>

namespace podlane {

// Reports the first error; the messages of later ones are appended to it, each once.
class Errors {
  public:
    template <typename T> void add(Result<T> done) {
        if (done)
            return;
        if (!first_)
            first_ = std::move(done).error();
        else if (first_->message.find(done.error().message) == std::string::npos)
            first_->message += "; " + done.error().message;
    }
    void add(Error error) { add(Result<void>(std::move(error))); }

    [[nodiscard]] bool none() const { return !first_; }
    [[nodiscard]] Result<void> result() && {
        if (first_)
            return *std::move(first_);
        return {};
    }

  private:
    std::optional<Error> first_;
};

} // namespace podlane
