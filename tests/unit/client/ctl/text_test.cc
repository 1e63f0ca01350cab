#include "client/ctl/text.h"

#include <gtest/gtest.h>
#include <locale.h>

#include <cmath>
#include <limits>

namespace lenet::ctl {
namespace {

TEST(TextTest, IsUtf8TakesWellFormedSequencesAlone) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("abc"));
  EXPECT_TRUE(IsUtf8("\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80"));
  EXPECT_FALSE(IsUtf8("\xff"));
  EXPECT_FALSE(IsUtf8("\xc3"));              // cut
  EXPECT_FALSE(IsUtf8("\xc3 "));             // no continuation
  EXPECT_FALSE(IsUtf8("\xc0\xaf"));          // overlong "/"
  EXPECT_FALSE(IsUtf8("\xe0\x80\xaf"));      // overlong
  EXPECT_FALSE(IsUtf8("\xed\xa0\x80"));      // surrogate
  EXPECT_FALSE(IsUtf8("\xf4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_FALSE(IsUtf8("\x80"));
}

TEST(TextTest, PrintableReplacesWhatMovesTheCursor) {
  EXPECT_EQ(Printable("a\x1b[2Jb\nc\td\x7f"), "a?[2Jb?c?d?");
  EXPECT_EQ(Printable("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(Printable("\xc2\x9b"), "?");          // CSI as one character
  EXPECT_EQ(Printable("a\xe2\x80\xa8z"), "a?z");  // line separator
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "z"),
            "a?z");  // right-to-left override
  EXPECT_EQ(Printable("\xff\xc3"), "??");
}

TEST(TextTest, DisplayWidthCountsColumns) {
  setlocale(LC_CTYPE, "C.UTF-8");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("caf\xc3\xa9"), 4);
  EXPECT_EQ(DisplayWidth("\xe4\xb8\xad\xe6\x96\x87"), 4);  // two wide characters
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1);                 // a combining accent
}

TEST(TextTest, FitCutsToTheWidth) {
  setlocale(LC_CTYPE, "C.UTF-8");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(Fit("0123456789", 10), "0123456789");
  EXPECT_EQ(Fit("0123456789", 9), "012345...");
  EXPECT_EQ(Fit("0123456789", 4), "0123");
  EXPECT_EQ(Fit("0123456789", 0), "");
  EXPECT_EQ(Fit("\xe4\xb8\xad\xe6\x96\x87", 3), "\xe4\xb8\xad");
}

TEST(TextTest, Numbers) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-123456), "-123,456");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");

  EXPECT_EQ(FormatLoss(2.302585), "2.3026");
  EXPECT_EQ(FormatLoss(0.001), "0.0010");
  EXPECT_EQ(FormatLoss(0.00001234), "1.234e-05");
  EXPECT_EQ(FormatLoss(0), "0.0000");
  EXPECT_EQ(FormatLoss(99999), "99999.0000");
  EXPECT_EQ(FormatLoss(-7.9834328e22), "-7.983e+22");
  EXPECT_EQ(FormatLoss(std::nan("")), "nan");
  EXPECT_EQ(FormatLoss(-std::nan("")), "nan");
  EXPECT_EQ(FormatLoss(std::numeric_limits<double>::infinity()), "inf");

  EXPECT_EQ(FormatShort(0.05), "0.05");
  EXPECT_EQ(FormatShort(0.0123456), "0.01235");
  EXPECT_EQ(FormatPercent(0.98923), "98.92 %");
  EXPECT_EQ(FormatPercent(1), "100.00 %");

  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(178123), "178 kB");
  EXPECT_EQ(FormatBytes(150754820096), "151 GB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "9.22 EB");
}

TEST(TextTest, Times) {
  EXPECT_EQ(FormatSeconds(0.4211), "0.42 s");
  EXPECT_EQ(FormatSeconds(9.999), "10.0 s");
  EXPECT_EQ(FormatSeconds(59.94), "59.9 s");
  EXPECT_EQ(FormatSeconds(59.96), "1:00");
  EXPECT_EQ(FormatSeconds(3723), "1:02:03");
  EXPECT_EQ(FormatAge(absl::Seconds(-5)), "0 s");
  EXPECT_EQ(FormatAge(absl::Seconds(59.9)), "59 s");
  EXPECT_EQ(FormatAge(absl::Seconds(60)), "1 min");
  EXPECT_EQ(FormatAge(absl::Seconds(3599)), "59 min");
  EXPECT_EQ(FormatAge(absl::Hours(23.9)), "23 h");
  EXPECT_EQ(FormatAge(absl::Hours(24)), "1 d");
  EXPECT_EQ(FormatAge(absl::Hours(24 * 1500)), "1,500 d");
  EXPECT_EQ(FormatClock(0.4), "0:00");
  EXPECT_EQ(FormatClock(12), "0:12");
  EXPECT_EQ(FormatClock(185), "3:05");
  EXPECT_EQ(FormatClock(-1), "0:00");
  EXPECT_EQ(FormatClock(1e30), "-");
  EXPECT_EQ(FormatClock(std::nan("")), "-");

  google::protobuf::Timestamp time;
  EXPECT_EQ(FormatTime(time), "-");
  time.set_seconds(86400);
  EXPECT_EQ(FormatTime(time).size(), 19u);
}

TEST(TextTest, ExactNumbersReadBackAsTheyWere) {
  EXPECT_EQ(FormatExact(0.9), "0.9");
  EXPECT_EQ(FormatExact(0.99999), "0.99999");
  EXPECT_EQ(FormatExact(1e-8), "1e-08");
  EXPECT_EQ(FormatExact(10000.0), "10000");
  EXPECT_EQ(FormatExact(0.1f), "0.1");
  EXPECT_EQ(FormatExact(0.0), "0");
}

TEST(TextTest, AFailureNamesRankAndStepWhereItHasThem) {
  v1::Failure failure;
  failure.set_rank(1);
  failure.set_step(17);
  failure.set_phase("step");
  failure.set_code("INTERNAL");
  failure.set_message("broken");
  EXPECT_EQ(FormatFailure(failure), "rank 1 after step 17, in step: INTERNAL: broken");
  failure.set_rank(-1);
  EXPECT_EQ(FormatFailure(failure), "after step 17, in step: INTERNAL: broken");
  failure.set_step(0);
  EXPECT_EQ(FormatFailure(failure), "in step: INTERNAL: broken");
  failure.set_rank(0);
  EXPECT_EQ(FormatFailure(failure), "rank 0, in step: INTERNAL: broken");
}

TEST(TextTest, States) {
  EXPECT_EQ(StateName(v1::RUNNING), "running");
  EXPECT_EQ(StateName(static_cast<v1::JobState>(77)), "state 77");
  EXPECT_TRUE(IsTerminal(v1::SUCCEEDED));
  EXPECT_TRUE(IsTerminal(v1::FAILED));
  EXPECT_TRUE(IsTerminal(v1::STOPPED));
  EXPECT_FALSE(IsTerminal(v1::STOPPING));
  EXPECT_FALSE(IsTerminal(v1::PAUSED));
  EXPECT_FALSE(IsTerminal(v1::JOB_STATE_UNSPECIFIED));
}

}  // namespace
}  // namespace lenet::ctl
