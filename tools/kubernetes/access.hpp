// SPDX-License-Identifier: MIT
// Where the API server is, and what it and we prove who we are by.
#pragma once

#include "maps/result.hpp"

#include <functional>
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
// The same of its text; `read_file` reads the files that it names.
using ReadFile = std::function<Result<std::string>(const std::string &path)>;
Result<Access> parse_kubeconfig(const std::string &text, const std::string &path, const ReadFile &read_file);
Result<Access> read_service_account(const std::string &server, const std::string &token_file,
                                    const std::string &ca_file);

} // namespace podlane::k8s
