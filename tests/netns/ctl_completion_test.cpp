// SPDX-License-Identifier: MIT
// podlanectl in the shells: completion scripts that the shells take, and a manual page without a complaint.
#include "tests/harness/outcome.hpp"

namespace podlane::test {
namespace {

std::string ctl() { return std::getenv("PODLANECTL_BIN"); }

class CompletionTest : public testing::Test {
  protected:
    [[nodiscard]] std::string shell(const std::string &name, const std::string &script) const {
        const Output output = run(here_, {name, "-c", script});
        EXPECT_EQ(output.rc, 0) << output.err;
        EXPECT_EQ(output.err, "");
        return output.out;
    }
    static bool has(const std::string &path) {
        struct stat facts {};
        return stat(path.c_str(), &facts) == 0;
    }

    net::Namespace here_ = require(net::Namespace::current());
};

TEST_F(CompletionTest, BashCompletesObjectsVerbsAndOptions) {
    const auto complete = [&](const std::string &typed) {
        return shell("bash", "source <('" + ctl() + "' completion bash); COMP_WORDS=(podlanectl " + typed +
                                 "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _podlanectl; echo \" ${COMPREPLY[*]} \"");
    };
    EXPECT_EQ(complete("end"), " endpoint \n");
    EXPECT_EQ(complete("uplink ''"), " list sync detach \n");
    EXPECT_EQ(complete("--json uplink d"), " detach \n");
    EXPECT_EQ(complete("map ge"), " get \n");
    EXPECT_EQ(complete("map get paths --names"), " --namespace \n");
    EXPECT_EQ(complete("path flush --a"), " --address --all \n");
    EXPECT_EQ(complete("endpoint show --reas"), "  \n");
}

TEST_F(CompletionTest, ZshTakesItsScript) {
    if (!has("/usr/bin/zsh"))
        GTEST_SKIP() << "zsh is not installed (tools/setup)";
    EXPECT_EQ(shell("zsh", "autoload -U compinit && compinit -D -u && source <('" + ctl() +
                               "' completion zsh) && echo ${_comps[podlanectl]}"),
              "_podlanectl\n");
}

TEST_F(CompletionTest, FishCompletesObjectsAndVerbs) {
    if (!has("/usr/bin/fish"))
        GTEST_SKIP() << "fish is not installed (tools/setup)";
    const auto complete = [&](const std::string &typed) {
        return shell("fish", "'" + ctl() + "' completion fish | source; complete -C 'podlanectl " + typed + "'");
    };
    EXPECT_THAT(complete("end"), HasSubstr("endpoint\t"));
    EXPECT_THAT(complete("uplink det"), HasSubstr("detach\t"));
}

TEST_F(CompletionTest, TheManualPageIsComplete) {
    const Output page = run(here_, {"bash", "-c", "'" + ctl() + "' man | groff -man -Tutf8 -ww -rLL=100n | col -bx"});
    ASSERT_EQ(page.rc, 0);
    EXPECT_EQ(page.err, "");
    EXPECT_THAT(page.out, has_all({"endpoint list [WHICH]", "map get MAP [KEY]...",
                                   "addresses      [NETWORK] ADDRESS\n", "--network NAME", "EXIT STATUS"}));
}

} // namespace
} // namespace podlane::test
