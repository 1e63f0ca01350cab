#include "server/job/checkpoint_keeper.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/memory_store.h"
#include "tests/support/new_job.h"
#include "tests/support/temp_folder.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void AddCheckpoint(v1::Job* job, int64_t step, std::optional<double> accuracy = std::nullopt) {
  v1::Checkpoint* const checkpoint = job->add_checkpoints();
  checkpoint->set_step(step);
  if (accuracy) checkpoint->set_accuracy(*accuracy);
}

std::vector<int64_t> SurplusSteps(const v1::Job& job) {
  std::vector<int64_t> steps;
  for (const v1::Checkpoint& checkpoint : Surplus(job)) steps.push_back(checkpoint.step());
  return steps;
}

TEST(SurplusTest, TwoAndTheBestStayByDefault) {
  v1::Job job;
  AddCheckpoint(&job, 10, 0.8);
  EXPECT_THAT(SurplusSteps(job), IsEmpty());
  AddCheckpoint(&job, 20, 0.9);
  AddCheckpoint(&job, 30, 0.9);
  AddCheckpoint(&job, 40);
  AddCheckpoint(&job, 50, 0.7);
  EXPECT_THAT(SurplusSteps(job), ElementsAre(10, 30));
}

TEST(SurplusTest, TheSpecSaysHowMany) {
  v1::Job job;
  for (int64_t step = 1; step <= 5; ++step) AddCheckpoint(&job, step, 1.0 / static_cast<double>(step));
  job.mutable_spec()->mutable_checkpoints()->set_keep_last(3);
  EXPECT_THAT(SurplusSteps(job), ElementsAre(2));
  job.mutable_spec()->mutable_checkpoints()->set_keep_best(false);
  EXPECT_THAT(SurplusSteps(job), ElementsAre(1, 2));
}

TEST(DropSurplusTest, TakesThemOutOfTheRecordAndOffTheDisk) {
  const TempFolder folder;
  MemoryStore store;
  ASSERT_TRUE(store.CreateJob(NewJob("a"), {}).ok());
  for (int step = 1; step <= 4; ++step) {
    const std::filesystem::path path = folder.path() / std::to_string(step);
    std::ofstream(path) << "state";
    std::vector<v1::MetricRecord> records(1);
    records[0].mutable_checkpoint_saved()->set_step(step);
    records[0].mutable_checkpoint_saved()->set_path(path.string());
    ASSERT_TRUE(store.AppendRecords("a", records).ok());
  }
  std::filesystem::remove(folder.path() / "1");  // one that is not there is no trouble
  EXPECT_TRUE(DropSurplus(&store, "a", folder.path()).ok());
  const v1::Job job = *store.GetJob("a");
  ASSERT_EQ(job.checkpoints_size(), 2);
  EXPECT_EQ(job.checkpoints(0).step(), 3);
  EXPECT_EQ(job.checkpoints(1).step(), 4);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "2"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "3"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "4"));
  EXPECT_EQ(DropSurplus(&store, "no-job", folder.path()).code(), absl::StatusCode::kNotFound);
}

TEST(DropSurplusTest, RemovesNothingOutsideOfTheJobsFolder) {
  const TempFolder folder;
  const std::filesystem::path own = folder.path() / "own";
  const std::filesystem::path others = folder.path() / "others";
  MemoryStore store;
  ASSERT_TRUE(store.CreateJob(NewJob("a"), {}).ok());
  for (int step = 1; step <= 3; ++step) {
    for (const std::filesystem::path& place : {own, others}) {
      std::filesystem::create_directories(place);
      std::ofstream(place / std::to_string(step)) << "state";
    }
    std::vector<v1::MetricRecord> records(1);
    records[0].mutable_checkpoint_saved()->set_step(step);
    records[0].mutable_checkpoint_saved()->set_path((others / std::to_string(step)).string());
    ASSERT_TRUE(store.AppendRecords("a", records).ok());
  }
  EXPECT_TRUE(DropSurplus(&store, "a", own).ok());
  EXPECT_TRUE(std::filesystem::exists(others / "1"));
  EXPECT_FALSE(std::filesystem::exists(own / "1"));
  EXPECT_TRUE(std::filesystem::exists(own / "2"));
}

TEST(ForgetAfterTest, LeavesTheFilesAndEarlierSteps) {
  MemoryStore store;
  ASSERT_TRUE(store.CreateJob(NewJob("a"), {}).ok());
  for (int step = 1; step <= 3; ++step) {
    std::vector<v1::MetricRecord> records(1);
    records[0].mutable_checkpoint_saved()->set_step(step);
    ASSERT_TRUE(store.AppendRecords("a", records).ok());
  }
  EXPECT_TRUE(ForgetAfter(&store, *store.GetJob("a"), 2).ok());
  ASSERT_EQ(store.GetJob("a")->checkpoints_size(), 2);
  EXPECT_EQ(store.GetJob("a")->checkpoints(1).step(), 2);
  EXPECT_TRUE(ForgetAfter(&store, *store.GetJob("a"), -1).ok());
  EXPECT_EQ(store.GetJob("a")->checkpoints_size(), 0);
}

TEST(RemoveTemporariesTest, TakesNothingElse) {
  const TempFolder folder;
  std::ofstream(folder.path() / ".step-1.safetensors.12-3.tmp") << "half";
  std::ofstream(folder.path() / "step-1.safetensors") << "whole";
  RemoveTemporaries(folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / ".step-1.safetensors.12-3.tmp"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "step-1.safetensors"));
  RemoveTemporaries(folder.path() / "missing");
}

TEST(ProbeFolderTest, NamesTheFolderAndTheSpace) {
  const TempFolder folder;
  EXPECT_TRUE(ProbeFolder(folder.path() / "new" / "jobs", 1000).ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() / "new" / "jobs"));
  const absl::Status full = ProbeFolder(folder.path(), int64_t{1} << 60);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), ::testing::HasSubstr("a checkpoint needs 2305843009213693952"));
  EXPECT_THAT(std::string(full.message()), ::testing::HasSubstr(folder.path().string()));
  std::ofstream(folder.path() / "file") << "in the way";
  EXPECT_FALSE(ProbeFolder(folder.path() / "file", 1).ok());
}

}  // namespace
}  // namespace lenet
