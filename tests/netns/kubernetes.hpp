// SPDX-License-Identifier: MIT
// The real podlane-k8s beside the plugin, and an HTTPS server that answers well and badly.
#pragma once

#include "tests/harness/cluster.hpp"
#include "tests/netns/ctl.hpp"
#include "tests/harness/environment.hpp"

namespace podlane::test {

inline constexpr const char *kToken = "a-token-of-the-test";

class KubernetesTest : public CtlTest {
  protected:
    void SetUp() override {
        const std::string program = variable("PODLANE_K8S_BIN");
        if (!std::filesystem::exists(program))
            GTEST_SKIP() << "podlane-k8s is not built";
        std::filesystem::create_symlink(program, node_.plugins() + "/podlane-k8s");
        make_authority("ca");
        make_authority("other-ca");
        make_certificate("server", "-addext subjectAltName=IP:127.0.0.1");
        make_certificate("podlane", "");
        write("token", std::string(kToken) + "\n");
        serve(path("server.pem"), path("server.key"));
    }
    [[nodiscard]] std::string path(const std::string &name) const { return node_.dir() + "/" + name; }
    void write(const std::string &name, const std::string &text) const { std::ofstream(path(name)) << text; }

    void serve(const std::string &certificate, const std::string &key) {
        server_.reset();
        std::filesystem::remove(path("port"));
        server_ = std::make_unique<Daemon>(
            node_.ns(),
            std::vector<std::string>{"/usr/bin/python3", source_path("tests/netns/api_server.py"), path("port"),
                                     path("requests"), certificate, key, path("ca.pem")},
            path("server.log"));
        if (!wait_until([&] { return std::filesystem::exists(path("port")); }))
            throw std::runtime_error("the server does not start: " + node_.run("cat " + path("server.log")));
        url_ = "https://127.0.0.1:" + read_file(path("port"));
    }
    void make_authority(const std::string &name) const {
        node_.run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=" + name +
                  " -keyout " + path(name + ".key") + " -out " + path(name + ".pem"));
    }
    void make_certificate(const std::string &name, const std::string &more) const {
        node_.run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name + " " + more +
                  " -keyout " + path(name + ".key") + " -out " + path(name + ".csr"));
        node_.run("openssl x509 -req -days 1 -copy_extensions copy -in " + path(name + ".csr") + " -CA " +
                  path("ca.pem") + " -CAkey " + path("ca.key") + " -CAcreateserial -out " + path(name + ".pem"));
    }
    [[nodiscard]] Json account() const {
        return {{"server", url_}, {"tokenFile", path("token")}, {"caFile", path("ca.pem")}};
    }
    [[nodiscard]] Json keys(const Json &more = Json::object(), const Json &of_server = Json::object()) const {
        Json server = account();
        server.update(of_server);
        Json all = {{"identity", {"kubernetes"}},
                    {"kubernetes", server},
                    {"groups", {"label:tenant", "annotation:app"}},
                    {"podMay", {"mtu"}},
                    {"log", {{"file", path("log")}, {"level", "debug"}}}};
        all.update(more);
        return all;
    }
    [[nodiscard]] std::size_t requests() const {
        const std::string all = std::filesystem::exists(path("requests")) ? read_file(path("requests")) : "";
        return static_cast<std::size_t>(std::ranges::count(all, '\n'));
    }
    // Of a kubeconfig; the user as YAML.
    [[nodiscard]] std::string kubeconfig(const std::string &user, const std::string &cluster = "") const {
        return "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
               "contexts:\n- name: here\n  context: {cluster: c, user: u}\n"
               "clusters:\n- name: c\n  cluster:\n    server: " +
               url_ + "/\n    certificate-authority: ca.pem\n" + cluster + "users:\n- name: u\n  user:\n" + user;
    }

    std::unique_ptr<Daemon> server_;
    std::string url_;
};

} // namespace podlane::test
