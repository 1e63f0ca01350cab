#include "trainer/base/file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void Put(const fs::path& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

std::set<std::string> Names(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

absl::Status Write(const fs::path& path, const std::vector<std::string>& pieces) {
  std::vector<std::span<const std::byte>> spans;
  spans.reserve(pieces.size());
  for (const std::string& piece : pieces) spans.push_back(std::as_bytes(std::span(piece)));
  return WriteFileAtomic(path, spans);
}

TEST(ReadFileTest, GivesTheWholeContent) {
  TempFolder dir;
  for (const size_t size : {0, 1, 4095, 4096, 4097, 4098, 100000}) {
    std::string content(size, 'x');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 31 % 251);
    Put(dir / "f", content);
    const absl::StatusOr<std::string> read = ReadFile(dir / "f", 100000);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, content);
  }
}

TEST(ReadFileTest, ReadsFilesWhoseSizeSaysNothing) {
  const absl::StatusOr<std::string> read = ReadFile("/proc/self/smaps", 1 << 24);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_GT(read->size(), 4096u);  // grown beyond the first piece
  EXPECT_EQ(ReadFile("/proc/self/smaps", 4097).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ReadFileTest, TakesExactlyTheLimit) {
  TempFolder dir;
  Put(dir / "f", std::string(5000, 'x'));
  EXPECT_TRUE(ReadFile(dir / "f", 5000).ok());
  const absl::Status status = ReadFile(dir / "f", 4999).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr((dir / "f").string()), HasSubstr("5000"), HasSubstr("4999")));
}

TEST(ReadFileTest, NamesTheFileAndTheReason) {
  TempFolder dir;
  const absl::Status missing = ReadFile(dir / "none", 10).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              AllOf(HasSubstr((dir / "none").string()), HasSubstr("No such file or directory")));

  const absl::Status folder = ReadFile(dir.path(), 10).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(folder.message()), HasSubstr("not a regular file"));

  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(dir / "fifo", 10).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile("/dev/zero", 10).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReadFileTest, SaysThatReadingIsNotAllowed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
  TempFolder dir;
  Put(dir / "f", "x");
  fs::permissions(dir / "f", fs::perms::none);
  EXPECT_EQ(ReadFile(dir / "f", 10).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(InputFileTest, ReadsPieceByPieceAndMoves) {
  TempFolder dir;
  Put(dir / "f", "abcdefg");
  absl::StatusOr<InputFile> opened = InputFile::Open(dir / "f");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->size(), 7);
  InputFile file = *std::move(opened);
  std::string piece(4, '?');
  const std::span<std::byte> out = std::as_writable_bytes(std::span(piece));
  EXPECT_EQ(*file.Read(out), 4u);
  EXPECT_EQ(piece, "abcd");
  Put(dir / "g", "123");
  file = *InputFile::Open(dir / "g");
  EXPECT_EQ(*file.Read(out), 3u);
  EXPECT_EQ(piece.substr(0, 3), "123");
  EXPECT_EQ(*file.Read(out), 0u);
}

TEST(WriteFileAtomicTest, WritesThePiecesInOrderAndLeavesNothingElse) {
  TempFolder dir;
  ASSERT_TRUE(Write(dir / "f", {"ab", "", "cde"}).ok());
  EXPECT_EQ(Content(dir / "f"), "abcde");
  ASSERT_TRUE(Write(dir / "f", {}).ok());
  EXPECT_EQ(Content(dir / "f"), "");
  EXPECT_EQ(Names(dir.path()), (std::set<std::string>{"f"}));
}

TEST(WriteFileAtomicTest, LeavesThePermissionsToTheUmask) {
  TempFolder dir;
  const mode_t before = ::umask(027);
  const absl::Status status = Write(dir / "f", {"x"});
  ::umask(before);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(fs::status(dir / "f").permissions(), static_cast<fs::perms>(0640));
}

TEST(WriteFileAtomicTest, TakesARelativePath) {
  TempFolder dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  const absl::Status status = Write("f", {"x"});
  fs::current_path(before);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Content(dir / "f"), "x");
}

TEST(WriteFileAtomicTest, ReplacesALinkNotWhatItPointsTo) {
  TempFolder dir;
  Put(dir / "target", "old");
  fs::create_symlink(dir / "target", dir / "link");
  ASSERT_TRUE(Write(dir / "link", {"new"}).ok());
  EXPECT_EQ(Content(dir / "target"), "old");
  EXPECT_EQ(Content(dir / "link"), "new");
}

TEST(WriteFileAtomicTest, AFailedWriteKeepsTheOldContent) {
  TempFolder dir;
  Put(dir / "f", "old");
  rlimit old_limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 1000;
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = Write(dir / "f", {std::string(600, 'a'), std::string(600, 'b')});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  ::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("cannot write"), HasSubstr("File too large")));
  EXPECT_EQ(Content(dir / "f"), "old");
  EXPECT_EQ(Names(dir.path()), (std::set<std::string>{"f"}));
}

TEST(WriteFileAtomicTest, AFailedRenameLeavesNoTemporaryFile) {
  TempFolder dir;
  fs::create_directories(dir / "f" / "inside");
  const absl::Status status = Write(dir / "f", {"x"});
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr((dir / "f").string()));
  EXPECT_EQ(Names(dir.path()), (std::set<std::string>{"f"}));
}

TEST(WriteFileAtomicTest, NamesAFolderThatIsMissing) {
  TempFolder dir;
  const absl::Status status = Write(dir / "none" / "f", {"x"});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr((dir / "none").string()));
  EXPECT_EQ(Write("", {"x"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Write(dir.path().string() + "/", {"x"}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(WriteFileAtomicTest, AReaderSeesOneWholeContentOfManyWriters) {
  TempFolder dir;
  constexpr int kWriters = 4;
  constexpr int kRounds = 20;
  constexpr size_t kSize = 50000;
  ASSERT_TRUE(Write(dir / "f", {std::string(kSize, 'a')}).ok());
  std::vector<std::thread> writers;
  writers.reserve(kWriters);
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      const std::string content(kSize, static_cast<char>('a' + writer));
      for (int round = 0; round < kRounds; ++round) {
        const absl::Status status = Write(dir / "f", {content.substr(0, 20000), content.substr(20000)});
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    const absl::StatusOr<std::string> read = ReadFile(dir / "f", kSize);
    const std::string content = read.ok() ? *read : read.status().ToString();
    EXPECT_EQ(content, std::string(kSize, content[0]));
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(Names(dir.path()), (std::set<std::string>{"f"}));
}

TEST(MakeFoldersTest, MakesWhatIsMissing) {
  TempFolder dir;
  EXPECT_TRUE(MakeFolders(dir / "a" / "b" / "c").ok());
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a" / "b" / "c"));
  EXPECT_TRUE(MakeFolders(dir / "a" / "b" / "d" / "").ok());
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a" / "b" / "d"));
  EXPECT_TRUE(MakeFolders(dir / "a" / "b").ok());
}

TEST(MakeFoldersTest, AFileInTheWayIsNamed) {
  TempFolder dir;
  std::ofstream(dir / "file") << "x";
  const absl::Status status = MakeFolders(dir / "file" / "below");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr((dir / "file").string()));
  EXPECT_EQ(MakeFolders(dir / "file").code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lenet
