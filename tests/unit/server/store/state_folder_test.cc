#include "server/store/state_folder.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(LockStateTest, EitherFileAloneKeepsASecondOneOut) {
  const TempFolder folder;
  const absl::StatusOr<StateLock> lock = LockState(folder.path());
  ASSERT_TRUE(lock.ok()) << lock.status();
  absl::Status second = LockState(folder.path()).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(second), AllOf(HasSubstr("another lenetd has '" + folder.path().string() + "' in use"),
                                     HasSubstr("/lenetd.lock'")));
  fs::remove(folder.path() / "lenetd.lock");
  second = LockState(folder.path()).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(second), HasSubstr("it holds '" + (folder.path() / "lenetd.db").string()));
}

TEST(LockStateTest, IsGoneWithItsOwner) {
  const TempFolder folder;
  ASSERT_TRUE(LockState(folder.path()).ok());
  EXPECT_TRUE(LockState(folder.path()).ok());
}

TEST(LockStateTest, ADatabaseThatIsNoFileIsRefused) {
  for (const bool pipe : {false, true}) {
    const TempFolder folder;
    const std::string path = (folder.path() / "lenetd.db").string();
    ASSERT_EQ(pipe ? ::mkfifo(path.c_str(), 0600) : ::mkdir(path.c_str(), 0700), 0);
    const absl::Status status = LockState(folder.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr(path + "' is not a regular file"));
  }
}

TEST(LockStateTest, AnEmptyDatabaseBesideJobsIsALoss) {
  for (const bool missing : {false, true}) {
    const TempFolder folder;
    if (!missing) std::ofstream(folder.path() / "lenetd.db");
    fs::create_directories(folder.path() / "jobs" / "lost+found");
    fs::create_directories(folder.path() / "jobs" / "0123456789abcdef");
    const absl::Status status = LockState(folder.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(Message(status), AllOf(HasSubstr("lenetd.db' is missing or empty"), HasSubstr("job 0123456789abcdef")));
    EXPECT_EQ(fs::exists(folder.path() / "lenetd.db"), !missing);
    // What lies in a file system of its own is none.
    fs::remove(folder.path() / "jobs" / "0123456789abcdef");
    EXPECT_TRUE(LockState(folder.path()).ok());
  }
}

TEST(LockStateTest, AnEmptyDatabaseBesideAWriteAheadLogIsALoss) {
  const TempFolder folder;
  std::ofstream(folder.path() / "lenetd.db-wal") << "pages";
  const absl::Status status = LockState(folder.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("lenetd.db-wal' is not"));
  EXPECT_EQ(fs::file_size(folder.path() / "lenetd.db-wal"), 5u);
}

TEST(CheckpointPathsTest, AreTheFilesNameWhereTheyAreStored) {
  v1::Job job;
  job.set_id("a");
  job.set_checkpoint("/old/jobs/b/step-2");
  job.add_checkpoints()->set_path("relative/jobs/a/step-1");
  job.add_checkpoints()->set_path("step-2");
  ShortenPaths(&job);
  EXPECT_EQ(job.checkpoint(), "step-2");
  EXPECT_EQ(job.checkpoints(0).path(), "step-1");
  CompletePaths("/new/jobs", &job);
  EXPECT_EQ(job.checkpoint(), "/new/jobs/a/step-2");
  EXPECT_EQ(job.checkpoints(0).path(), "/new/jobs/a/step-1");
  EXPECT_EQ(job.checkpoints(1).path(), "/new/jobs/a/step-2");

  v1::MetricRecord record;
  record.mutable_checkpoint_saved()->set_path("/old/jobs/a/step-1");
  ShortenPath(&record);
  EXPECT_EQ(record.checkpoint_saved().path(), "step-1");
  CompletePath("/new/jobs", "a", &record);
  EXPECT_EQ(record.checkpoint_saved().path(), "/new/jobs/a/step-1");
}

TEST(CheckpointPathsTest, WhatHasNoneGetsNone) {
  v1::Job job;
  job.set_id("a");
  v1::MetricRecord record;
  record.mutable_warning()->set_message("w");
  const std::string before = record.SerializeAsString();
  ShortenPaths(&job);
  CompletePaths("/jobs", &job);
  ShortenPath(&record);
  CompletePath("/jobs", "a", &record);
  EXPECT_EQ(job.checkpoint(), "");
  EXPECT_EQ(record.SerializeAsString(), before);
}

TEST(CheckpointPathsTest, AFoldersNameThatIsNoTextIsShownAsText) {
  v1::Job job;
  job.set_id("a");
  job.set_checkpoint("step-1");
  CompletePaths("/\xff", &job);
  EXPECT_EQ(job.checkpoint(), "/?/a/step-1");
}

}  // namespace
}  // namespace lenet
