#include "trainer/base/log.h"

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

TEST_F(LogTest, ASubjectIsItsThreadsUntilItGoes) {
  std::vector<std::string> lines;
  SetLogSink([&lines](LogLevel, absl::string_view message) {
    lines.push_back(absl::StrCat(ThreadLogSubject().job, "/", ThreadLogSubject().rank, " ", message));
  });
  Log(LogLevel::kInfo, "a");
  {
    const ScopedLogSubject outer({.job = "j", .rank = 1});
    Log(LogLevel::kInfo, "b");
    std::thread([] { Log(LogLevel::kInfo, "c"); }).join();
    LogOfJob(LogLevel::kInfo, "k", "d");
    Log(LogLevel::kInfo, "e");
  }
  Log(LogLevel::kInfo, "f");
  EXPECT_THAT(lines, ::testing::ElementsAre("/-1 a", "j/1 b", "/-1 c", "k/1 job k: d", "j/1 e", "/-1 f"));
}

}  // namespace
}  // namespace lenet
