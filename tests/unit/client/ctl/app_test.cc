// lenetctl's commands against a server in this process.
#include "client/ctl/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/job_view.h"
#include "client/ctl/text.h"
#include "tests/unit/client/ctl/app_fixture.h"

namespace lenet::ctl {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(AppTest, WatchInAPipePrintsOneLineAFact) {
  service_.PutJob(ResolvedJob("a", 10));
  AppendLog("a");
  AppendEnd("a", v1::SUCCEEDED);
  EXPECT_EQ(Run("watch a", &file_), kSuccess) << file_.err;
  EXPECT_EQ(file_.err, "");
  std::string expected =
      "job a: lenet on mnist, 2 ranks x 8 images, cpu devices 0,1, 10 steps (5 an epoch), learning rate 0.1, seed "
      "1\n"
      "job a: queued\n"
      "job a: starting\n"
      "job a: running\n";
  for (int step = 1; step <= 10; ++step) {
    absl::StrAppendFormat(&expected, "step %d rank 0 loss %.4f\nstep %d rank 1 loss 2.2500\n", step, 2.5 - 0.1 * step,
                          step);
    if (step % 5 == 0) {
      absl::StrAppend(&expected, "epoch ", step / 5,
                      "/2: mean loss 2.2500, 41,234 images/s, 1.50 s, learning rate 0.05\n", "evaluation at step ",
                      step, ": accuracy 98.92 % (9,892 of 10,000), mean loss 0.0340, 0.00 s\n");
    }
  }
  absl::StrAppend(&expected,
                  "checkpoint at step 10: /var/a? (355 kB)\n"
                  "warning: the disk is?[5m nearly full\n"
                  "job a: succeeded after 10 steps, accuracy 98.92 %\n");
  EXPECT_EQ(file_.out, expected);
}

TEST_F(AppTest, AJobThatWaitedIsDescribedWhereItsFirstAttemptBegins) {
  service_.PutJob(NewJob("a", v1::QUEUED));
  std::thread server([&] {
    while (service_.streams().empty()) absl::SleepFor(absl::Milliseconds(1));
    // It is known by the time at which the first record is read.
    service_.PutJob(ResolvedJob("a", 10));
    service_.Append("a", StateRecord(v1::JOB_STATE_UNSPECIFIED, v1::QUEUED));
    service_.Append("a", StateRecord(v1::QUEUED, v1::STARTING));
    service_.Append("a", TerminalRecord(v1::SUCCEEDED, 10));
  });
  EXPECT_EQ(Run("watch a", &file_), kSuccess) << file_.err;
  server.join();
  EXPECT_THAT(file_.out, StartsWith("job a: queued\njob a: lenet on mnist, 2 ranks x 8 images"));
  EXPECT_THAT(file_.out, EndsWith("\njob a: starting\njob a: succeeded after 10 steps\n"));
}

TEST_F(AppTest, ALongJobIsThinnedInAPipeUnlessStepsAreAskedFor) {
  service_.PutJob(ResolvedJob("a", 1000));
  for (int step = 1; step <= 1000; ++step) service_.Append("a", StepRecord(step, {2.0f, 2.0f}));
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 1000));
  EXPECT_EQ(Run("watch a", &file_), kSuccess);
  EXPECT_THAT(file_.out, HasSubstr("\nstep 1 rank 0 loss 2.0000\nstep 1 rank 1 loss 2.0000\nstep 20 rank 0"));
  EXPECT_THAT(file_.out, HasSubstr("\nstep 1000 rank 1"));
  EXPECT_EQ(std::count(file_.out.begin(), file_.out.end(), '\n'), 1 + 2 * 51 + 1);
  FakeFile all;
  EXPECT_EQ(Run("watch a --every 1", &all), kSuccess);
  EXPECT_EQ(std::count(all.out.begin(), all.out.end(), '\n'), 1 + 2 * 1000 + 1);
  EXPECT_EQ(service_.streams().back().every_n_steps(), 1);
}

TEST_F(AppTest, WatchOnATerminalLeavesEpochsAndClearsTheProgress) {
  service_.PutJob(ResolvedJob("a", 10));
  AppendLog("a");
  FakeTerminal terminal(60);
  std::thread ender([&] {
    // Long enough for the display to be drawn.
    absl::SleepFor(absl::Milliseconds(400));
    AppendEnd("a", v1::SUCCEEDED);
  });
  EXPECT_EQ(Run("watch a", &terminal), kSuccess);
  ender.join();
  EXPECT_THAT(terminal.Screen().back(), "job a: succeeded after 10 steps, accuracy 98.92 %");
  const std::string screen = absl::StrJoin(terminal.Screen(), "\n");
  EXPECT_THAT(screen, HasSubstr("epoch 2/2: mean loss 2.2500"));
  EXPECT_THAT(screen, Not(HasSubstr("ETA")));
  EXPECT_THAT(screen, Not(HasSubstr("rank 1:")));
  EXPECT_EQ(terminal.unknown(), "");
  EXPECT_GT(service_.streams()[0].max_rate(), 0);
}

TEST_F(AppTest, WatchAsJsonPrintsEachRecordAndNothingElse) {
  service_.PutJob(ResolvedJob("a", 10));
  AppendLog("a");
  v1::MetricRecord odd =
      StepRecord(11, {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity()});
  service_.Append("a", odd);
  AppendEnd("a", v1::STOPPED);
  EXPECT_EQ(Run("watch a --json", &file_), kJobStopped);
  const std::vector<nlohmann::json> lines = JsonLines(file_.out);
  ASSERT_EQ(lines.size(), 3u + 10 + 4 + 2 + 1 + 1);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].value("sequence", ""), std::to_string(i + 1));
  EXPECT_EQ(lines[3]["step_losses"]["ranks"], nlohmann::json({0, 1}));
  EXPECT_EQ(lines[3]["step_losses"]["steps"], nlohmann::json({"1", "1"}));
  EXPECT_EQ(lines[19]["step_losses"]["losses"], nlohmann::json({"NaN", "Infinity", "-Infinity"}));
  EXPECT_EQ(lines[20]["terminal"]["state"], "STOPPED");
  EXPECT_EQ(lines[20]["terminal"]["last_step"], "10");
  EXPECT_EQ(lines[2]["state_change"]["reason"], "");
}

TEST_F(AppTest, SubmitQueuesFollowsAndTellsHowTheJobEnded) {
  for (const auto& [state, code] : std::vector<std::pair<v1::JobState, int>>{
           {v1::SUCCEEDED, kSuccess}, {v1::FAILED, kJobFailed}, {v1::STOPPED, kJobStopped}}) {
    FakeService service;
    FakeServer server(&service);
    service.AddDataset("mnist", true);
    v1::MetricRecord terminal = TerminalRecord(state, 3);
    if (state == v1::FAILED) {
      terminal.mutable_terminal()->mutable_failure()->set_rank(1);
      terminal.mutable_terminal()->mutable_failure()->set_message("launch failed");
    }
    service.Append("job-1", terminal);
    FakeFile file;
    EXPECT_EQ(RunApp({"submit", "--epochs", "2", "--name", "n"}, server.address(), nullptr, &file), code);
    EXPECT_THAT(file.out, HasSubstr("after 3 steps"));
    EXPECT_EQ(file.err.empty(), state != v1::FAILED) << file.err;
    if (state == v1::FAILED) {
      EXPECT_THAT(file.err, StartsWith("lenetctl: job job-1 failed: rank 1"));
      EXPECT_THAT(file.err, HasSubstr("launch failed"));
    }
    ASSERT_EQ(service.starts().size(), 1u);
    EXPECT_EQ(service.starts()[0].spec().epochs(), 2);
    EXPECT_EQ(service.starts()[0].name(), "n");
    EXPECT_THAT(service.starts()[0].request_id(), StartsWith("lenetctl-"));
  }
}

TEST_F(AppTest, EverySubmitHasARequestIdOfItsOwnUnlessOneIsGiven) {
  service_.AddDataset("mnist", true);
  EXPECT_EQ(Run("submit --detach", &file_), kSuccess);
  EXPECT_EQ(Run("submit --detach", &file_), kSuccess);
  EXPECT_EQ(file_.out, "job-1\njob-2\n");
  EXPECT_EQ(Run("submit --detach --request-id r", &file_), kSuccess);
  EXPECT_EQ(Run("submit --detach --request-id r", &file_), kSuccess);
  EXPECT_EQ(file_.out, "job-1\njob-2\njob-3\njob-3\n");
  EXPECT_EQ(file_.err, "");
}

TEST_F(AppTest, SubmitAsJsonPrintsTheJobThenItsRecords) {
  service_.Append("job-1", TerminalRecord(v1::SUCCEEDED, 3));
  EXPECT_EQ(Run("submit --json --dataset mnist", &file_), kSuccess);
  const std::vector<nlohmann::json> lines = JsonLines(file_.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["id"], "job-1");
  EXPECT_EQ(lines[0]["spec"]["dataset"], "mnist");
  EXPECT_EQ(lines[1]["terminal"]["state"], "SUCCEEDED");
  FakeFile detached;
  EXPECT_EQ(Run("submit --json --dataset mnist --detach", &detached), kSuccess);
  EXPECT_EQ(JsonLines(detached.out)[0]["id"], "job-2");
}

TEST_F(AppTest, SubmitChoosesTheDataSet) {
  EXPECT_EQ(Run("submit --detach", &file_), kError);
  EXPECT_EQ(file_.err, absl::StrCat("lenetctl: the server ", server_->address(),
                                    " has no valid data set; lenetctl datasets says more\n"));
  service_.AddDataset("broken", false);
  service_.AddDataset("kmnist", true);
  EXPECT_EQ(Run("submit --detach", &file_), kSuccess);
  EXPECT_EQ(service_.starts().back().spec().dataset(), "kmnist");
  service_.AddDataset("mnist", true);
  file_.err.clear();
  EXPECT_EQ(Run("submit --detach", &file_), kUsage);
  EXPECT_EQ(file_.err, absl::StrCat("lenetctl: the server ", server_->address(),
                                    " has no data set fashion-mnist, so --dataset must name one of kmnist, mnist\n"));
  service_.AddDataset("fashion-mnist", true);
  EXPECT_EQ(Run("submit --detach", &file_), kSuccess);
  EXPECT_EQ(service_.starts().back().spec().dataset(), "fashion-mnist");
}

TEST_F(AppTest, InterruptingDetachesAndSaysHowToGoOn) {
  service_.PutJob(ResolvedJob("a", 10));
  std::thread user([&] {
    while (service_.streams().empty()) absl::SleepFor(absl::Milliseconds(1));
    cancelled_ = true;
  });
  EXPECT_EQ(Run(absl::StrCat("watch a --server ", server_->address()), &file_), kInterrupted);
  user.join();
  EXPECT_EQ(file_.err,
            absl::StrCat("Interrupted; job a goes on.\n  to follow it: lenetctl --server ", server_->address(),
                         " watch a\n  to stop it:   lenetctl --server ", server_->address(), " stop a\n"));
  EXPECT_EQ(service_.stops().size(), 0u);
}

TEST_F(AppTest, InterruptingASubmitThatIsNotAnsweredNamesTheRequest) {
  service_.HoldCalls();
  std::thread user([&] {
    while (service_.calls() == 0) absl::SleepFor(absl::Milliseconds(1));
    cancelled_ = true;
  });
  EXPECT_EQ(Run("submit --dataset mnist --request-id r", &file_), kInterrupted);
  user.join();
  EXPECT_THAT(file_.err, HasSubstr("request id r"));
}

TEST_F(AppTest, ErrorsNameTheServerAndWhatItSaid) {
  EXPECT_EQ(Run("watch x", &file_), kError);
  EXPECT_EQ(file_.err, absl::StrCat("lenetctl: server ", server_->address(), ": no job x (NOT_FOUND)\n"));
  EXPECT_EQ(file_.out, "");
  const std::string address = server_->address();
  server_.reset();
  file_.err.clear();
  EXPECT_EQ(RunApp({"list"}, address, &cancelled_, &file_), kUnreachable);
  EXPECT_THAT(file_.err, StartsWith(absl::StrCat("lenetctl: server ", address, " is not available: ")));
  EXPECT_THAT(file_.err, HasSubstr("refused"));
  EXPECT_THAT(file_.err, EndsWith("\nIs lenetd running there? --server or LENET_SERVER names another.\n"));
}

TEST_F(AppTest, AServerThatDrainsIsNotCalledUnreachable) {
  service_.FailCalls(1000, /*after_effect=*/false);
  EXPECT_EQ(Run("list --timeout 0.3", &file_), kUnreachable);
  EXPECT_EQ(file_.err,
            absl::StrCat("lenetctl: server ", server_->address(), " is not available: draining (UNAVAILABLE)\n"));
}

TEST_F(AppTest, WatchFromBeyondTheEndTellsHowTheJobEnded) {
  for (const auto& [state, code] : std::vector<std::pair<v1::JobState, int>>{
           {v1::SUCCEEDED, kSuccess}, {v1::FAILED, kJobFailed}, {v1::STOPPED, kJobStopped}}) {
    v1::Job job = ResolvedJob(StateName(state), 10);
    job.set_state(state);
    if (state == v1::FAILED) {
      job.mutable_failure()->set_rank(-1);
      job.mutable_failure()->set_phase("load");
      job.mutable_failure()->set_code("DATA_LOSS");
      job.mutable_failure()->set_message("label 255");
    }
    service_.PutJob(job);
    AppendEnd(job.id(), state);
    std::string expected =
        absl::StrCat("lenetctl: job ", job.id(), " has ended (", job.id(), ") and has no records from 7 on\n");
    if (state == v1::FAILED) absl::StrAppend(&expected, "lenetctl: job failed failed: in load: DATA_LOSS: label 255\n");
    FakeFile text;
    EXPECT_EQ(Run(absl::StrCat("watch --from 7 ", job.id()), &text), code);
    EXPECT_EQ(text.err, expected);
    FakeFile json;
    EXPECT_EQ(Run(absl::StrCat("watch --json --from 7 ", job.id()), &json), code);
    EXPECT_EQ(json.err, expected);
    EXPECT_EQ(json.out, "");
  }
}

TEST_F(AppTest, APausedJobIsFollowedOnThroughItsNextAttempt) {
  service_.PutJob(ResolvedJob("a", 10));
  service_.Append("a", StateRecord(v1::STARTING, v1::RUNNING));
  service_.Append("a", StepRecord(1, {2.0f, 2.0f}));
  v1::MetricRecord paused = StateRecord(v1::RUNNING, v1::PAUSED);
  paused.mutable_state_change()->set_reason("paused on request; goes on from step 1");
  service_.Append("a", paused);
  // As a server that is restarted does meanwhile.
  service_.BreakStreamsAfter({3});
  service_.Append("a", StateRecord(v1::PAUSED, v1::QUEUED));
  v1::MetricRecord step = StepRecord(2, {1.5f, 1.5f});
  step.set_attempt(2);
  service_.Append("a", step);
  service_.Append("a", TerminalRecord(v1::SUCCEEDED, 10));
  EXPECT_EQ(Run("watch a", &file_), kSuccess) << file_.err;
  EXPECT_THAT(file_.out, EndsWith("job a: running\n"
                                  "step 1 rank 0 loss 2.0000\nstep 1 rank 1 loss 2.0000\n"
                                  "job a: paused: paused on request; goes on from step 1\n"
                                  "job a: queued\n"
                                  "step 2 rank 0 loss 1.5000\nstep 2 rank 1 loss 1.5000\n"
                                  "job a: succeeded after 10 steps\n"));
}

TEST_F(AppTest, AJobThatEndsEarlySaysWhy) {
  service_.PutJob(ResolvedJob("a", 10));
  v1::MetricRecord terminal = TerminalRecord(v1::SUCCEEDED, 5);
  terminal.mutable_terminal()->set_reason("accuracy 0.9 reached");
  service_.Append("a", terminal);
  EXPECT_EQ(Run("watch a", &file_), kSuccess);
  EXPECT_THAT(file_.out, EndsWith("job a: succeeded after 5 steps: accuracy 0.9 reached\n"));
}

TEST_F(AppTest, WatchTellsWhichRecordsWereLost) {
  for (const bool json : {false, true}) {
    const std::string id = json ? "json" : "text";
    service_.PutJob(ResolvedJob(id, 10));
    for (int step = 1; step <= 5; ++step) service_.Append(id, StepRecord(step, {2.0f}));
    service_.BreakStreamsAfter({5});
    const size_t streams = service_.streams().size();
    std::thread power([&] {
      // The second one is asked for once all records of the first have been read.
      while (service_.streams().size() < streams + 2) absl::SleepFor(absl::Milliseconds(1));
      const int port = server_->port();
      server_.reset();
      service_.Rewind(id, 4);
      service_.Append(id, StepRecord(4, {1.0f}));
      service_.Append(id, TerminalRecord(v1::SUCCEEDED, 4));
      server_ = std::make_unique<FakeServer>(&service_, port);
    });
    FakeFile file;
    EXPECT_EQ(Run(absl::StrCat("watch ", id, json ? " --json" : ""), &file), kSuccess) << file.err;
    power.join();
    if (json) {
      const std::vector<nlohmann::json> lines = JsonLines(file.out);
      ASSERT_EQ(lines.size(), 8u);
      EXPECT_EQ(lines[5]["sequence"], "3");
      EXPECT_EQ(lines[5]["rewound"]["first_sequence"], "4");
      EXPECT_EQ(lines[6]["sequence"], "4");
      EXPECT_EQ(lines[6]["step_losses"]["losses"][0], 1.0);
    } else {
      EXPECT_THAT(file.out, EndsWith("step 5 rank 0 loss 2.0000\n"
                                     "records 4 to 5 were lost when the server's power failed; others follow in their "
                                     "place\n"
                                     "step 4 rank 0 loss 1.0000\n"
                                     "job text: succeeded after 4 steps\n"));
    }
    ASSERT_EQ(service_.streams().back().log_epoch(), 1u);
  }
}

TEST_F(AppTest, AnOutageIsToldOnceAndCanBeTheEnd) {
  for (const char* command : {"watch a", "watch a --json"}) {
    service_.PutJob(ResolvedJob("a", 10));
    service_.RemoveLog("a");
    service_.Append("a", StepRecord(1, {2.0f}));
    service_.Append("a", StepRecord(2, {2.0f}));
    service_.Append("a", TerminalRecord(v1::SUCCEEDED, 2));
    // Pauses of 50, 100 and 200 ms, so that it is seen.
    service_.BreakStreamsAfter({1, 0, 0});
    FakeFile file;
    EXPECT_EQ(Run(command, &file), kSuccess);
    EXPECT_EQ(file.err, "connection lost, reconnecting: draining\nconnected again\n") << command;
    service_.BreakStreamsAfter({1});
    FakeFile none;
    EXPECT_EQ(Run(absl::StrCat(command, " --reconnect 0"), &none), kUnreachable);
    EXPECT_EQ(none.err,
              absl::StrCat("lenetctl: server ", server_->address(), " is not available: draining (UNAVAILABLE)\n"));
  }
}

TEST_F(AppTest, ResumeFromTakesTheSourcesSpecAndPutsTheFlagsOverIt) {
  v1::Job source = ResolvedJob("s", 10);
  source.set_state(v1::SUCCEEDED);
  source.mutable_spec()->set_dataset("kmnist");
  source.mutable_spec()->set_epochs(5);
  source.mutable_spec()->set_batch_size(32);
  source.mutable_spec()->set_seed(9);
  source.mutable_spec()->mutable_optimizer()->set_kind(v1::Optimizer::ADAM);
  service_.PutJob(source);
  EXPECT_EQ(Run("submit --detach --resume-from s@1404 --max-steps 3000 --name more", &file_), kSuccess) << file_.err;
  ASSERT_EQ(service_.starts().size(), 1u);
  const v1::StartRequest start = service_.starts()[0];
  EXPECT_EQ(start.name(), "more");
  EXPECT_EQ(start.resume_from().job_id(), "s");
  EXPECT_EQ(start.resume_from().step(), 1404);
  v1::TrainingSpec expected = source.spec();
  expected.clear_epochs();
  expected.set_max_steps(3000);
  EXPECT_EQ(start.spec().SerializeAsString(), expected.SerializeAsString());
  FakeFile newest;
  EXPECT_EQ(Run("submit --detach --resume-from s", &newest), kSuccess) << newest.err;
  EXPECT_FALSE(service_.starts().back().resume_from().has_step());
  EXPECT_EQ(service_.starts().back().spec().SerializeAsString(), source.spec().SerializeAsString());
  FakeFile unknown;
  EXPECT_EQ(Run("submit --detach --resume-from x", &unknown), kError);
  EXPECT_THAT(unknown.err, HasSubstr("no job x (NOT_FOUND)"));
  EXPECT_EQ(service_.starts().size(), 2u);
}

TEST_F(AppTest, WeightsTravelWithTheRequest) {
  const std::string path = absl::StrCat(testing::TempDir(), "/lenetctl-weights-", getpid());
  const std::string bytes("\x08\0\0\0\0\0\0\0{}      ", 16);
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(Run(absl::StrCat("submit --detach --dataset mnist --weights ", path), &file_), kSuccess) << file_.err;
  std::remove(path.c_str());
  ASSERT_EQ(service_.starts().size(), 1u);
  EXPECT_EQ(service_.starts()[0].initial_weights(), bytes);
}

TEST_F(AppTest, AFullDiskIsAnError) {
  service_.PutJob(ResolvedJob("a", 10));
  AppendLog("a");
  file_.full = true;
  EXPECT_EQ(Run("list", &file_), kError);
  EXPECT_EQ(Run("watch a", &file_), kError);
  EXPECT_THAT(file_.err, HasSubstr("standard output"));
}

TEST_F(AppTest, HelpAndVersionThatCannotBeWrittenAreErrors) {
  for (const char* text : {"--help", "submit --help", "--version"}) {
    FakeFile full;
    full.full = true;
    EXPECT_EQ(Run(text, &full), kError) << text;
    EXPECT_THAT(full.err, HasSubstr("standard output")) << text;
  }
}

TEST(StepIntervalTest, IsRoundAndGivesAboutFiftySteps) {
  EXPECT_EQ(StepInterval(0), 1);
  EXPECT_EQ(StepInterval(50), 1);
  EXPECT_EQ(StepInterval(51), 2);
  EXPECT_EQ(StepInterval(101), 5);
  EXPECT_EQ(StepInterval(251), 10);
  EXPECT_EQ(StepInterval(501), 20);
  EXPECT_EQ(StepInterval(9370), 200);
  EXPECT_EQ(StepInterval(int64_t{1} << 40), 50'000'000'000);
}

}  // namespace
}  // namespace lenet::ctl
