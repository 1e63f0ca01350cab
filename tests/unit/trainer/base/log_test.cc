#include "trainer/base/log.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lenet {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { SetLogSink(nullptr); }
};

TEST_F(LogTest, GoesToTheSink) {
  std::vector<std::pair<LogLevel, std::string>> lines;
  SetLogSink([&](LogLevel level, absl::string_view message) { lines.emplace_back(level, std::string(message)); });
  Log(LogLevel::kWarning, "a");
  GetLogSink()(LogLevel::kError, "b");
  EXPECT_THAT(lines, ::testing::ElementsAre(std::pair(LogLevel::kWarning, std::string("a")),
                                            std::pair(LogLevel::kError, std::string("b"))));
}

TEST_F(LogTest, GoesToStandardErrorWithoutOne) {
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, absl::string_view("hello, world", 5));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "info: hello\n");
}

TEST_F(LogTest, ALineIsOneLineAndNotTooLong) {
  std::string line;
  SetLogSink([&](LogLevel, absl::string_view message) { line = std::string(message); });
  Log(LogLevel::kInfo, "a\n2026-01-01 error: b");
  EXPECT_EQ(line, "a\\n2026-01-01 error: b");
  Log(LogLevel::kInfo, std::string(1 << 20, 'x'));
  EXPECT_EQ(line.size(), kMaxLogBytes);
}

TEST_F(LogTest, ASinkThatThrowsLosesNoLine) {
  SetLogSink([](LogLevel, absl::string_view) { throw std::runtime_error("full"); });
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kError, "kept");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "error: kept\n");
}

}  // namespace
}  // namespace lenet
