// SPDX-License-Identifier: MIT
// A call that runs out of memory ends with an error that its runtime can read.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

class NoMemoryTest : public VerbsTest {};

TEST_F(NoMemoryTest, ACallSaysThatItHasNoneLeft) {
    const Pod made = make();
    bool is_met = false;
    for (const std::string verb : {"CHECK", "GC", "DEL"}) {
        Json config = gc_config({&made});
        config["prevResult"] = made.result;
        Variables variables = verb == "GC" ? Variables{} : attachment(*made.container);
        variables.insert({{"CNI_COMMAND", verb}, {"CNI_PATH", node_.plugins()}});
        // Below, the kernel starts no process; above, the call succeeds.
        for (int kilobytes = 5400; kilobytes <= 6400; kilobytes += 20) {
            const Output output =
                run(node_.ns(),
                    words("prlimit --as=" + std::to_string(kilobytes * 1024) + " " + node_.plugins() + "/podlane"),
                    config.dump(), variables);
            EXPECT_THAT(output.err, Not(HasSubstr("terminate called"))) << verb << " with " << kilobytes << " kB";
            if (output.out.find("no memory left") == std::string::npos)
                continue;
            is_met = true;
            EXPECT_EQ(output.rc, 1);
            EXPECT_EQ(Json::parse(output.out).at("code"), 11);
        }
    }
    EXPECT_TRUE(is_met);
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_TRUE(node_.records().empty());
}

} // namespace
} // namespace podlane::test
