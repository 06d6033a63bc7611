// SPDX-License-Identifier: MIT
// Text from outside is printed on one line, and obeyed by no terminal.
#include "maps/printable.hpp"
#include "tests/harness/test.hpp"

namespace podlane {
namespace {

TEST(Printable, LeavesLettersOfAnyLanguage) {
    for (const std::string text : {"", "web-0", "a=b;\"c\" \\", "straße", "日本", "😀", "…"}) {
        EXPECT_TRUE(is_printable(text)) << text;
        EXPECT_EQ(printable(text), text);
    }
}

TEST(Printable, ReplacesWhatATerminalOrALogObeys) {
    EXPECT_EQ(printable("a\nb"), "a?b");
    EXPECT_EQ(printable(std::string("a\0b\x7f", 4)), "a?b?");
    EXPECT_EQ(printable("\033[31mred"), "?[31mred");
    EXPECT_EQ(printable("a\xc2\x9b"
                        "31m"),
              "a??31m");                               // CSI in one character (C1)
    EXPECT_EQ(printable("\xe2\x80\xaetxt"), "???txt"); // right-to-left override
    EXPECT_EQ(printable("\xe2\x80\x8bx"), "???x");     // zero width space
    EXPECT_EQ(printable("\xef\xbb\xbfx"), "???x");     // byte order mark
}

TEST(Printable, ReplacesWhatIsNoUtf8) {
    EXPECT_EQ(printable("\xff"), "?");
    EXPECT_EQ(printable("a\xc3"), "a?");                 // cut short
    EXPECT_EQ(printable("\xc0\x8a"), "??");              // a longer form of a line feed
    EXPECT_EQ(printable("\xed\xa0\x80"), "???");         // a surrogate
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");    // beyond Unicode
    EXPECT_EQ(printable("\xc3(\xc3\xa4"), "?(\xc3\xa4"); // goes on with the next character
}

} // namespace
} // namespace podlane
