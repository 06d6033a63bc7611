// SPDX-License-Identifier: MIT
// Requests to one API server, over TLS that is verified, all of them within one time limit.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/json.hpp"
#include "tools/kubernetes/access.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace podlane::k8s {

class Session {
  public:
    enum class Wants { metadata, whole_object }; // metadata alone, from servers that can
    static Result<Session> open(const Access &access, std::chrono::milliseconds limit, Wants wants);

    // An object. `path` begins with '/' and holds names that were checked. Redirects are not followed, and an answer of
    // more than 1 MiB is none.
    Result<cni::json::Value> get(const std::string &path);

  private:
    struct Handle;
    struct Close {
        void operator()(Handle *handle) const;
    };
    explicit Session(std::unique_ptr<Handle, Close> handle);
    std::unique_ptr<Handle, Close> handle_;
};

} // namespace podlane::k8s
