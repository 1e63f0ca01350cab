// lenetctl's commands against a server in this process.
#include "client/ctl/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
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
#include "tests/unit/client/ctl/fake_terminal.h"
#include "tests/unit/client/fake_server.h"

namespace lenet::ctl {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class AppTest : public testing::Test {
 protected:
  int Run(const std::string& text, Output* output) {
    std::vector<std::string> arguments = absl::StrSplit(text, ' ', absl::SkipEmpty());
    return RunApp(arguments, server_->address(), &cancelled_, output);
  }

  static v1::Job NewJob(const std::string& id, v1::JobState state) {
    v1::Job job;
    job.set_id(id);
    job.set_state(state);
    job.mutable_spec()->set_dataset("mnist");
    job.mutable_created_at()->set_seconds(1'700'000'000);
    return job;
  }

  static v1::Job ResolvedJob(const std::string& id, int64_t total_steps) {
    v1::Job job = NewJob(id, v1::RUNNING);
    v1::ResolvedSpec* resolved = job.mutable_resolved();
    resolved->set_net("lenet");
    resolved->set_backend("cpu");
    resolved->add_device_ids(0);
    resolved->add_device_ids(1);
    resolved->set_ranks(2);
    resolved->set_batch_size(8);
    resolved->set_global_batch_size(16);
    resolved->set_learning_rate(0.1);
    resolved->set_steps_per_epoch(5);
    resolved->set_total_steps(total_steps);
    resolved->set_seed(1);
    return job;
  }

  // The log of a job of ten steps in two epochs, but for its last record.
  void AppendLog(const std::string& id) {
    service_.Append(id, StateRecord(v1::JOB_STATE_UNSPECIFIED, v1::QUEUED));
    service_.Append(id, StateRecord(v1::QUEUED, v1::STARTING));
    service_.Append(id, StateRecord(v1::STARTING, v1::RUNNING));
    for (int step = 1; step <= 10; ++step) {
      service_.Append(id, StepRecord(step, {2.5f - 0.1f * static_cast<float>(step), 2.25f}));
      if (step % 5 != 0) continue;
      v1::MetricRecord epoch;
      epoch.mutable_epoch_summary()->set_epoch(step / 5);
      epoch.mutable_epoch_summary()->set_mean_loss(2.25);
      epoch.mutable_epoch_summary()->set_images_per_second(41234.4);
      epoch.mutable_epoch_summary()->set_seconds(1.5);
      epoch.mutable_epoch_summary()->set_learning_rate(0.05);
      service_.Append(id, epoch);
      v1::MetricRecord evaluation;
      evaluation.mutable_evaluation()->set_step(step);
      evaluation.mutable_evaluation()->set_count(10000);
      evaluation.mutable_evaluation()->set_correct(9892);
      evaluation.mutable_evaluation()->set_accuracy(0.9892);
      evaluation.mutable_evaluation()->set_mean_loss(0.034);
      service_.Append(id, evaluation);
    }
    v1::MetricRecord saved;
    saved.mutable_checkpoint_saved()->set_step(10);
    saved.mutable_checkpoint_saved()->set_path("/var/a\n");
    saved.mutable_checkpoint_saved()->set_bytes(355000);
    service_.Append(id, saved);
    v1::MetricRecord warning;
    warning.mutable_warning()->set_message("the disk is\x1b[5m nearly full");
    service_.Append(id, warning);
  }

  void AppendEnd(const std::string& id, v1::JobState state) {
    v1::MetricRecord terminal = TerminalRecord(state, 10);
    terminal.mutable_terminal()->mutable_evaluation()->set_accuracy(0.9892);
    if (state == v1::FAILED) {
      v1::Failure* failure = terminal.mutable_terminal()->mutable_failure();
      failure->set_rank(1);
      failure->set_step(10);
      failure->set_phase("step");
      failure->set_code("INTERNAL");
      failure->set_message("cudnnConvolutionForward on device 1: launch failed");
    }
    service_.Append(id, terminal);
  }

  std::vector<nlohmann::json> JsonLines(const std::string& text) {
    std::vector<nlohmann::json> lines;
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      lines.push_back(nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false));
      EXPECT_TRUE(lines.back().is_object()) << line;
    }
    return lines;
  }

  FakeService service_;
  std::unique_ptr<FakeServer> server_ = std::make_unique<FakeServer>(&service_);
  std::atomic<bool> cancelled_{false};
  FakeFile file_;
};

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

TEST_F(AppTest, List) {
  v1::Job job = ResolvedJob("a", 10);
  job.set_name("first");
  job.mutable_progress()->set_step(7);
  job.mutable_progress()->set_epoch(1);
  job.mutable_progress()->set_loss(0.5);
  service_.PutJob(job);
  service_.PutJob(NewJob("b", v1::QUEUED));
  EXPECT_EQ(Run("list", &file_), kSuccess);
  const std::vector<std::string> lines = absl::StrSplit(file_.out, '\n');
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0],
              StartsWith("ID  NAME   STATE    DATASET  NET    RANKS  EPOCH  STEP    LOSS  ACCURACY  CREATED"));
  EXPECT_THAT(lines[1],
              StartsWith("a   first  running  mnist    lenet      2    1/2  7/10  0.5000         -  2023-11-1"));
  EXPECT_THAT(lines[2],
              StartsWith("b   -      queued   mnist    lenet      -      -     -       -         -  2023-11-1"));
  FakeFile json;
  EXPECT_EQ(Run("list --json --state queued", &json), kSuccess);
  const std::vector<nlohmann::json> jobs = JsonLines(json.out);
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0]["id"], "b");
  FakeFile limited;
  EXPECT_EQ(Run("list --limit 1", &limited), kSuccess);
  EXPECT_THAT(limited.err, HasSubstr("--limit 0"));
}

TEST_F(AppTest, ShowAndStop) {
  v1::Job job = ResolvedJob("a", 10);
  job.add_weights_checksums(0xabcdef);
  job.mutable_progress()->set_step(7);
  job.mutable_resolved()->set_clip_norm(0.1f);
  v1::Optimizer* optimizer = job.mutable_resolved()->mutable_optimizer();
  optimizer->set_kind(v1::Optimizer::SGD);
  optimizer->set_momentum(0.9);
  optimizer->set_nesterov(true);
  job.mutable_resolved()->mutable_schedule()->set_kind(v1::Schedule::LINEAR);
  job.mutable_resolved()->mutable_schedule()->set_warmup_fraction(0.2);
  v1::Failure* failure = job.mutable_failure();
  failure->set_rank(1);
  failure->set_step(7);
  failure->set_phase("step");
  failure->set_code("INTERNAL");
  failure->set_message("broken");
  service_.PutJob(job);
  EXPECT_EQ(Run("show a", &file_), kSuccess);
  for (const char* text :
       {"id:             a\n", "state:          running\n", "weights:        0000000000abcdef\n",
        "optimizer:      sgd, momentum 0.9, nesterov\n", "schedule:       linear, warm-up 0.2\n",
        "clip norm:      0.1\n", "net:            lenet\n", "backend:        cpu\n", "step:           7/10\n",
        "failure:        rank 1 after step 7, in step: INTERNAL: broken\n"}) {
    EXPECT_THAT(file_.out, HasSubstr(text));
  }
  FakeFile json;
  EXPECT_EQ(Run("show a --json", &json), kSuccess);
  EXPECT_EQ(JsonLines(json.out)[0]["weights_checksums"][0], "11259375");
  EXPECT_EQ(Run("show x", &file_), kError);

  FakeFile stop;
  EXPECT_EQ(Run("stop a", &stop), kSuccess);
  EXPECT_EQ(stop.out, "job a: stopped at step 7\n");
  EXPECT_EQ(Run("stop a --abort --wait --json", &json), kSuccess);
  EXPECT_EQ(JsonLines(json.out)[1]["state"], "STOPPED");
  ASSERT_EQ(service_.stops().size(), 2u);
  EXPECT_EQ(service_.stops()[0].mode(), v1::StopRequest::CHECKPOINT);
  EXPECT_EQ(service_.stops()[1].mode(), v1::StopRequest::ABORT);
  EXPECT_TRUE(service_.stops()[1].wait());
  EXPECT_EQ(Run("stop x", &file_), kError);
}

TEST_F(AppTest, ShowSaysOptimizerAndScheduleAsPeopleDo) {
  v1::Job job = ResolvedJob("a", 10);
  v1::ResolvedSpec* resolved = job.mutable_resolved();
  resolved->set_backend("");
  resolved->clear_device_ids();
  resolved->mutable_optimizer()->set_kind(v1::Optimizer::ADAMW);
  resolved->mutable_optimizer()->set_beta1(0.9);
  resolved->mutable_optimizer()->set_beta2(0.99999);
  resolved->mutable_optimizer()->set_epsilon(1e-8);
  resolved->mutable_optimizer()->set_weight_decay(0.01);
  resolved->mutable_schedule()->set_kind(v1::Schedule::ONE_CYCLE);
  resolved->mutable_schedule()->set_peak_fraction(0.3);
  resolved->mutable_schedule()->set_initial_divisor(25);
  resolved->mutable_schedule()->set_final_divisor(1e4);
  service_.PutJob(job);
  EXPECT_EQ(Run("show a", &file_), kSuccess);
  for (const char* text : {"optimizer:      adamw, beta1 0.9, beta2 0.99999, epsilon 1e-08, weight decay 0.01\n",
                           "schedule:       one-cycle, peak fraction 0.3, initial divisor 25, final divisor 10000\n",
                           "clip norm:      none\n", "ranks:          2\n"}) {
    EXPECT_THAT(file_.out, HasSubstr(text));
  }
  EXPECT_THAT(file_.out, Not(HasSubstr("backend")));

  resolved->mutable_optimizer()->Clear();
  resolved->mutable_optimizer()->set_kind(v1::Optimizer::SGD);
  resolved->mutable_optimizer()->set_momentum(0);
  resolved->mutable_optimizer()->set_nesterov(false);
  resolved->mutable_schedule()->Clear();
  resolved->mutable_schedule()->set_kind(v1::Schedule::STEP);
  resolved->mutable_schedule()->set_gamma(0.5);
  resolved->mutable_schedule()->set_step_epochs(3);
  service_.PutJob(job);
  FakeFile step;
  EXPECT_EQ(Run("show a", &step), kSuccess);
  EXPECT_THAT(step.out, HasSubstr("optimizer:      sgd, momentum 0\n"));
  EXPECT_THAT(step.out, HasSubstr("schedule:       step, gamma 0.5, step epochs 3\n"));
}

TEST_F(AppTest, InfoAndDatasets) {
  service_.AddDataset("mnist", true);
  service_.AddDataset("web", false);
  EXPECT_EQ(Run("info", &file_), kSuccess);
  EXPECT_THAT(file_.out, HasSubstr("version:  1.2.3\n"));
  EXPECT_THAT(file_.out, HasSubstr("backend:  cpu: no CUDA driver\n"));
  EXPECT_THAT(file_.out, HasSubstr("DEVICE  NAME      KIND      MEMORY  JOB\n     0  Test CPU  cpu avx2       -  -\n"));
  FakeFile json;
  EXPECT_EQ(Run("info --json", &json), kSuccess);
  EXPECT_EQ(JsonLines(json.out)[0]["devices"].size(), 2u);

  FakeFile datasets;
  EXPECT_EQ(Run("datasets", &datasets), kSuccess);
  EXPECT_THAT(datasets.out, HasSubstr("mnist  0x0x0"));
  EXPECT_THAT(datasets.out, HasSubstr("web    -"));
  EXPECT_THAT(datasets.out, HasSubstr("not usable: train-images-idx3-ubyte: not an IDX file"));
  EXPECT_EQ(Run("datasets --json", &json), kSuccess);
  EXPECT_EQ(JsonLines(json.out)[2]["name"], "web");
  EXPECT_EQ(JsonLines(json.out)[2]["valid"], false);
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
