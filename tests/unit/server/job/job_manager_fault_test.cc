// Faults on purpose in the midst of jobs: what the job says of them, and that the next one runs.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/job_manager.h"
#include "tests/support/scripted_faults.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Action = ScriptedFault::Action;

constexpr std::chrono::milliseconds kCollectiveTimeout(300);

class FaultTest : public ::testing::Test {
 protected:
  // Of the first job; faults name steps that later ones do not reach.
  ServerUnderTest& Serve(std::vector<ScriptedFault> faults) {
    faults_ = std::make_unique<ScriptedFaults>(std::move(faults));
    ServerUnderTestOptions options;
    options.manager.faults = faults_.get();
    options.manager.collective_timeout = kCollectiveTimeout;
    options.manager.join_timeout = kCollectiveTimeout;
    options.manager.unusable = [this](const std::string&) { unusable_ = true; };
    server_ = std::make_unique<ServerUnderTest>(options);
    return *server_;
  }

  v1::Job Run(int64_t steps) {
    const absl::StatusOr<v1::Job> job = server_->manager().Start(ServerUnderTest::Request(steps, 2));
    EXPECT_TRUE(job.ok()) << job.status();
    return server_->AwaitState(job->id(), v1::SUCCEEDED);
  }

  void ExpectTheNextJobRuns() {
    EXPECT_EQ(Run(20).state(), v1::SUCCEEDED);
    EXPECT_TRUE(Eventually([this] { return server_->manager().Load().running == 0; }));
    for (const DevicePool::Device& device : server_->manager().Load().devices) {
      EXPECT_TRUE(device.holder.empty());
      EXPECT_TRUE(device.unhealthy.empty());
    }
  }

  std::unique_ptr<ScriptedFaults> faults_;
  std::atomic<bool> unusable_{false};
  std::unique_ptr<ServerUnderTest> server_;
};

TEST_F(FaultTest, ARankThatHangsInACollectiveFailsTheJobInTime) {
  Serve({{.rank = 1, .step = 50, .action = Action::kHang}});
  const auto began = std::chrono::steady_clock::now();
  const v1::Job job = Run(100);
  EXPECT_LT(std::chrono::steady_clock::now() - began, kCollectiveTimeout + std::chrono::seconds(3));
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().rank(), 1);
  EXPECT_EQ(job.failure().step(), 49);
  EXPECT_EQ(job.failure().phase(), "step");
  EXPECT_EQ(job.failure().code(), "DEADLINE_EXCEEDED");
  EXPECT_TRUE(server_->ReadLog(job.id()).back().has_terminal());
  ExpectTheNextJobRuns();
}

TEST_F(FaultTest, ARankThatThrowsIsNamed) {
  Serve({{.rank = 1, .step = 50, .action = Action::kThrow, .status = absl::InternalError("thrown on purpose")}});
  const v1::Job job = Run(100);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().rank(), 1);
  EXPECT_EQ(job.failure().step(), 49);
  EXPECT_THAT(job.failure().message(), HasSubstr("thrown on purpose"));
  ExpectTheNextJobRuns();
}

TEST_F(FaultTest, ASaveThatFailsFailsTheSaveAlone) {
  Serve({{.point = FaultPoint::kSave, .step = 20, .status = absl::ResourceExhaustedError("the disk is full")}});
  v1::StartRequest request = ServerUnderTest::Request(45, 2);
  request.mutable_spec()->mutable_checkpoints()->set_every_steps(10);
  const std::string id = server_->manager().Start(request)->id();
  const v1::Job job = server_->AwaitState(id, v1::SUCCEEDED);
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
  bool warned = false;
  std::vector<int64_t> saved;
  for (const v1::MetricRecord& record : server_->ReadLog(id)) {
    warned |= record.warning().message().find("the checkpoint of step 20 was not saved") == 0;
    if (record.has_checkpoint_saved()) saved.push_back(record.checkpoint_saved().step());
  }
  EXPECT_TRUE(warned);
  EXPECT_THAT(saved, ::testing::ElementsAre(10, 30, 40, 45));
  ASSERT_EQ(job.checkpoints_size(), 2);
  for (const v1::Checkpoint& checkpoint : job.checkpoints()) EXPECT_TRUE(std::filesystem::exists(checkpoint.path()));
}

TEST_F(FaultTest, NoMemoryForAnEngineIsSaidSo) {
  Serve(
      {{.point = FaultPoint::kEngine, .rank = 1, .status = absl::ResourceExhaustedError("no memory for the engine")}});
  const v1::Job job = Run(20);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().phase(), "init");
  EXPECT_EQ(job.failure().code(), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(job.failure().rank(), 1);
}

TEST_F(FaultTest, ARankThatNeverEndsMakesTheProcessUnusable) {
  Serve({{.rank = 1, .step = 5, .action = Action::kHangUntilReleased}});
  const std::string id = server_->manager().Start(ServerUnderTest::Request(100, 2))->id();
  EXPECT_TRUE(Eventually([this] { return faults_->hung() > 0; }));
  EXPECT_TRUE(Eventually([this] { return unusable_.load(); }));
  // What a server that left now would find: it must not take the job up again.
  const v1::Job job = server_->store().GetJob(id).value();
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().code(), "DEADLINE_EXCEEDED");
  EXPECT_TRUE(server_->ReadLog(id).back().has_terminal());
  faults_->Release();
  EXPECT_TRUE(Eventually([this] { return server_->manager().Load().running == 0; }));
  EXPECT_EQ(server_->store().GetJob(id)->last_sequence(), job.last_sequence());
}

}  // namespace
}  // namespace lenet
