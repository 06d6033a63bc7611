// SPDX-License-Identifier: MIT
// Additions to files of the state directory: whole or not at all.
#include "loader/state_file.hpp"
#include "tests/harness/test.hpp"

#include <sys/resource.h>

namespace podlane {
namespace {

class StateFileTest : public testing::Test {
  protected:
    StateFileTest() {
        std::string directory = fs::temp_directory_path() / "podlane-test-XXXXXX";
        if (mkdtemp(directory.data()) == nullptr)
            throw std::runtime_error("mkdtemp");
        directory_ = directory;
        path_ = directory + "/file";
        std::ofstream(path_) << "before";
    }
    ~StateFileTest() override { fs::remove_all(directory_); }
    [[nodiscard]] std::string text() const {
        std::ifstream file(path_);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    std::string directory_, path_;
};

// No file of this process may grow beyond some bytes of the addition, as on a disk that becomes full.
TEST_F(StateFileTest, AFailedAdditionLeavesNoPartOfIt) {
    (void)std::signal(SIGXFSZ, SIG_IGN);
    struct rlimit before {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small { 9, before.rlim_max };
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const auto added = append_to_file(path_, ", after");
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_FALSE(added);
    EXPECT_THAT(added.error().message, HasSubstr("writing " + path_ + ": File too large"));
    EXPECT_THAT(added.error().hint, HasSubstr("ulimit -f"));
    EXPECT_EQ(text(), "before");
    EXPECT_TRUE(*append_to_file(path_, ", after"));
    EXPECT_EQ(text(), "before, after");
}

TEST_F(StateFileTest, OnlyAnEndThatIsKnownIsCutOff) {
    EXPECT_TRUE(*append_to_file(path_, ", after"));
    EXPECT_FALSE(*cut_file(path_, 12, 6)) << "it has another length";
    EXPECT_EQ(text(), "before, after");
    EXPECT_TRUE(*cut_file(path_, 13, 6));
    EXPECT_EQ(text(), "before");
    EXPECT_FALSE(*cut_file(directory_ + "/none", 6, 3));
    fs::create_symlink(path_, directory_ + "/link");
    EXPECT_FALSE(cut_file(directory_ + "/link", 6, 3));
    EXPECT_EQ(text(), "before");
}

} // namespace
} // namespace podlane
