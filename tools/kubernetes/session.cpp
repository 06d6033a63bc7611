// SPDX-License-Identifier: MIT
#include "tools/kubernetes/session.hpp"

#include "maps/clock.hpp"
#include "maps/printable.hpp"
#include "maps/version.hpp"

#include <curl/curl.h>

#include <array>

namespace podlane::k8s {

using Clock = std::chrono::steady_clock;

struct Session::Handle {
    CURL *curl = nullptr;
    curl_slist *headers = nullptr;
    std::string server;
    Clock::time_point deadline;
    std::array<char, CURL_ERROR_SIZE> why{};
    std::string body;
};

void Session::Close::operator()(Handle *handle) const {
    curl_easy_cleanup(handle->curl);
    curl_slist_free_all(handle->headers);
    delete handle; // NOLINT(cppcoreguidelines-owning-memory): of the unique_ptr
}

namespace {

// libcurl's C calls this: an answer that is too long ends the transfer.
std::size_t take(const char *bytes, std::size_t /*one*/, std::size_t count, void *into) {
    auto &body = *static_cast<std::string *>(into);
    if (body.size() + count > cni::json::kLongestText)
        return 0;
    body.append(bytes, count);
    return count;
}

template <typename Value> bool set(CURL *curl, CURLoption option, Value value) {
    return curl_easy_setopt(curl, option, value) == CURLE_OK;
}

bool set_pem(CURL *curl, CURLoption option, const std::string &text) {
    if (text.empty())
        return true;
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): libcurl copies it
    curl_blob blob{const_cast<char *>(text.data()), text.size(), CURL_BLOB_COPY};
    return set(curl, option, &blob);
}

// Nothing but TLS to this server: no proxy, no redirect, no other protocol, no certificate authorities of the system.
bool set_transport(CURL *curl, const Access &access) {
    return set(curl, CURLOPT_PROTOCOLS_STR, "https") && set(curl, CURLOPT_FOLLOWLOCATION, 0L) &&
           set(curl, CURLOPT_PROXY, "") && set(curl, CURLOPT_NOSIGNAL, 1L) && set(curl, CURLOPT_PATH_AS_IS, 1L) &&
           set(curl, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1}) &&
           set(curl, CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2}) && set(curl, CURLOPT_SSL_VERIFYPEER, 1L) &&
           set(curl, CURLOPT_SSL_VERIFYHOST, 2L) && set(curl, CURLOPT_CAPATH, nullptr) &&
           set_pem(curl, CURLOPT_CAINFO_BLOB, access.ca) && set_pem(curl, CURLOPT_SSLCERT_BLOB, access.certificate) &&
           set_pem(curl, CURLOPT_SSLKEY_BLOB, access.key);
}

Error unexpected(long status, const std::string &path) {
    const std::string what = "GET " + path + ": the API server answered " + std::to_string(status);
    constexpr long kUnauthorized = 401;
    constexpr long kForbidden = 403;
    constexpr long kNotFound = 404;
    if (status == kUnauthorized)
        return {ErrorCode::try_again_later, what + " (Unauthorized)", "the token or the certificate is not accepted"};
    if (status == kForbidden)
        return {ErrorCode::try_again_later, what + " (Forbidden)", "grant the verb get on pods, namespaces and nodes"};
    if (status == kNotFound)
        return {ErrorCode::try_again_later, what + " (Not Found)"};
    if (status >= 300 && status < 400) // NOLINT(cppcoreguidelines-avoid-magic-numbers): as in RFC 9110
        return {ErrorCode::try_again_later, what + ", a redirect, which is not followed"};
    return {ErrorCode::try_again_later, what};
}

} // namespace

Session::Session(std::unique_ptr<Handle, Close> handle) : handle_(std::move(handle)) {}

Result<Session> Session::open(const Access &access, std::chrono::milliseconds limit, Wants wants) {
    std::unique_ptr<Handle, Close> handle(new Handle);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        handle->curl = curl_easy_init();
    handle->server = access.server;
    handle->deadline = Clock::now() + limit;
    handle->headers = curl_slist_append(
        nullptr, wants == Wants::metadata
                     ? "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
                     : "Accept: application/json");
    if (!access.token.empty())
        handle->headers = curl_slist_append(handle->headers, ("Authorization: Bearer " + access.token).c_str());
    CURL *const curl = handle->curl;
    if (curl == nullptr || handle->headers == nullptr || !set_transport(curl, access) ||
        !set(curl, CURLOPT_HTTPHEADER, handle->headers) || !set(curl, CURLOPT_ERRORBUFFER, handle->why.data()) ||
        !set(curl, CURLOPT_USERAGENT, ("podlane-k8s/" + std::string(kVersion)).c_str()) ||
        !set(curl, CURLOPT_WRITEFUNCTION, &take) || !set(curl, CURLOPT_WRITEDATA, &handle->body))
        return Error{ErrorCode::internal, "libcurl cannot be set up"};
    return Session(std::move(handle));
}

Result<cni::json::Value> Session::get(const std::string &path) {
    const long left = milliseconds_until(handle_->deadline);
    handle_->body.clear();
    handle_->why.front() = '\0';
    if (left == 0 || !set(handle_->curl, CURLOPT_URL, (handle_->server + path).c_str()) ||
        !set(handle_->curl, CURLOPT_TIMEOUT_MS, left))
        return Error{ErrorCode::try_again_later, "GET " + path + ": no time is left"};
    if (const CURLcode code = curl_easy_perform(handle_->curl); code != CURLE_OK) {
        const char *const words = handle_->why.front() != '\0' ? handle_->why.data() : curl_easy_strerror(code);
        return Error{ErrorCode::try_again_later,
                     "GET " + path + ": " +
                         (code == CURLE_WRITE_ERROR ? "the answer is longer than 1 MiB" : printable(words))};
    }
    long status = 0;
    constexpr long kOk = 200;
    curl_easy_getinfo(handle_->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != kOk)
        return unexpected(status, path);
    return cni::json::parse_object(handle_->body, "GET " + path + ": the answer");
}

} // namespace podlane::k8s
