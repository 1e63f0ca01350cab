#include "trainer/base/text.h"

#include <string>

#include "gtest/gtest.h"

namespace lenet {
namespace {

TEST(ValidUtf8Test, KeepsWhatIsValidAndReplacesTheRest) {
  const std::string valid = "plain, \xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x98\x80";
  EXPECT_EQ(ValidUtf8(valid), valid);
  EXPECT_EQ(ValidUtf8(""), "");
  EXPECT_EQ(ValidUtf8("a\xFFz"), "a?z");
  EXPECT_EQ(ValidUtf8("\xC3"), "?");                 // cut off
  EXPECT_EQ(ValidUtf8("\xC3z"), "?z");               // no continuation
  EXPECT_EQ(ValidUtf8("\x80"), "?");                 // continuation alone
  EXPECT_EQ(ValidUtf8("\xC0\xAF"), "??");            // overlong
  EXPECT_EQ(ValidUtf8("\xE0\x80\xAF"), "???");       // overlong
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80"), "???");       // a surrogate
  EXPECT_EQ(ValidUtf8("\xF4\x90\x80\x80"), "????");  // above U+10FFFF
}

TEST(HasControlsTest, FindsThoseOfAsciiLatin1AndOfTheWritingDirection) {
  for (const char* text : {"a\nb", "\x1b[31m", "a\x7f", "\u0085", "\u009bm", "\u2028", "\u202e", "\u2066"}) {
    EXPECT_TRUE(HasControls(text)) << text;
  }
  EXPECT_TRUE(HasControls(std::string(1, '\0')));
  for (const char* text : {"", "plain ~", "\u00a0\u00e9", "\u2027\u202f", "\xff\x9b", "\U0001F600"}) {
    EXPECT_FALSE(HasControls(text)) << text;
  }
}

TEST(ShownTest, IsOneLineThatCannotBeMistaken) {
  EXPECT_EQ(Shown("plain, \u00e9"), "plain, \u00e9");
  EXPECT_EQ(Shown("a\nb\r\tc\x1b[31m\x7f"), "a\\nb\\r\\tc\\x1b[31m\\x7f");
  EXPECT_EQ(Shown("\u0085\u202e\u2028\xff"), "\\u0085\\u202e\\u2028?");
  EXPECT_EQ(Shown(std::string(1, '\0')), "\\x00");
}

TEST(ShownTest, IsCutBetweenCharacters) {
  EXPECT_EQ(Shown("12345678", 8), "12345678");
  EXPECT_EQ(Shown("123456789", 8), "12345\u2026");
  EXPECT_EQ(Shown("1234\u20ac\u20ac", 8), "1234\u2026");
  EXPECT_EQ(Shown("123\n\n\n", 8), "123\\n\u2026");
  EXPECT_EQ(Shown("1234", 3), "\u2026");
  const std::string shown = Shown(std::string(1 << 20, 'x'));
  EXPECT_EQ(shown.size(), kMaxShownBytes);
  for (size_t bytes = 3; bytes < 40; ++bytes) {
    const std::string cut = Shown("a\u00e9\n\u20ac\U0001F600\xff\u202e and all that follows it", bytes);
    EXPECT_LE(cut.size(), bytes);
    EXPECT_EQ(ValidUtf8(cut), cut);
  }
}

}  // namespace
}  // namespace lenet
