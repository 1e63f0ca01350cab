// Start, the queue, devices and what a job's record and log tell.
#include "server/job/job_manager.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/job_state.h"
#include "tests/support/server_under_test.h"
#include "trainer/train/safetensors.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string StartJob(ServerUnderTest* server, const v1::StartRequest& request) {
  const absl::StatusOr<v1::Job> job = server->manager().Start(request);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->id() : "";
}

v1::Job AwaitEnd(ServerUnderTest* server, const std::string& id) { return server->AwaitState(id, v1::SUCCEEDED); }

TEST(JobManagerTest, RunsAJobToItsEnd) {
  ServerUnderTest server;
  v1::StartRequest request = ServerUnderTest::Request(0, 2);
  request.set_name("my job");
  request.mutable_spec()->clear_max_steps();
  request.mutable_spec()->set_epochs(2);
  const v1::Job accepted = server.manager().Start(request).value();
  EXPECT_EQ(accepted.name(), "my job");
  EXPECT_EQ(accepted.resolved().total_steps(), 40);
  EXPECT_TRUE(accepted.has_created_at());

  const v1::Job job = AwaitEnd(&server, accepted.id());
  EXPECT_EQ(job.state(), v1::SUCCEEDED) << job.reason();
  EXPECT_EQ(job.reason(), "completed 40 steps");
  EXPECT_EQ(job.spec().SerializeAsString(), request.spec().SerializeAsString());
  EXPECT_EQ(job.attempt(), 1u);
  EXPECT_TRUE(job.has_started_at());
  EXPECT_TRUE(job.has_ended_at());
  EXPECT_EQ(job.progress().step(), 40);
  EXPECT_EQ(job.progress().epoch(), 2);
  EXPECT_TRUE(job.progress().evaluated());
  EXPECT_EQ(job.progress().accuracy(), 0.5);
  ASSERT_EQ(job.weights_checksums_size(), 2);
  EXPECT_EQ(job.weights_checksums(0), job.weights_checksums(1));
  EXPECT_FALSE(job.has_failure());
  const v1::ResolvedSpec& resolved = job.resolved();
  EXPECT_EQ(resolved.backend(), "fake");
  EXPECT_EQ(resolved.engine(), "fake");
  EXPECT_EQ(resolved.device_kind(), "fake v1");
  EXPECT_THAT(resolved.device_ids(), ElementsAre(0, 1));
  EXPECT_EQ(resolved.classes(), 10);
  EXPECT_EQ(resolved.parameters(), 44426);
  EXPECT_EQ(resolved.library_versions().at("fakelib"), "1.0");
  EXPECT_THAT(job.checkpoint(), HasSubstr("jobs/" + job.id()));
  const absl::StatusOr<TensorFile> saved = ReadTensorFile(job.checkpoint());
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->metadata.at("attempt"), "1");
  EXPECT_EQ(saved->metadata.at("device_kind"), "fake v1");
  EXPECT_EQ(saved->metadata.at("fakelib"), "1.0");
}

TEST(JobManagerTest, TheLogTellsTheWholeStoryInOrder) {
  ServerUnderTest server;
  v1::StartRequest request = ServerUnderTest::Request(0, 2);
  request.mutable_spec()->clear_max_steps();
  request.mutable_spec()->set_epochs(2);
  const std::string id = StartJob(&server, request);
  const std::vector<v1::MetricRecord> records = server.ReadLog(id);

  std::vector<std::string> kinds;
  std::vector<std::vector<int64_t>> steps(2);
  for (size_t i = 0; i < records.size(); ++i) {
    const v1::MetricRecord& record = records[i];
    EXPECT_EQ(record.sequence(), i + 1);
    EXPECT_TRUE(record.has_time());
    switch (record.kind_case()) {
      case v1::MetricRecord::kStateChange:
        kinds.push_back(v1::JobState_Name(record.state_change().to()));
        EXPECT_FALSE(record.state_change().reason().empty());
        break;
      case v1::MetricRecord::kStepLosses:
        for (int j = 0; j < record.step_losses().steps_size(); ++j) {
          steps[static_cast<size_t>(record.step_losses().ranks(j))].push_back(record.step_losses().steps(j));
        }
        break;
      case v1::MetricRecord::kEpochSummary:
        kinds.push_back("epoch");
        for (const auto& rank : steps) {
          EXPECT_EQ(static_cast<int64_t>(rank.size()), record.epoch_summary().last_step());
        }
        break;
      case v1::MetricRecord::kEvaluation:
        kinds.push_back("evaluation");
        EXPECT_EQ(record.evaluation().count(), 100);
        break;
      case v1::MetricRecord::kCheckpointSaved:
        kinds.push_back("checkpoint");
        break;
      case v1::MetricRecord::kTerminal:
        kinds.push_back("terminal");
        EXPECT_EQ(record.terminal().state(), v1::SUCCEEDED);
        EXPECT_EQ(record.terminal().last_step(), 40);
        EXPECT_THAT(record.terminal().rank_steps(), ElementsAre(40, 40));
        EXPECT_EQ(record.terminal().evaluation().correct(), 50);
        break;
      default:
        ADD_FAILURE() << record.ShortDebugString();
    }
  }
  // Summary and evaluation of an epoch may stand in either order, as the training reports them.
  EXPECT_EQ(kinds.front(), "QUEUED");
  EXPECT_EQ(kinds[1], "STARTING");
  EXPECT_EQ(kinds[2], "RUNNING");
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "epoch"), 2);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "evaluation"), 2);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "checkpoint"), 1);
  EXPECT_EQ(kinds[kinds.size() - 2], "SUCCEEDED");
  EXPECT_EQ(kinds.back(), "terminal");
  for (const auto& rank : steps) {
    ASSERT_EQ(rank.size(), 40u);
    for (size_t i = 0; i < rank.size(); ++i) EXPECT_EQ(rank[i], static_cast<int64_t>(i) + 1);
  }
  EXPECT_EQ(server.manager().GetJob(id)->last_sequence(), records.size());
}

TEST(JobManagerTest, NoChangeToRunningComesAfterALoss) {
  ServerUnderTest server;
  for (int i = 0; i < 20; ++i) {
    bool running = false;
    for (const v1::MetricRecord& record : server.ReadLog(StartJob(&server, ServerUnderTest::Request(5, 2)))) {
      if (record.has_state_change()) running = record.state_change().to() == v1::RUNNING;
      EXPECT_TRUE(running || !record.has_step_losses());
    }
  }
}

TEST(JobManagerTest, JobsStartInTheirOrderOneAfterTheOther) {
  ServerUnderTest server(Paced());
  std::vector<std::string> ids(5);
  for (std::string& id : ids) id = StartJob(&server, ServerUnderTest::Request(20, 2));
  EXPECT_EQ(server.manager().GetJob(ids[4])->queue_position(), 4);
  std::vector<v1::Job> jobs;
  jobs.reserve(ids.size());
  for (const std::string& id : ids) jobs.push_back(AwaitEnd(&server, id));
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(jobs[i].state(), v1::SUCCEEDED);
    if (i == 0) continue;
    EXPECT_LT(jobs[i - 1].id(), jobs[i].id());
    EXPECT_LE(absl::Nanoseconds(jobs[i - 1].ended_at().nanos()) + absl::Seconds(jobs[i - 1].ended_at().seconds()),
              absl::Nanoseconds(jobs[i].started_at().nanos()) + absl::Seconds(jobs[i].started_at().seconds()));
  }
  EXPECT_EQ(server.backend().groups_made(), 1);  // one for all of them
}

TEST(JobManagerTest, JobsOnDisjointDevicesRunAtTheSameTime) {
  ServerUnderTest server(Paced(3));
  v1::StartRequest listed = ServerUnderTest::Request(0, 0);
  listed.mutable_spec()->add_device_ids(2);
  const std::string a = StartJob(&server, ServerUnderTest::Request(0, 2));
  const std::string b = StartJob(&server, listed);
  EXPECT_EQ(server.AwaitStep(a, 1).state(), v1::RUNNING);
  EXPECT_EQ(server.AwaitStep(b, 1).state(), v1::RUNNING);
  const auto holders = [&server] {
    std::vector<std::string> ids;
    for (const DevicePool::Device& device : server.manager().Load().devices) ids.push_back(device.holder);
    return ids;
  };
  EXPECT_THAT(holders(), ElementsAre(a, a, b));
  EXPECT_EQ(server.manager().Load().running, 2);
  for (const std::string& id : {a, b}) {
    ASSERT_TRUE(server.manager().Stop(id, StopMode::kCheckpoint).ok());
    EXPECT_EQ(AwaitEnd(&server, id).state(), v1::STOPPED);
  }
  EXPECT_TRUE(Eventually([&] { return server.manager().Load().running == 0; }));
  EXPECT_THAT(holders(), ElementsAre("", "", ""));
}

TEST(JobManagerTest, NoneOvertakesTheFirstOfTheQueue) {
  ServerUnderTest server(Paced(2));
  const std::string one = StartJob(&server, ServerUnderTest::Request(0, 1));
  server.AwaitStep(one, 1);
  const std::string both = StartJob(&server, ServerUnderTest::Request(20, 2));
  const std::string other = StartJob(&server, ServerUnderTest::Request(20, 1));  // its device is free
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(server.manager().GetJob(both)->state(), v1::QUEUED);
  EXPECT_EQ(server.manager().GetJob(both)->queue_position(), 1);
  EXPECT_EQ(server.manager().GetJob(other)->state(), v1::QUEUED);
  EXPECT_EQ(server.manager().GetJob(other)->queue_position(), 2);
  // When the first of them is gone, the other goes on at once.
  ASSERT_TRUE(server.manager().Stop(both, StopMode::kCheckpoint).ok());
  EXPECT_EQ(AwaitEnd(&server, other).state(), v1::SUCCEEDED);
  EXPECT_EQ(server.manager().GetJob(one)->state(), v1::RUNNING);
}

TEST(JobManagerTest, RanksMayOutnumberSharedDevices) {
  ServerUnderTestOptions options;
  options.oversubscribable = true;
  ServerUnderTest server(options);
  const v1::Job job = AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(10, 5)));
  EXPECT_EQ(job.state(), v1::SUCCEEDED) << job.reason();
  EXPECT_THAT(job.resolved().device_ids(), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_EQ(job.weights_checksums_size(), 5);
}

TEST(JobManagerTest, RefusesASpecWithFieldsThatItDoesNotKnow) {
  ServerUnderTest server;
  v1::StartRequest request = ServerUnderTest::Request(10);
  request.set_request_id("once");
  StartJob(&server, request);
  const auto refusal = [&] {
    const absl::Status status = server.manager().Start(request).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  v1::TrainingSpec* const spec = request.mutable_spec();
  spec->GetReflection()->MutableUnknownFields(spec)->AddLengthDelimited(1234, std::string(1 << 19, 'x'));
  EXPECT_EQ(refusal(), "spec: this server does not know field number 1234");
  spec->DiscardUnknownFields();
  v1::Optimizer* const optimizer = spec->mutable_optimizer();
  optimizer->GetReflection()->MutableUnknownFields(optimizer)->AddVarint(99, 1);
  EXPECT_EQ(refusal(), "spec.optimizer: this server does not know field number 99");
  EXPECT_EQ(server.manager().ListJobs({})->jobs.size(), 1u);
}

TEST(JobManagerTest, ARequestIdMakesOneJob) {
  ServerUnderTest server;
  v1::StartRequest request = ServerUnderTest::Request(10);
  request.set_request_id("once");
  const std::string id = StartJob(&server, request);
  EXPECT_EQ(StartJob(&server, request), id);
  AwaitEnd(&server, id);
  const v1::Job again = server.manager().Start(request).value();
  EXPECT_EQ(again.id(), id);
  EXPECT_EQ(again.state(), v1::SUCCEEDED);

  request.mutable_spec()->set_max_steps(11);
  const absl::Status status = server.manager().Start(request).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(id));
  EXPECT_EQ(server.manager().ListJobs({})->jobs.size(), 1u);
}

TEST(JobManagerTest, ARequestIdFromTenThreadsMakesOneJob) {
  ServerUnderTest server;
  for (int round = 0; round < 10; ++round) {
    v1::StartRequest request = ServerUnderTest::Request(3);
    request.set_request_id("round " + std::to_string(round));
    std::vector<std::string> ids(10);
    std::vector<std::thread> threads;
    threads.reserve(ids.size());
    for (std::string& id : ids) threads.emplace_back([&] { id = StartJob(&server, request); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 1u);
    EXPECT_EQ(server.manager().ListJobs({.limit = 100})->jobs.size(), static_cast<size_t>(round) + 1);
  }
}

TEST(JobManagerTest, RefusesTextsThatAreTooLongOrNotPrintable) {
  ServerUnderTest server;
  v1::StartRequest request = ServerUnderTest::Request(10);
  request.set_name(std::string(65, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(server.manager().Start(request).status()));
  for (const char* text : {"a\x1b[31m", "a\u009b31m", "a\u202eb"}) {
    request.set_name(text);
    EXPECT_TRUE(absl::IsInvalidArgument(server.manager().Start(request).status())) << text;
  }
  request.set_name(std::string(64, 'x'));
  request.set_request_id(std::string(129, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(server.manager().Start(request).status()));
  request.set_request_id(std::string(128, 'x'));
  EXPECT_TRUE(server.manager().Start(request).ok());
}

TEST(JobManagerTest, TheQueueHasALimit) {
  ServerUnderTestOptions options = Paced();
  options.manager.limits.max_queued = 2;
  ServerUnderTest server(options);
  const std::string running = StartJob(&server, ServerUnderTest::Request(0, 2));
  server.AwaitStep(running, 1);
  StartJob(&server, ServerUnderTest::Request(5, 2));
  StartJob(&server, ServerUnderTest::Request(5, 2));
  const absl::Status status = server.manager().Start(ServerUnderTest::Request(5, 2)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("limit is 2"));

  // What is wrong is wrong whatever waits.
  v1::StartRequest bad = ServerUnderTest::Request(5, 2);
  bad.mutable_spec()->set_batch_size(0);
  EXPECT_TRUE(absl::IsInvalidArgument(server.manager().Start(bad).status()));
}

TEST(JobManagerTest, TheLimitsCanBeChangedWhileOthersStartJobs) {
  ServerUnderTestOptions options = Paced();
  options.manager.limits.max_queued = 1;
  ServerUnderTest server(options);
  const std::string running = StartJob(&server, ServerUnderTest::Request(0, 2));
  server.AwaitStep(running, 1);
  const std::string waiting = StartJob(&server, ServerUnderTest::Request(5, 2));
  const auto start = [&] { return server.manager().Start(ServerUnderTest::Request(5, 2)).status(); };
  EXPECT_TRUE(absl::IsResourceExhausted(start()));

  std::thread starts([&] { EXPECT_TRUE(Eventually([&] { return start().ok(); })); });
  server.manager().SetLimits({.max_queued = 2});
  starts.join();
  EXPECT_THAT(std::string(start().message()), HasSubstr("2 jobs are queued or paused; the limit is 2"));

  // Fewer than there are: these stay.
  server.manager().SetLimits({.max_queued = 1});
  EXPECT_THAT(std::string(start().message()), HasSubstr("2 jobs are queued or paused; the limit is 1"));
  EXPECT_EQ(server.manager().GetJob(waiting)->state(), v1::QUEUED);

  server.manager().SetLimits({.max_queued = 10, .max_jobs_per_client = 3});
  EXPECT_THAT(std::string(start().message()), HasSubstr("has 3 jobs that have not ended; the limit is 3"));
}

TEST(JobManagerTest, PausedJobsCountAsWaitingAndMayAllBeResumed) {
  ServerUnderTestOptions options = Paced();
  options.manager.limits.max_queued = 2;
  ServerUnderTest server(options);
  const std::string running = StartJob(&server, ServerUnderTest::Request(0, 2));
  server.AwaitStep(running, 1);
  const std::string queued = StartJob(&server, ServerUnderTest::Request(5, 2));
  const std::string paused = StartJob(&server, ServerUnderTest::Request(5, 2));
  const auto ignore = [](const absl::StatusOr<v1::Job>& job) { EXPECT_EQ(job->state(), v1::PAUSED); };
  server.manager().Pause(paused, ignore);
  EXPECT_EQ(server.manager().Load().queued, 1);
  const absl::Status status = server.manager().Start(ServerUnderTest::Request(5, 2)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 jobs are queued or paused; the limit is 2"));

  EXPECT_EQ(server.manager().Resume(paused)->state(), v1::QUEUED);
  EXPECT_EQ(server.manager().Resume(queued)->state(), v1::QUEUED);
  EXPECT_EQ(server.manager().Resume(running)->state(), v1::RUNNING);
  EXPECT_TRUE(absl::IsNotFound(server.manager().Resume("nothing").status()));
  ASSERT_TRUE(server.manager().Stop(queued, StopMode::kAbort).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(server.manager().Resume(queued).status()));
  EXPECT_TRUE(server.manager().Start(ServerUnderTest::Request(5, 2)).ok());
}

TEST(JobManagerTest, AcceptsNothingBeforeItServes) {
  ServerUnderTestOptions options;
  options.serve = false;
  ServerUnderTest server(options);
  EXPECT_TRUE(absl::IsUnavailable(server.manager().Start(ServerUnderTest::Request(5)).status()));
  ASSERT_TRUE(server.manager().WarmUp().ok());
  EXPECT_TRUE(absl::IsUnavailable(server.manager().Start(ServerUnderTest::Request(5)).status()));
  server.manager().Serve();
  EXPECT_EQ(AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(5, 2))).state(), v1::SUCCEEDED);
  EXPECT_EQ(server.backend().groups_made(), 1);  // the job took the group of the warm-up
}

TEST(JobManagerTest, AFailedJobSaysWhereAndTheNextOneRuns) {
  ServerUnderTestOptions options;
  options.script = [](int group) {
    FakeScript script;
    if (group == 0) script.faults = {{.rank = 1, .step = 7, .status = absl::DataLossError("bit flip")}};
    return script;
  };
  ServerUnderTest server(options);
  const std::string bad = StartJob(&server, ServerUnderTest::Request(100, 2));
  const std::string good = StartJob(&server, ServerUnderTest::Request(100, 2));
  const v1::Job job = AwaitEnd(&server, bad);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().rank(), 1);
  EXPECT_EQ(job.failure().phase(), "step");
  EXPECT_EQ(job.failure().code(), "DATA_LOSS");
  EXPECT_THAT(job.failure().message(), HasSubstr("bit flip"));
  EXPECT_THAT(job.reason(), HasSubstr("bit flip"));
  EXPECT_EQ(job.weights_checksums_size(), 0);
  const std::vector<v1::MetricRecord> records = server.ReadLog(bad);
  EXPECT_EQ(records.back().terminal().state(), v1::FAILED);
  EXPECT_EQ(records.back().terminal().failure().code(), "DATA_LOSS");
  EXPECT_EQ(records.back().terminal().rank_steps_size(), 2);

  EXPECT_EQ(AwaitEnd(&server, good).state(), v1::SUCCEEDED);
  // Two of the jobs, and two to see whether the failed one's devices work.
  EXPECT_EQ(server.backend().groups_made(), 4);
}

TEST(JobManagerTest, AGroupThatCannotBeMadeFailsItsJobAlone) {
  ServerUnderTestOptions options;
  options.script = [](int group) -> absl::StatusOr<FakeScript> {
    if (group == 0) return absl::InternalError("communicator set-up failed");
    return FakeScript{};
  };
  ServerUnderTest server(options);
  const v1::Job bad = AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(10)));
  EXPECT_EQ(bad.state(), v1::FAILED);
  EXPECT_EQ(bad.failure().phase(), "init");
  EXPECT_EQ(bad.failure().rank(), -1);
  EXPECT_EQ(bad.reason(), "in init: INTERNAL: communicator set-up failed");
  EXPECT_EQ(AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(10))).state(), v1::SUCCEEDED);
}

// Groups of two ranks hold the memory that a group of one then needs.
class FullDevicesTest : public ::testing::Test {
 protected:
  // The group number `full` finds no memory in `call` on its rank 0.
  static ServerUnderTestOptions Full(FakeCall call, std::set<int> full) {
    ServerUnderTestOptions options;
    options.script = [call, full](int group) {
      FakeScript script;
      if (full.contains(group)) script.faults = {{.call = call, .status = absl::ResourceExhaustedError("no memory")}};
      return script;
    };
    return options;
  }
};

TEST_F(FullDevicesTest, IdleGroupsMakeRoomForAJob) {
  for (const FakeCall call : {FakeCall::kNewEngine, FakeCall::kWarmUp}) {
    ServerUnderTest server(Full(call, {1}));
    EXPECT_EQ(AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(5, 2))).state(), v1::SUCCEEDED);
    const std::string id = StartJob(&server, ServerUnderTest::Request(5, 1));
    const v1::Job job = AwaitEnd(&server, id);
    EXPECT_EQ(job.state(), v1::SUCCEEDED) << job.reason();
    EXPECT_EQ(server.backend().groups_made(), 3);
    EXPECT_EQ(server.ReadLog(id).back().terminal().last_step(), 5);
    // The idle group is gone.
    EXPECT_EQ(AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(5, 2))).state(), v1::SUCCEEDED);
    EXPECT_EQ(server.backend().groups_made(), 4);
  }
}

TEST_F(FullDevicesTest, AJobThatStillFindsNoMemoryFails) {
  ServerUnderTest server(Full(FakeCall::kNewEngine, {1, 2}));
  EXPECT_EQ(AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(5, 2))).state(), v1::SUCCEEDED);
  const v1::Job job = AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(5, 1)));
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failure().code(), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(server.backend().groups_made(), 3);
}

TEST_F(FullDevicesTest, WithoutIdleGroupsThereIsNoSecondTry) {
  ServerUnderTest server(Full(FakeCall::kNewEngine, {0}));
  EXPECT_EQ(AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(5, 2))).state(), v1::FAILED);
  EXPECT_EQ(server.backend().groups_made(), 1);
}

TEST(JobManagerTest, DataThatIsBadBehindItsHeadersFailsTheJobInLoading) {
  ServerUnderTest server;
  v1::StartRequest request = ServerUnderTest::Request(10);
  request.mutable_spec()->set_dataset("bad-labels");
  const v1::Job bad = AwaitEnd(&server, StartJob(&server, request));
  EXPECT_EQ(bad.state(), v1::FAILED);
  EXPECT_EQ(bad.failure().phase(), "load");
  EXPECT_THAT(bad.failure().message(), HasSubstr("200"));
  EXPECT_EQ(AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(10))).state(), v1::SUCCEEDED);
}

TEST(JobManagerTest, ANanLossFailsTheJobOrIsReported) {
  ServerUnderTestOptions options;
  options.script = [](int) {
    FakeScript script;
    script.faults = {{.kind = FakeFault::Kind::kLoss, .rank = 0, .step = 3, .loss = std::nanf("")}};
    return script;
  };
  ServerUnderTest server(options);
  v1::StartRequest request = ServerUnderTest::Request(10);
  const v1::Job stopped = AwaitEnd(&server, StartJob(&server, request));
  EXPECT_EQ(stopped.state(), v1::FAILED);
  request.mutable_spec()->set_nan_policy(v1::NAN_POLICY_CONTINUE);
  const std::string id = StartJob(&server, request);
  EXPECT_EQ(AwaitEnd(&server, id).state(), v1::SUCCEEDED);
  int nans = 0;
  for (const v1::MetricRecord& record : server.ReadLog(id)) {
    for (float loss : record.step_losses().losses()) nans += std::isnan(loss);
  }
  EXPECT_EQ(nans, 1);
}

TEST(JobManagerTest, ReadsTheLogOfARunningJobFromAnywhere) {
  ServerUnderTest server(Paced());
  const std::string id = StartJob(&server, ServerUnderTest::Request(400, 2));
  std::vector<std::thread> readers;
  std::vector<std::vector<v1::MetricRecord>> logs(5);
  for (size_t i = 0; i < logs.size(); ++i) {
    readers.emplace_back([&, i] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * i));
      logs[i] = server.ReadLog(id);
    });
  }
  for (std::thread& reader : readers) reader.join();
  for (const auto& log : logs) {
    ASSERT_EQ(log.size(), logs[0].size());
    for (size_t i = 0; i < log.size(); ++i) EXPECT_EQ(log[i].SerializeAsString(), logs[0][i].SerializeAsString());
  }
  EXPECT_TRUE(absl::IsNotFound(server.manager().ReadMetrics("nothing", 0, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(server.manager().ReadMetrics(id, 0, {.ranks = {2}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(server.manager().ReadMetrics(id, 0, {.ranks = {-1}}).status()));
}

TEST(JobManagerTest, ProgressMovesWhileTheJobRuns) {
  ServerUnderTest server(Paced());
  const std::string id = StartJob(&server, ServerUnderTest::Request(0, 2));
  const v1::Job early = server.AwaitStep(id, 5);
  const v1::Job later = server.AwaitStep(id, early.progress().step() + 100);
  EXPECT_GT(later.progress().step(), early.progress().step());
  EXPECT_GT(later.progress().loss(), 0);
  EXPECT_LT(later.progress().loss(), 3);
  EXPECT_GT(later.progress().images_per_second(), 0);
}

TEST(JobManagerTest, AnEpochThatIsCutShortIsNotCompleted) {
  Gate gate;
  std::atomic<bool> evaluating{false};
  ServerUnderTestOptions options;
  options.script = [&](int) {
    FakeScript script;
    script.on_evaluate = [&](int, int64_t, int64_t) {
      evaluating = true;
      gate.Wait();
    };
    return script;
  };
  ServerUnderTest server(options);
  const std::string id = StartJob(&server, ServerUnderTest::Request(5));  // of the 40 steps of an epoch
  EXPECT_TRUE(Eventually([&] { return evaluating.load(); }));
  const v1::Job job = server.manager().GetJob(id).value();
  gate.Open();
  EXPECT_EQ(job.progress().step(), 5);
  EXPECT_EQ(job.progress().epoch(), 0);
  EXPECT_EQ(AwaitEnd(&server, id).progress().epoch(), 0);
}

TEST(JobManagerTest, FiftyJobsInARowLeaveNoThreads) {
  const auto threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
  ServerUnderTest server;
  AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(5, 2)));
  ASSERT_TRUE(Eventually([&] { return server.manager().Load().running == 0; }));
  const auto before = threads();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(AwaitEnd(&server, StartJob(&server, ServerUnderTest::Request(5, 2))).state(), v1::SUCCEEDED);
  }
  ASSERT_TRUE(Eventually([&] { return server.manager().Load().running == 0; }));
  EXPECT_LE(threads(), before + 1);
  EXPECT_EQ(server.backend().groups_made(), 1);
}

}  // namespace
}  // namespace lenet
