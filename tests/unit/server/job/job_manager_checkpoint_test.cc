// Checkpoints that are damaged, missing or another's: of a job that goes on, and of one that another goes on from.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/job_manager.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void FlipLastByte(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int byte = file.peek();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

class CheckpointsTest : public ::testing::Test {
 protected:
  static v1::StartRequest Request(int64_t max_steps) {
    v1::StartRequest request = ServerUnderTest::Request(max_steps, 2);
    request.mutable_spec()->mutable_checkpoints()->set_every_steps(10);
    request.mutable_spec()->mutable_checkpoints()->set_keep_last(100);
    return request;
  }

  std::string Start(const v1::StartRequest& request) {
    const absl::StatusOr<v1::Job> job = server_.manager().Start(request);
    EXPECT_TRUE(job.ok()) << job.status();
    return job->id();
  }

  // A job of 200 steps that a drain has ended, somewhere after its first 60.
  v1::Job Left() {
    const std::string id = Start(Request(200));
    server_.AwaitStep(id, 60);
    server_.Drain();
    v1::Job job = server_.store().GetJob(id).value();
    EXPECT_GE(job.checkpoints_size(), 2);
    return job;
  }

  std::string Warnings(const std::string& id) {
    std::string warnings;
    for (const v1::MetricRecord& record : server_.ReadLog(id)) absl::StrAppend(&warnings, record.warning().message());
    return warnings;
  }

  ServerUnderTest server_{Paced()};
};

TEST_F(CheckpointsTest, OneOfWhichABitChangedGivesWayToTheOneBefore) {
  const v1::Job left = Left();
  const v1::Checkpoint& newest = *left.checkpoints().rbegin();
  FlipLastByte(newest.path());
  server_.Restart();
  EXPECT_EQ(server_.AwaitState(left.id(), v1::SUCCEEDED).state(), v1::SUCCEEDED);
  EXPECT_THAT(
      Warnings(left.id()),
      AllOf(StartsWith(absl::StrCat("the checkpoint of step ", newest.step(), " cannot be read: ", newest.path())),
            HasSubstr("checksum")));
}

TEST_F(CheckpointsTest, TheFileOfAnotherStepGivesWayToTheOneBefore) {
  const v1::Job left = Left();
  const v1::Checkpoint& newest = *left.checkpoints().rbegin();
  const v1::Checkpoint& first = left.checkpoints(0);
  fs::copy_file(first.path(), newest.path(), fs::copy_options::overwrite_existing);
  server_.Restart();
  EXPECT_EQ(server_.AwaitState(left.id(), v1::SUCCEEDED).state(), v1::SUCCEEDED);
  EXPECT_THAT(Warnings(left.id()), HasSubstr(absl::StrCat(newest.path(), ": is the state after step ", first.step())));
}

TEST_F(CheckpointsTest, TheyAreLookedForInTheFolderOfTheJobs) {
  const v1::Job left = Left();
  // As a folder that was moved leaves them.
  const absl::StatusOr<v1::Job> moved = server_.store().UpdateJob(left.id(), [](v1::Job* job) {
    for (v1::Checkpoint& checkpoint : *job->mutable_checkpoints()) {
      checkpoint.set_path(absl::StrCat("/elsewhere/", fs::path(checkpoint.path()).filename().string()));
    }
  });
  ASSERT_TRUE(moved.ok());
  server_.Restart();
  EXPECT_EQ(server_.AwaitState(left.id(), v1::SUCCEEDED).state(), v1::SUCCEEDED);
  EXPECT_EQ(Warnings(left.id()), "");
}

TEST_F(CheckpointsTest, OneThatAnotherJobIsToGoOnFromMustBeWhole) {
  const std::string source = Start(Request(40));
  ASSERT_EQ(server_.AwaitState(source, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  const v1::Job job = server_.store().GetJob(source).value();
  const std::string path = job.checkpoints(1).path();
  const std::string other = job.checkpoints(0).path();
  const fs::path sound = server_.folder() / "sound";
  fs::copy_file(path, sound);
  v1::StartRequest request = Request(40);
  request.mutable_resume_from()->set_job_id(source);
  request.mutable_resume_from()->set_step(20);

  const std::function<void()> damages[] = {
      [&] { FlipLastByte(path); },
      [&] { fs::resize_file(path, fs::file_size(path) - 1); },
      [&] { fs::resize_file(path, fs::file_size(path) + 5'000'000); },
      [&] { fs::resize_file(path, 0); },
      [&] { fs::remove(path); },
      [&] {
        fs::remove(path);
        fs::create_directory(path);
      },
      [&] {
        fs::remove(path);
        ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
      },
      [&] {
        fs::remove(path);
        fs::create_symlink("/dev/zero", path);
      },
      [&] {
        fs::remove(path);
        fs::create_symlink(path, path);
      },
      [&] { fs::copy_file(other, path, fs::copy_options::overwrite_existing); },
  };
  for (const auto& damage : damages) {
    damage();
    const absl::Status refused = server_.manager().Start(request).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(StartsWith(absl::StrCat("resume_from: the checkpoint of step 20 of job ", source, ": ")),
                      HasSubstr(path)));
    fs::remove_all(path);
    fs::copy_file(sound, path);
  }
  const std::string id = Start(request);
  EXPECT_EQ(server_.AwaitState(id, v1::SUCCEEDED).state(), v1::SUCCEEDED);
}

TEST_F(CheckpointsTest, ACopyThatIsDamagedFailsTheJobThatBeganFromIt) {
  const std::string source = Start(Request(40));
  ASSERT_EQ(server_.AwaitState(source, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  const std::string running = Start(ServerUnderTest::Request(0, 2));
  server_.AwaitStep(running, 1);
  v1::StartRequest request = Request(40);
  request.mutable_resume_from()->set_job_id(source);
  request.mutable_resume_from()->set_step(20);
  const std::string id = Start(request);  // waits
  FlipLastByte(server_.folder() / "jobs" / id / "start.safetensors");
  ASSERT_TRUE(server_.manager().Stop(running, StopMode::kAbort).ok());
  const v1::Job failed = server_.AwaitState(id, v1::FAILED);
  EXPECT_EQ(failed.state(), v1::FAILED);
  EXPECT_EQ(failed.failure().phase(), "load");
  EXPECT_EQ(failed.failure().code(), "DATA_LOSS");
  EXPECT_THAT(failed.failure().message(),
              StartsWith(absl::StrCat("resume_from: the checkpoint of step 20 of job ", source, ": ")));
}

TEST_F(CheckpointsTest, AFileInPlaceOfTheirFolderIsNoClashOfRequests) {
  std::ofstream(server_.folder() / "jobs") << "x";
  const absl::Status refused = server_.manager().Start(Request(5)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr((server_.folder() / "jobs").string()));
}

}  // namespace
}  // namespace lenet
