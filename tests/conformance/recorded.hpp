// SPDX-License-Identifier: MIT
// Requests recorded from runtimes, made again on this node: Podlane in the place of the plugin they were for.
#pragma once

#include "tests/harness/environment.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {

inline std::vector<Json> recordings(const std::string &file) {
    std::ifstream stream(source_path("tests/unit/data/cni-requests/" + file));
    std::vector<Json> all;
    for (std::string line; std::getline(stream, line);)
        all.push_back(Json::parse(line));
    return all;
}

class RecordedTest : public CtlTest {
  protected:
    // With this node's plugins and leases, a container that exists, and what Podlane answered to the ADD.
    Reply repeat(const Json &recording) {
        const std::string command = recording["env"]["CNI_COMMAND"];
        const std::string id = recording["env"].value("CNI_CONTAINERID", "");
        auto &container = containers_[id];
        if (!container)
            container = node_.container(id.empty() ? "none" : id);
        Json config = config_of(recording["stdin"]);
        if (command == "CHECK" && !results_.contains(id)) { // its ADD was not recorded
            Variables add = variables_of(recording, container->path());
            add["CNI_COMMAND"] = "ADD";
            results_[id] = node_.cni("podlane", "ADD", config, add).json;
        }
        if (recording["stdin"].contains("prevResult") && results_.contains(id))
            config["prevResult"] = results_[id];
        Reply reply = node_.cni("podlane", command, config, variables_of(recording, container->path()));
        if (command == "ADD" && reply.rc == 0)
            results_[id] = reply.json;
        if (command == "DEL")
            results_.erase(id);
        if (command == "GC" && reply.rc == 0)
            std::erase_if(results_, [&](const auto &one) {
                return find(config["cni.dev/valid-attachments"], "containerID", one.first).is_null();
            });
        return reply;
    }

    std::map<std::string, std::shared_ptr<Container>> containers_; // by the recorded ID
    std::map<std::string, Json> results_;                          // of those that are attached

  private:
    [[nodiscard]] Json config_of(const Json &recorded) const {
        Json config = recorded;
        for (const char *foreign : {"bridge", "isGateway", "hairpinMode", "ipMasq", "prevResult"})
            config.erase(foreign);
        config["type"] = "podlane";
        config["bpffs"] = node_.bpffs();
        if (config.contains("ipam"))
            config["ipam"]["dataDir"] = node_.leases();
        return config;
    }
    [[nodiscard]] Variables variables_of(const Json &recording, const std::string &netns) const {
        auto variables = recording["env"].get<Variables>();
        variables["CNI_PATH"] = node_.plugins();
        if (!netns.empty() && variables["CNI_COMMAND"] != "VERSION" && !variables["CNI_NETNS"].empty())
            variables["CNI_NETNS"] = netns;
        return variables;
    }
};

} // namespace podlane::test
