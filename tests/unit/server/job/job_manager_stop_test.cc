// Stop in every state, waiting for the end, draining.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/job_manager.h"
#include "server/store/job_state.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StopTest : public ::testing::Test {
 protected:
  static ServerUnderTestOptions Options(const FakeScript& script) {
    ServerUnderTestOptions options;
    options.script = [script](int) { return script; };
    return options;
  }

  std::string Start(int64_t max_steps = 0, int ranks = 2) {
    const absl::StatusOr<v1::Job> job = server_.manager().Start(ServerUnderTest::Request(max_steps, ranks));
    EXPECT_TRUE(job.ok()) << job.status();
    return job->id();
  }

  v1::Job Stop(const std::string& id, StopMode mode = StopMode::kCheckpoint) {
    const absl::StatusOr<v1::Job> job = server_.manager().Stop(id, mode);
    EXPECT_TRUE(job.ok()) << job.status();
    return *job;
  }

  v1::Job AwaitEnd(const std::string& id) { return server_.AwaitState(id, v1::STOPPED); }

  ServerUnderTest server_{Options({.step_time = kStepTime})};
};

TEST_F(StopTest, ARunningJobStopsAtOneStepAndSaves) {
  const std::string id = Start();
  server_.AwaitStep(id, 5);
  const v1::Job stopping = Stop(id);
  EXPECT_EQ(stopping.state(), v1::STOPPING);
  const v1::Job job = AwaitEnd(id);
  EXPECT_EQ(job.state(), v1::STOPPED);
  EXPECT_EQ(job.reason(), "stopped on request");
  EXPECT_GE(job.progress().step(), 5);
  EXPECT_TRUE(std::filesystem::exists(job.checkpoint()));
  EXPECT_EQ(job.weights_checksums_size(), 2);
  const v1::MetricRecord last = server_.ReadLog(id).back();
  EXPECT_EQ(last.terminal().state(), v1::STOPPED);
  EXPECT_THAT(last.terminal().rank_steps(), Each(job.progress().step()));
  EXPECT_EQ(last.terminal().rank_steps_size(), 2);
}

TEST_F(StopTest, AnAbortedJobSavesNothing) {
  const std::string id = Start();
  server_.AwaitStep(id, 5);
  Stop(id, StopMode::kAbort);
  const v1::Job job = AwaitEnd(id);
  EXPECT_EQ(job.state(), v1::STOPPED);
  EXPECT_THAT(job.reason(), HasSubstr("aborted on request"));
  EXPECT_TRUE(job.checkpoint().empty());
  EXPECT_EQ(AwaitEnd(Start(5)).state(), v1::SUCCEEDED);
}

// Another load of the same set, which this job waits for, is held.
TEST_F(StopTest, AJobThatLoadsItsDataStopsInTheMiddle) {
  Gate go_on;
  std::atomic<bool> loading{false};
  std::thread loader([&] {
    const auto hold = [&] {
      loading = true;
      go_on.Wait();
      return false;
    };
    EXPECT_TRUE(server_.catalog().Load("small", hold).ok());
  });
  EXPECT_TRUE(Eventually([&] { return loading.load(); }));
  const std::string id = Start();
  EXPECT_EQ(server_.AwaitState(id, v1::STARTING).state(), v1::STARTING);
  EXPECT_EQ(Stop(id).state(), v1::STOPPING);
  const v1::Job job = AwaitEnd(id);
  EXPECT_EQ(job.state(), v1::STOPPED);
  EXPECT_EQ(job.reason(), "stopped on request");
  EXPECT_TRUE(job.checkpoint().empty());
  EXPECT_EQ(server_.backend().groups_made(), 0);
  const v1::MetricRecord last = server_.ReadLog(id).back();
  EXPECT_THAT(last.terminal().rank_steps(), ElementsAre(0, 0));
  go_on.Open();
  loader.join();
  EXPECT_EQ(AwaitEnd(Start(5)).state(), v1::SUCCEEDED);
}

TEST_F(StopTest, AStateThatCannotBeSavedIsSaidInTheReason) {
  const auto obstruct = [this](const std::string& id) {
    std::ofstream(server_.folder() / "jobs" / id) << "in the way";
    return id;
  };
  const v1::Job completed = AwaitEnd(obstruct(Start(200)));
  EXPECT_EQ(completed.state(), v1::SUCCEEDED);
  EXPECT_THAT(completed.reason(), HasSubstr("completed 200 steps; the last state was not saved: "));
  const std::string id = obstruct(Start());
  server_.AwaitStep(id, 5);
  Stop(id);
  EXPECT_THAT(AwaitEnd(id).reason(), HasSubstr("; the last state was not saved: "));
  EXPECT_EQ(server_.ReadLog(id).back().terminal().reason(), AwaitEnd(id).reason());
}

TEST_F(StopTest, AJobWhoseStateCouldNotBeSavedIsNotAccepted) {
  std::filesystem::remove_all(server_.folder() / "jobs");
  std::ofstream(server_.folder() / "jobs") << "in the way";
  const absl::Status refused = server_.manager().Start(ServerUnderTest::Request(5)).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("checkpoints: cannot make the folder"));
  EXPECT_TRUE(server_.manager().ListJobs({})->jobs.empty());
}

TEST_F(StopTest, AQueuedJobNeverRuns) {
  const std::string running = Start();
  server_.AwaitStep(running, 1);
  for (StopMode mode : {StopMode::kCheckpoint, StopMode::kAbort}) {
    const std::string queued = Start(5);
    const v1::Job job = Stop(queued, mode);
    EXPECT_EQ(job.state(), v1::STOPPED);
    EXPECT_EQ(job.attempt(), 0u);
    EXPECT_FALSE(job.has_started_at());
    const std::vector<v1::MetricRecord> records = server_.ReadLog(queued);
    ASSERT_EQ(records.size(), 3u);
    EXPECT_EQ(records[0].state_change().to(), v1::QUEUED);
    EXPECT_EQ(records[1].state_change().to(), v1::STOPPED);
    EXPECT_EQ(records[2].terminal().last_step(), 0);
    EXPECT_EQ(records[2].terminal().rank_steps_size(), 2);
  }
  Stop(running);
  AwaitEnd(running);
  EXPECT_EQ(server_.manager().Load().queued, 0);
}

TEST_F(StopTest, RepeatedStopsAreHarmless) {
  const std::string id = Start();
  server_.AwaitStep(id, 1);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(server_.manager().Stop(id, StopMode::kCheckpoint).ok());
  const v1::Job job = AwaitEnd(id);
  EXPECT_EQ(job.state(), v1::STOPPED);
  for (StopMode mode : {StopMode::kCheckpoint, StopMode::kAbort}) {
    EXPECT_EQ(Stop(id, mode).SerializeAsString(), job.SerializeAsString());
  }
  EXPECT_TRUE(absl::IsNotFound(server_.manager().Stop("nothing", StopMode::kAbort).status()));
}

TEST_F(StopTest, AnEndedJobKeepsItsState) {
  const std::string id = Start(5);
  EXPECT_EQ(AwaitEnd(id).state(), v1::SUCCEEDED);
  EXPECT_EQ(Stop(id, StopMode::kAbort).state(), v1::SUCCEEDED);
}

TEST_F(StopTest, StoppingAtRandomMomentsAlwaysEnds) {
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    const std::string id = Start(60);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40000));
    Stop(id, i % 2 == 0 ? StopMode::kCheckpoint : StopMode::kAbort);
    const v1::Job job = AwaitEnd(id);
    EXPECT_TRUE(job.state() == v1::STOPPED || job.state() == v1::SUCCEEDED) << job.ShortDebugString();
    const std::vector<v1::MetricRecord> records = server_.ReadLog(id);
    EXPECT_EQ(records.back().terminal().state(), job.state());
    EXPECT_EQ(records[records.size() - 2].state_change().to(), job.state());
  }
}

TEST_F(StopTest, ManyThreadsStartAndStopAtOnce) {
  constexpr int kThreads = 6;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 15; ++i) {
        const std::string id = Start(t % 2 == 0 ? 3 : 0, 1 + i % 2);
        if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        Stop(id, i % 2 == 0 ? StopMode::kAbort : StopMode::kCheckpoint);
        EXPECT_TRUE(IsTerminal(AwaitEnd(id).state()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(server_.manager().WaitIdle(std::chrono::steady_clock::now() + kPatience));
}

TEST_F(StopTest, WaitingForTheEnd) {
  const std::string id = Start();
  server_.AwaitStep(id, 1);
  std::atomic<int> calls{0};
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  const uint64_t token = server_.manager().WaitForEnd(id, [&](absl::StatusOr<v1::Job> job) {
    state = job->state();
    ++calls;
  });
  EXPECT_NE(token, 0u);
  const uint64_t dropped =
      server_.manager().WaitForEnd(id, [](const absl::StatusOr<v1::Job>&) { FAIL() << "not to be called"; });
  EXPECT_TRUE(server_.manager().StopWaiting(id, dropped));
  EXPECT_FALSE(server_.manager().StopWaiting(id, dropped));
  EXPECT_EQ(calls, 0);
  Stop(id);
  EXPECT_TRUE(Eventually([&] { return calls == 1; }));
  EXPECT_EQ(state, v1::STOPPED);
  EXPECT_FALSE(server_.manager().StopWaiting(id, token));

  // Of an ended job, and of none.
  EXPECT_EQ(server_.manager().WaitForEnd(id, [&](const absl::StatusOr<v1::Job>& job) { calls += job.ok(); }), 0u);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(server_.manager().WaitForEnd(
                "nothing", [&](const absl::StatusOr<v1::Job>& job) { calls += absl::IsNotFound(job.status()); }),
            0u);
  EXPECT_EQ(calls, 3);
}

TEST_F(StopTest, DrainLeavesAllForTheNextServerAndAcceptsNoMore) {
  v1::StartRequest known = ServerUnderTest::Request(0, 2);
  known.set_request_id("known");
  const std::string running = server_.manager().Start(known)->id();
  server_.AwaitStep(running, 1);
  const std::string queued = Start(5);
  server_.manager().BeginDrain();
  EXPECT_TRUE(server_.manager().Load().draining);
  const absl::Status refused = server_.manager().Start(ServerUnderTest::Request(5)).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_EQ(server_.manager().Start(known)->id(), running);  // no new job

  EXPECT_TRUE(server_.manager().WaitIdle(std::chrono::steady_clock::now() + kPatience));
  const v1::Job job = server_.manager().GetJob(running).value();
  EXPECT_EQ(job.state(), v1::QUEUED);
  EXPECT_GE(job.progress().step(), 1);
  EXPECT_THAT(job.reason(),
              HasSubstr(absl::StrCat("the server is shutting down; goes on from step ", job.progress().step())));
  EXPECT_TRUE(std::filesystem::exists(job.checkpoint()));
  EXPECT_EQ(server_.manager().GetJob(queued)->state(), v1::QUEUED);
  EXPECT_EQ(server_.manager().GetJob(queued)->attempt(), 0u);
  server_.manager().BeginDrain();
  server_.manager().AbortAll();
}

TEST_F(StopTest, DestroyingTheManagerEndsWhatRuns) {
  const std::string id = Start();
  server_.AwaitStep(id, 1);
  server_.DestroyManager();
  EXPECT_EQ(server_.store().GetJob(id)->state(), v1::QUEUED);
}

// A rank hangs: an abort gets through where a stop does not.
class HangTest : public StopTest {
 protected:
  HangTest() {
    FakeScript script;
    script.faults = {{.kind = FakeFault::Kind::kHang, .rank = 1, .step = 0}};
    script.on_enqueue = [this](int rank, const StepChunk&) {
      if (rank == 1) hangs_ = true;
    };
    hanging_ = std::make_unique<ServerUnderTest>(Options(script));
  }

  // Starts a job and gives its id when the rank hangs, or is about to.
  std::string StartHanging() {
    std::string id = hanging_->manager().Start(ServerUnderTest::Request(0, 2))->id();
    EXPECT_TRUE(Eventually([this] { return hangs_.load(); }));
    EXPECT_EQ(hanging_->manager().GetJob(id)->state(), v1::RUNNING);
    return id;
  }

  std::atomic<bool> hangs_{false};
  std::unique_ptr<ServerUnderTest> hanging_;
};

TEST_F(HangTest, AbortIsAcceptedInStopping) {
  JobManager& manager = hanging_->manager();
  const std::string id = StartHanging();
  EXPECT_EQ(manager.Stop(id, StopMode::kCheckpoint)->state(), v1::STOPPING);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(manager.GetJob(id)->state(), v1::STOPPING);
  const v1::Job aborting = manager.Stop(id, StopMode::kAbort).value();
  EXPECT_EQ(aborting.state(), v1::STOPPING);
  EXPECT_EQ(aborting.reason(), "aborted on request");
  // A weaker request changes nothing.
  EXPECT_EQ(manager.Stop(id, StopMode::kCheckpoint)->reason(), "aborted on request");
  const v1::Job job = hanging_->AwaitState(id, v1::STOPPED);
  EXPECT_EQ(job.state(), v1::STOPPED);
  EXPECT_THAT(job.reason(), HasSubstr("aborted on request"));
}

TEST_F(HangTest, DrainTimesOutAndAbortAllEndsIt) {
  JobManager& manager = hanging_->manager();
  const std::string id = StartHanging();
  manager.BeginDrain();
  EXPECT_FALSE(manager.WaitIdle(std::chrono::steady_clock::now() + std::chrono::milliseconds(100)));
  manager.AbortAll();
  EXPECT_TRUE(manager.WaitIdle(std::chrono::steady_clock::now() + kPatience));
  EXPECT_EQ(manager.GetJob(id)->state(), v1::QUEUED);
  EXPECT_THAT(manager.GetJob(id)->reason(), HasSubstr("the server is shutting down; begins again"));
}

// A job that is held in its warm-up is in STARTING.
class StartingTest : public StopTest {
 protected:
  StartingTest() : slow_(Options({.step_time = kStepTime, .warm_up_time = std::chrono::milliseconds(200)})) {}

  ServerUnderTest slow_;
};

TEST_F(StartingTest, AJobStopsInStarting) {
  for (StopMode mode : {StopMode::kCheckpoint, StopMode::kAbort}) {
    const std::string id = slow_.manager().Start(ServerUnderTest::Request(0, 2))->id();
    slow_.AwaitState(id, v1::STARTING);
    EXPECT_EQ(slow_.manager().Stop(id, mode)->state(), v1::STOPPING);
    const v1::Job job = slow_.AwaitState(id, v1::STOPPED);
    EXPECT_EQ(job.state(), v1::STOPPED);
    EXPECT_EQ(job.progress().step(), 0);
    for (const v1::MetricRecord& record : slow_.ReadLog(id)) {
      EXPECT_NE(record.state_change().to(), v1::RUNNING);
    }
  }
}

}  // namespace
}  // namespace lenet
