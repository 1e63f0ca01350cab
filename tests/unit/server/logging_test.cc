#include "server/logging.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/descriptor.h"

namespace lenet {
namespace {

using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// A pipe of the least size, whose reader reads when it is told to.
class LineWriterTest : public ::testing::Test {
 protected:
  LineWriterTest() {
    EXPECT_EQ(::pipe(ends_), 0);
    EXPECT_GT(::fcntl(ends_[1], F_SETPIPE_SZ, 4096), 0);
    EXPECT_EQ(::fcntl(ends_[0], F_SETFL, O_NONBLOCK), 0);
  }
  ~LineWriterTest() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  // What there is now.
  std::string ReadSome() {
    std::string text(1 << 20, '\0');
    const ssize_t bytes = ::read(ends_[0], text.data(), text.size());
    text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    return text;
  }

  // All that comes until the writer has nothing left.
  std::string ReadAll(LineWriter* writer) {
    std::string text;
    while (!writer->Flush(Clock::now() + std::chrono::milliseconds(5))) text += ReadSome();
    return text + ReadSome();
  }

  int ends_[2] = {};
};

std::string Numbered(int number) { return "line " + std::to_string(number) + "\n"; }

TEST_F(LineWriterTest, ALineIsOutWhenTheCallReturns) {
  LineWriter writer(ends_[1]);
  for (int i = 0; i < 100; ++i) {
    writer.Write(Numbered(i));
    ASSERT_TRUE(writer.Flush(Clock::now() + std::chrono::seconds(30)));  // at once, unless the processor is busy
    EXPECT_EQ(ReadSome(), Numbered(i));
  }
}

TEST_F(LineWriterTest, AReaderThatStopsHoldsNobodyUpAndGetsAllInOrder) {
  LineWriter writer(ends_[1]);
  std::string expected;
  const auto begin = Clock::now();
  for (int i = 0; i < 2000; ++i) {
    writer.Write(Numbered(i));
    expected += Numbered(i);
  }
  // One waits for a moment, the others know.
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));
  EXPECT_FALSE(writer.Flush(Clock::now() + std::chrono::milliseconds(1)));
  EXPECT_EQ(ReadAll(&writer), expected);
  // From now on they wait again.
  writer.Write("last\n");
  EXPECT_EQ(ReadSome(), "last\n");
}

TEST_F(LineWriterTest, LinesBeyondTheBoundAreCounted) {
  LineWriter writer(ends_[1]);
  const std::string filler(5000, 'x');
  writer.Write(filler + "\n");
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) writer.Write(Numbered(i));
  const std::string text = ReadAll(&writer);
  const size_t kept = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) - 2;
  EXPECT_LT(kept, 5000u);
  EXPECT_THAT(text, HasSubstr(Numbered(static_cast<int>(kept) - 1)));
  EXPECT_THAT(text, HasSubstr(" warning ["));
  EXPECT_THAT(text, HasSubstr("] " + std::to_string(kLines - kept) + " lines were not written"));
}

TEST_F(LineWriterTest, ADescriptorThatDoesNotBlockIsWaitedFor) {
  ASSERT_EQ(::fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
  LineWriter writer(ends_[1]);
  const std::string line(20'000, 'x');
  writer.Write(line + "\n");
  EXPECT_EQ(ReadAll(&writer), line + "\n");
}

TEST_F(LineWriterTest, WithoutAReaderLinesAreLostAndTheProcessLives) {
  LineWriter writer(ends_[1]);
  ::close(ends_[0]);
  ends_[0] = -1;
  for (int i = 0; i < 10; ++i) writer.Write(Numbered(i));
  EXPECT_TRUE(writer.Flush(Clock::now() + std::chrono::seconds(5)));
}

TEST_F(LineWriterTest, ItsEndWaitsForNobody) {
  const auto begin = Clock::now();
  {
    LineWriter writer(ends_[1]);
    writer.Write(std::string(100'000, 'x') + "\n");
    writer.Write("more\n");
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));
}

TEST_F(LineWriterTest, LinesOfManyThreadsStayWhole) {
  LineWriter writer(ends_[1]);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&writer] {
      for (int i = 0; i < 50; ++i) writer.Write(std::string(20, 'a') + "\n");
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string expected;
  for (int i = 0; i < 200; ++i) expected += std::string(20, 'a') + "\n";
  EXPECT_EQ(ReadAll(&writer), expected);
}

TEST(SetUpLoggingTest, LinesHaveTimeLevelAndThread) {
  ::testing::internal::CaptureStderr();
  SetUpLogging(LogLevel::kInfo);
  Log(LogLevel::kDebug, "not this");
  Log(LogLevel::kWarning, "one\ntwo");
  FlushLog();
  const std::string text = ::testing::internal::GetCapturedStderr();
  SetLogSink(nullptr);
  EXPECT_THAT(text, MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+\\.[0-9][0-9][0-9][+-][0-9]+:[0-9]+ "
                                 "warning \\[[0-9]+\\] one\\\\ntwo\n"));
}

TEST(IsJournalTest, IsTheDescriptorWithThatDeviceAndInode) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  struct stat info;
  ASSERT_EQ(::fstat(ends[1], &info), 0);
  const std::string stream = std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
  EXPECT_TRUE(IsJournal(ends[1], stream));
  EXPECT_FALSE(IsJournal(ends[1], ""));
  EXPECT_FALSE(IsJournal(ends[1], stream + "0"));
  EXPECT_FALSE(IsJournal(ends[1], "x" + stream));
  EXPECT_FALSE(IsJournal(STDERR_FILENO, stream));
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_FALSE(IsJournal(ends[1], stream));
}

TEST_F(LineWriterTest, TheLineOfLostLinesHasTheJournalsPriority) {
  LineWriter writer(ends_[1], LineFormat::kJournal);
  writer.Write(std::string(5000, 'x') + "\n");
  for (int i = 0; i < 5000; ++i) writer.Write(Numbered(i));
  const std::string text = ReadAll(&writer);
  EXPECT_THAT(text.substr(text.rfind('\n', text.size() - 2) + 1),
              MatchesRegex("<4>warning \\[[0-9]+\\] [0-9]+ lines were not written: nothing took them\n"));
}

// As under systemd, with its socket there.
void SetUpLoggingToJournal(const std::string& socket) {
  struct stat info;
  ASSERT_EQ(::fstat(STDERR_FILENO, &info), 0);
  ::setenv("JOURNAL_STREAM", (std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino)).c_str(), 1);
  SetUpLogging(LogLevel::kDebug, socket);
  ::unsetenv("JOURNAL_STREAM");
}

TEST(SetUpLoggingTest, LinesAreTheJournalsEntriesWithJobAndRank) {
  TempFolder folder;
  const std::string path = folder.path() / "journal";
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  const UniqueDescriptor journal(Descriptor{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)});
  ASSERT_EQ(::bind(journal.get().number, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const auto next = [&journal] {
    char entry[8192];
    const ssize_t bytes = ::recv(journal.get().number, entry, sizeof(entry), MSG_DONTWAIT);
    return std::string(entry, bytes < 0 ? 0 : static_cast<size_t>(bytes));
  };

  ::testing::internal::CaptureStderr();
  SetUpLoggingToJournal(path);
  Log(LogLevel::kError, "one\nPRIORITY=0");
  LogOfJob(LogLevel::kInfo, "j1", "accepted");
  {
    const ScopedLogSubject rank({.job = "j1", .rank = 3});
    Log(LogLevel::kWarning, "two");
    LogOfJob(LogLevel::kDebug, "j2\nPRIORITY=0", "three");
  }
  Log(LogLevel::kInfo, "four");
  FlushLog();
  SetLogSink(nullptr);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");

  const std::string common = "\nSYSLOG_IDENTIFIER=lenetd\nTID=[0-9]+\n";
  EXPECT_THAT(next(), MatchesRegex("MESSAGE=one\\\\nPRIORITY=0\nPRIORITY=3" + common));
  EXPECT_THAT(next(), MatchesRegex("MESSAGE=job j1: accepted\nPRIORITY=6" + common + "LENET_JOB=j1\n"));
  EXPECT_THAT(next(), MatchesRegex("MESSAGE=two\nPRIORITY=4" + common + "LENET_JOB=j1\nLENET_RANK=3\n"));
  EXPECT_THAT(next(), MatchesRegex("MESSAGE=job j2\\\\nPRIORITY=0: three\nPRIORITY=7" + common +
                                   "LENET_JOB=j2\\\\nPRIORITY=0\nLENET_RANK=3\n"));
  EXPECT_THAT(next(), MatchesRegex("MESSAGE=four\nPRIORITY=6" + common));
  EXPECT_EQ(next(), "");
}

TEST(ConnectToJournalTest, SaysWhyItCannot) {
  EXPECT_THAT(ConnectToJournal("/nosuch/socket").status().ToString(), HasSubstr("'/nosuch/socket': No such file"));
  EXPECT_THAT(ConnectToJournal(std::string(200, 'x')).status().ToString(), HasSubstr("has 200 bytes, most is 107"));
}

TEST(SetUpLoggingTest, WithoutTheJournalsSocketLinesHaveItsPrioritiesAndNoTime) {
  ::testing::internal::CaptureStderr();
  SetUpLoggingToJournal("/nosuch/socket");
  Log(LogLevel::kDebug, "a");
  Log(LogLevel::kInfo, "b");
  Log(LogLevel::kWarning, "c");
  Log(LogLevel::kError, "one\n<0>two");
  FlushLog();
  const std::string text = ::testing::internal::GetCapturedStderr();
  SetLogSink(nullptr);
  EXPECT_THAT(text, MatchesRegex("<7>debug \\[[0-9]+\\] a\n<6>info \\[[0-9]+\\] b\n<4>warning \\[[0-9]+\\] c\n"
                                 "<3>error \\[[0-9]+\\] one\\\\n<0>two\n"));
}

TEST(SetUpLoggingTest, TheLevelCanBeChanged) {
  ::testing::internal::CaptureStderr();
  SetUpLogging(LogLevel::kInfo);
  const LogSink plug_ins = GetLogSink();
  SetLogLevel(LogLevel::kDebug);
  Log(LogLevel::kDebug, "one");
  plug_ins(LogLevel::kDebug, "two");
  SetLogLevel(LogLevel::kError);
  Log(LogLevel::kWarning, "not this");
  plug_ins(LogLevel::kWarning, "nor this");
  FlushLog();
  const std::string text = ::testing::internal::GetCapturedStderr();
  SetLogSink(nullptr);
  EXPECT_THAT(text, MatchesRegex(".* debug .* one\n.* debug .* two\n"));
}

}  // namespace
}  // namespace lenet
