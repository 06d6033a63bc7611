// SPDX-License-Identifier: MIT
// What real runtimes sent their main plugin, sent to Podlane in its place: all of it is served.
#include "tests/netns/verbs.hpp"
#include "tests/harness/environment.hpp"

namespace podlane::test {
namespace {

class RuntimesTest : public VerbsTest, public testing::WithParamInterface<std::string> {
  protected:
    // The recorded request on this node: its plugins, its leases, and a container that exists.
    Json config_of(const Json &recorded) const {
        Json config = recorded;
        for (const char *foreign : {"bridge", "isGateway", "hairpinMode", "ipMasq", "prevResult"})
            config.erase(foreign);
        config["type"] = "podlane";
        config["bpffs"] = node_.bpffs();
        if (config.contains("ipam"))
            config["ipam"]["dataDir"] = node_.leases();
        return config;
    }
    Variables variables_of(const Json &recording, const std::string &netns) const {
        auto variables = recording["env"].get<Variables>();
        variables["CNI_PATH"] = node_.plugins();
        if (!netns.empty() && variables["CNI_COMMAND"] != "VERSION" && !variables["CNI_NETNS"].empty())
            variables["CNI_NETNS"] = netns;
        return variables;
    }
    void serve(const Json &recording) {
        const std::string command = recording["env"]["CNI_COMMAND"];
        const std::string id = recording["env"].value("CNI_CONTAINERID", "");
        SCOPED_TRACE(command + " " + id);
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
        const Reply reply = node_.cni("podlane", command, config, variables_of(recording, container->path()));
        EXPECT_EQ(reply.rc, 0) << reply;
        if (command == "ADD")
            results_[id] = reply.json;
        if (command == "DEL")
            results_.erase(id);
    }

    std::map<std::string, std::shared_ptr<Container>> containers_;
    std::map<std::string, Json> results_;
};

TEST_P(RuntimesTest, AreServed) {
    std::ifstream file(source_path("tests/unit/data/cni-requests/" + std::string(GetParam())));
    std::size_t served = 0;
    for (std::string line; std::getline(file, line);) {
        const Json recording = Json::parse(line);
        const std::string plugin = recording["plugin"];
        if (plugin != "bridge" && plugin != "ptp")
            continue;
        serve(recording);
        ++served;
    }
    EXPECT_GT(served, 0U);
    EXPECT_EQ(size_of(&open_endpoints), results_.size());
}

INSTANTIATE_TEST_SUITE_P(Recorded, RuntimesTest,
                         testing::Values("cnitool-1.1.0.jsonl", "containerd-cri-1.1.0.jsonl", "containerd-cri.jsonl",
                                         "containerd-ctr.jsonl", "podman.jsonl"),
                         [](const auto &info) {
                             std::string name = info.param;
                             std::ranges::replace_if(
                                 name, [](char c) { return c == '-' || c == '.'; }, '_');
                             return name;
                         });

} // namespace
} // namespace podlane::test
