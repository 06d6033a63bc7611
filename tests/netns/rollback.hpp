// SPDX-License-Identifier: MIT
// Common parts of the tests of ADDs that fail.
#pragma once

#include "tests/netns/verbs.hpp"

namespace podlane::test {

class RollbackTest : public VerbsTest {
  protected:
    // The node is prepared, and the network known, by an ADD and DEL that went well.
    void prepare(const Json &keys = Json::object()) {
        auto container = node_.container();
        ASSERT_THAT(add(*container, keys), succeeds());
        ASSERT_EQ(del(*container, keys).rc, 0);
    }
    // Podlane's configuration, chained after the plugin with this result.
    [[nodiscard]] Json behind(const Json &result) const {
        return {{"cniVersion", "1.0.0"},
                {"name", "pods"},
                {"type", "podlane"},
                {"bpffs", node_.bpffs()},
                {"prevResult", result}};
    }
    Reply expect_refused(const Container &container, const Json &keys = Json::object()) {
        container.run("ip link set lo up"); // as any ADD leaves it
        const std::string before = node_.state();
        const std::string pod_before =
            container.run("ip -o link") + container.run("ip route") + container.run("ip neigh");
        const Reply reply = add(container, keys);
        EXPECT_EQ(reply.rc, 1) << reply;
        EXPECT_EQ(node_.state(), before);
        EXPECT_EQ(container.run("ip -o link") + container.run("ip route") + container.run("ip neigh"), pod_before);
        return reply;
    }
    // An IPAM plugin that says `result` at ADD, and writes a file for each DEL.
    void put_ipam(const std::string &result) const {
        node_.put_plugin("fake-ipam", "#!/bin/sh\n"
                                      "[ \"$CNI_COMMAND\" = ADD ] && echo '" +
                                          result + "' && exit 0\n" + "echo \"$CNI_COMMAND\" >>" + node_.dir() +
                                          "/asked\n");
    }
    // A PATH on which nft is `script`.
    [[nodiscard]] std::string failing_nft(const std::string &script) const {
        const std::string directory = node_.dir() + "/fake";
        run(node_.ns(), {"sh", "-c",
                         "mkdir -p " + directory + " && printf '#!/bin/sh\\n" + script + "\\n' >" + directory +
                             "/nft && chmod +x " + directory + "/nft"});
        return directory + ":/usr/sbin:/usr/bin:/sbin:/bin";
    }
    [[nodiscard]] std::string asked() const { return run(node_.ns(), {"cat", node_.dir() + "/asked"}).out; }
    [[nodiscard]] Json with_fake_ipam() const {
        return {{"ipam", {{"type", "fake-ipam"}, {"dataDir", nullptr}, {"ranges", nullptr}}}};
    }
};

} // namespace podlane::test
