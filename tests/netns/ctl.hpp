// SPDX-License-Identifier: MIT
// podlanectl as the tests run it: beside the pods of a node, and what it answered.
#pragma once

#include "tests/netns/verbs.hpp"

namespace podlane::test {

inline std::vector<std::string> ctl_argv(const std::string &bpffs, const std::string &command) {
    std::vector<std::string> argv = words(command + " --bpffs " + bpffs);
    argv.insert(argv.begin(), std::getenv("PODLANECTL_BIN"));
    return argv;
}

class CtlTest : public VerbsTest {
  protected:
    [[nodiscard]] Output ctl(const std::string &command) const {
        return run(node_.ns(), ctl_argv(node_.bpffs(), command));
    }
    // The output with --json; the test fails if that is no JSON.
    [[nodiscard]] Json ctl_json(const std::string &command) const {
        const Output output = ctl(command + " --json");
        Json json = Json::parse(output.out, nullptr, false);
        EXPECT_FALSE(json.is_discarded()) << command << ": " << output.out << output.err;
        return json;
    }
    void on_node(const std::string &command) const { (void)must_run(node_.ns(), words(command)); }

    // Who a pod is, for those that are asked for by name.
    [[nodiscard]] static Variables named(const std::string &ns, const std::string &name) {
        return {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + ns + ";K8S_POD_NAME=" + name}};
    }
};

} // namespace podlane::test
