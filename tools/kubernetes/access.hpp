// SPDX-License-Identifier: MIT
// Where the API server is, and what it and we prove who we are by.
#pragma once

#include "maps/result.hpp"

#include <string>

namespace podlane::k8s {

// Certificates and keys are PEM texts.
struct Access {
    std::string server; // https://HOST:PORT, and a path; no '/' at its end
    std::string token;
    std::string ca;
    std::string certificate, key;
};

// Of the current context. A setting that would weaken the check of the server's certificate, runs another program or
// needs a password is an error that names it.
Result<Access> read_kubeconfig(const std::string &path);
Result<Access> read_service_account(const std::string &server, const std::string &token_file,
                                    const std::string &ca_file);

} // namespace podlane::k8s
