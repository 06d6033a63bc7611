// SPDX-License-Identifier: MIT
// A host to run CNI plugins on: a network namespace, a directory and a bpffs of its own, all gone with the test.
#pragma once

#include "maps/tables.hpp"
#include "loader/net/netlink.hpp"
#include "tests/harness/process.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

namespace podlane::test {

using Json = nlohmann::json;

// A file that is a network namespace, as runtimes hand it to plugins, and the namespace while it lives.
class Container {
  public:
    Container(std::string id, std::string path); // makes the namespace
    ~Container();
    Container(const Container &) = delete;
    Container &operator=(const Container &) = delete;

    [[nodiscard]] const std::string &id() const { return id_; }
    [[nodiscard]] const std::string &path() const { return path_; }
    [[nodiscard]] const net::Namespace &ns() const { return *ns_; }
    std::string run(const std::string &command) const { return must_run(ns(), words(command)); } // must succeed
    // As a runtime does it when the sandbox dies; the kernel removes the namespace a moment later.
    void remove_namespace();

  private:
    std::string id_;
    std::string path_;
    std::unique_ptr<net::Namespace> ns_;
};

// The answer of a plugin; `json` is null if it printed nothing or something else.
struct Reply {
    int rc = -1;
    std::string out;
    std::string err;
    Json json;

    [[nodiscard]] int code() const { return json.is_object() ? json.value("code", -1) : -1; }
    [[nodiscard]] std::string message() const { return json.is_object() ? json.value("msg", "") : ""; }
    [[nodiscard]] std::string details() const { return json.is_object() ? json.value("details", "") : ""; }
};
std::ostream &operator<<(std::ostream &stream, const Reply &reply);

class Node {
  public:
    Node();
    ~Node();
    Node(const Node &) = delete;
    Node &operator=(const Node &) = delete;

    [[nodiscard]] const net::Namespace &ns() const { return *ns_; }
    [[nodiscard]] const std::string &dir() const { return dir_; }       // for any file of the test
    [[nodiscard]] const std::string &bpffs() const { return bpffs_; }   // for the key of that name; does not exist yet
    [[nodiscard]] std::string plugins() const { return dir_ + "/bin"; } // CNI_PATH: podlane and the real plugins
    [[nodiscard]] std::string leases() const { return dir_ + "/ipam"; } // for host-local's dataDir
    // An executable of this name in plugins(), in place of the real one of that name.
    void put_plugin(const std::string &name, const std::string &script) const;
    void remove_plugin(const std::string &name) const;

    // A command on the node, that must succeed.
    std::string run(const std::string &command, const std::string &input = {}) const {
        return must_run(ns(), words(command), input);
    }
    std::shared_ptr<Container> container(const std::string &id = {});

    // podlanectl with this node's bpffs.
    [[nodiscard]] Output podlanectl(const std::vector<std::string> &arguments) const;
    [[nodiscard]] Output podlanectl(const std::string &arguments) const { return podlanectl(words(arguments)); }
    // The same with --json; it must succeed.
    [[nodiscard]] Json podlanectl_json(const std::string &arguments) const;
    // The same for people, of each of the lists: for the log of a test that fails.
    void show(const std::vector<std::string> &lists) const;

    // CNI_COMMAND and CNI_PATH are set; all else is in `environment`.
    [[nodiscard]] Reply cni(const std::string &plugin, const std::string &command, const Json &config,
                            const Variables &environment = {}) const;
    [[nodiscard]] Reply cni_text(const std::string &plugin, const std::string &command, const std::string &config,
                                 const Variables &environment = {}) const;
    // With the variables of an attachment.
    [[nodiscard]] Reply cni(const std::string &command, const Json &config, const Container &container,
                            const Variables &more = {}) const;

    // Podlane as the main plugin, with host-local for both families; `keys` are put on top (null removes a key).
    [[nodiscard]] Json config(const Json &keys = Json::object()) const;
    [[nodiscard]] Json ipam() const; // host-local's part of it

    // Everything a DEL must have removed, as text to compare: links, addresses, routes, rules, permanent neighbours,
    // qdiscs, map entries, pins of links, records on disk and leases. An absent bpffs directory has no entries.
    [[nodiscard]] std::string state() const;
    // Files that keep attachments of this node's on disk.
    [[nodiscard]] std::vector<std::string> records() const;
    // Files of host-local's that name an address.
    [[nodiscard]] std::vector<std::string> leased() const;
    // The programs' counters of one of its interfaces.
    [[nodiscard]] struct count counted(std::uint32_t ifindex, reason why) const;
    [[nodiscard]] struct count counted(const std::string &ifname, reason why) const;

  private:
    std::string dir_;
    std::string bpffs_;
    std::unique_ptr<net::Namespace> ns_;
    int containers_ = 0;
};

// The reference plugin `portmap`'s: this port of the node leads to that of the pod, by TCP and UDP.
inline Json port_mappings(std::uint16_t host, std::uint16_t container) {
    Json mappings = Json::array();
    for (const char *protocol : {"tcp", "udp"})
        mappings.push_back({{"hostPort", host}, {"containerPort", container}, {"protocol", protocol}});
    return {{"portMappings", mappings}};
}

// The output of a plugin, also as JSON if it is any.
Reply to_reply(Output output);

// The variables a runtime sets for an attachment.
Variables attachment(const Container &container, const std::string &ifname = "eth0");

bool kernel_can_tcx();

// For suites with both ways to attach programs as their parameter.
inline auto both_ways_to_attach() { return testing::Values("clsact", "tcx"); }
inline std::string way_to_attach(const testing::TestParamInfo<std::string> &info) { return info.param; }

} // namespace podlane::test
