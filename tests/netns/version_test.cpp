// SPDX-License-Identifier: MIT
// VERSION and a call by hand need nothing and change nothing.
#include "maps/version.hpp"
#include "tests/harness/outcome.hpp"

namespace podlane::test {
namespace {

const Json kVersions = {"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"};

TEST(Version, NamesEveryVersionInTheCallersForm) {
    const Node node;
    for (const std::string version : {"0.1.0", "0.4.0", "1.0.0", "1.1.0"}) {
        const Reply reply = node.cni("podlane", "VERSION", Json{{"cniVersion", version}});
        EXPECT_EQ(reply.rc, 0) << reply;
        EXPECT_THAT(reply.json, has_members({{"cniVersion", version}, {"supportedVersions", kVersions}}));
        EXPECT_EQ(reply.err, "");
    }
}

// podman and CRI-O ask with CNI_NETNS=dummy and the like; libcni of old without any configuration.
TEST(Version, AnswersInOddEnvironments) {
    const Node node;
    for (const Variables &odd :
         {Variables{
              {"CNI_NETNS", "dummy"}, {"CNI_IFNAME", "dummy"}, {"CNI_PATH", "dummy"}, {"CNI_CONTAINERID", "dummy"}},
          Variables{{"CNI_PATH", ""}}, Variables{{"CNI_ARGS", "no pairs"}}})
        EXPECT_EQ(node.cni_text("podlane", "VERSION", R"({"cniVersion":"1.0.0"})", odd).json["supportedVersions"],
                  kVersions);
    EXPECT_EQ(node.cni_text("podlane", "VERSION", "").rc, 0);
    EXPECT_FALSE(std::filesystem::exists(node.bpffs()));
}

TEST(Version, ByHandItSaysWhatItIsAndPrintsItsVersion) {
    const Node node;
    const Output alone = run(node.ns(), {node.plugins() + "/podlane"});
    EXPECT_EQ(alone.rc, 0);
    EXPECT_EQ(alone.out, "");
    EXPECT_THAT(alone.err, has_all({"podlane ", "CNI_COMMAND", "podlanectl"}));
    const Output asked = run(node.ns(), {node.plugins() + "/podlane", "--version"});
    EXPECT_EQ(asked.rc, 0);
    EXPECT_EQ(asked.out, "podlane " + std::string(kVersion) + "\n");
    EXPECT_EQ(asked.err, "");
}

} // namespace
} // namespace podlane::test
