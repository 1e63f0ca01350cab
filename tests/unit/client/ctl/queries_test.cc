#include "client/ctl/queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/ctl/exit_code.h"
#include "tests/unit/client/ctl/app_fixture.h"

namespace lenet::ctl {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class QueriesTest : public AppTest {};

TEST_F(QueriesTest, List) {
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
              AllOf(StartsWith("ID  NAME   STATE    DATASET  NET    RANKS  EPOCH  STEP    LOSS  ACCURACY  CREATED"),
                    EndsWith("  REASON")));
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

TEST_F(QueriesTest, Show) {
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
  job.set_state(v1::FAILED);
  job.set_reason("rank 1 after step 7, in step: INTERNAL: broken");
  v1::Failure* failure = job.mutable_failure();
  failure->set_rank(1);
  failure->set_step(7);
  failure->set_phase("step");
  failure->set_code("INTERNAL");
  failure->set_message("broken");
  service_.PutJob(job);
  EXPECT_EQ(Run("show a", &file_), kSuccess);
  for (const char* text :
       {"id:             a\n", "state:          failed\n", "weights:        0000000000abcdef\n",
        "optimizer:      sgd, momentum 0.9, nesterov\n", "schedule:       linear, warm-up 0.2\n",
        "clip norm:      0.1\n", "net:            lenet\n", "backend:        cpu\n", "step:           7/10\n",
        "failure:        rank 1 after step 7, in step: INTERNAL: broken\n"}) {
    EXPECT_THAT(file_.out, HasSubstr(text));
  }
  // Of an earlier server's job.
  for (const char* label : {"init", "nan policy", "evaluates", "saves"}) EXPECT_THAT(file_.out, Not(HasSubstr(label)));
  FakeFile json;
  EXPECT_EQ(Run("show a --json", &json), kSuccess);
  EXPECT_EQ(JsonLines(json.out)[0]["weights_checksums"][0], "11259375");
  EXPECT_EQ(Run("show x", &file_), kError);
}

TEST_F(QueriesTest, ShowSaysOptimizerAndScheduleAsPeopleDo) {
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

TEST_F(QueriesTest, InfoAndDatasets) {
  service_.AddDataset("mnist", true);
  service_.AddDataset("web", false);
  EXPECT_EQ(Run("info", &file_), kSuccess);
  EXPECT_THAT(file_.out, HasSubstr("version:  1.2.3\n"));
  EXPECT_THAT(file_.out, HasSubstr("backend:  cpu: no CUDA driver\n"));
  EXPECT_THAT(file_.out, HasSubstr("DEVICE  NAME      KIND      MEMORY  JOB  HEALTH\n"
                                   "     0  Test CPU  cpu avx2       -  -    ok\n"));
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

TEST_F(QueriesTest, ListSaysWhatAJobWaitsFor) {
  v1::Job queued = NewJob("a", v1::QUEUED);
  queued.set_queue_position(2);
  queued.set_reason("waiting for its turn; waits behind 1 job");
  service_.PutJob(queued);
  v1::Job paused = ResolvedJob("b", 10);
  paused.set_state(v1::PAUSED);
  paused.set_reason("paused on request; goes on from step 7");
  service_.PutJob(paused);
  v1::Job running = ResolvedJob("c", 10);
  running.set_reason("training");
  service_.PutJob(running);
  EXPECT_EQ(Run("list", &file_), kSuccess) << file_.err;
  const std::vector<std::string> lines = absl::StrSplit(file_.out, '\n');
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[1], AllOf(HasSubstr("  queued (2)  "), EndsWith("  waiting for its turn; waits behind 1 job")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("  paused  "), EndsWith("  paused on request; goes on from step 7")));
  EXPECT_THAT(lines[3], EndsWith("  -"));
  FakeFile selected;
  EXPECT_EQ(Run("list --state paused --json", &selected), kSuccess);
  const std::vector<nlohmann::json> jobs = JsonLines(selected.out);
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0]["state"], "PAUSED");
}

TEST_F(QueriesTest, ShowTellsWhereAJobComesFromAndWhatBoundsIt) {
  v1::Job job = ResolvedJob("a", 10);
  job.set_client("127.0.0.1");
  job.set_attempt(3);
  job.mutable_resumed_from()->set_job_id("s");
  job.mutable_resumed_from()->set_step(1404);
  job.mutable_spec()->set_priority(-5);
  job.mutable_spec()->set_preemptible(true);
  job.mutable_spec()->set_max_duration(90.5);
  job.mutable_spec()->set_target_accuracy(0.9);
  job.mutable_spec()->set_patience(1);
  v1::Init* init = job.mutable_resolved()->mutable_init();
  init->set_kind(v1::Init::UNIFORM);
  init->set_low(-0.1f);
  init->set_high(0.25f);
  job.mutable_resolved()->set_nan_policy(v1::NAN_POLICY_CONTINUE);
  job.mutable_resolved()->set_evaluate_every_epochs(2);
  v1::CheckpointPolicy* policy = job.mutable_resolved()->mutable_checkpoints();
  policy->set_every_epochs(1);
  policy->set_every_steps(1000);
  policy->set_every_seconds(2.5);
  policy->set_keep_last(5);
  policy->set_keep_best(false);
  v1::Checkpoint* first = job.add_checkpoints();
  first->set_step(1500);
  first->set_accuracy(0.981);
  job.add_checkpoints()->set_step(3000);
  service_.PutJob(job);
  EXPECT_EQ(Run("show a", &file_), kSuccess);
  for (const char* text :
       {"client:         127.0.0.1\n", "attempt:        3\n", "resumed from:   job s, step 1,404\n",
        "priority:       -5\n", "preemptible:    yes\n", "max duration:   90.5 s\n", "target:         90.00 %\n",
        "patience:       1 evaluation\n", "init:           uniform, -0.1 to 0.25\n", "nan policy:     continue\n",
        "evaluates:      every 2 epochs\n",
        "saves:          every epoch, every 1,000 steps, every 2.5 s, the newest 5 kept, the best not kept\n",
        "checkpoints:    steps 1500 (98.10 %), 3000\n"}) {
    EXPECT_THAT(file_.out, HasSubstr(text));
  }

  job.mutable_resumed_from()->clear_job_id();
  job.mutable_spec()->Clear();
  init->Clear();
  init->set_kind(v1::Init::KAIMING_UNIFORM);
  job.mutable_resolved()->set_nan_policy(v1::NAN_POLICY_STOP);
  job.mutable_resolved()->set_evaluate_every_epochs(0);
  policy->Clear();
  policy->set_keep_last(2);
  policy->set_keep_best(true);
  job.clear_checkpoints();
  service_.PutJob(job);
  FakeFile weights;
  EXPECT_EQ(Run("show a", &weights), kSuccess);
  EXPECT_THAT(weights.out, HasSubstr("resumed from:   uploaded weights\n"));
  for (const char* text :
       {"init:           kaiming-uniform\n", "nan policy:     stop\n", "evaluates:      at the end\n",
        "saves:          at the end, the newest 2 kept, the best kept\n"}) {
    EXPECT_THAT(weights.out, HasSubstr(text));
  }
  for (const char* text : {"priority", "preemptible", "max duration", "target", "patience", "checkpoints"}) {
    EXPECT_THAT(weights.out, Not(HasSubstr(text)));
  }
}

TEST_F(QueriesTest, Checkpoints) {
  v1::Job job = ResolvedJob("a", 10);
  v1::Checkpoint* first = job.add_checkpoints();
  first->set_step(1500);
  first->set_epoch(2);
  first->set_bytes(355000);
  first->set_path("/var/a/1");
  first->mutable_saved_at()->set_seconds(absl::ToUnixSeconds(absl::Now() - absl::Minutes(150)));
  v1::Checkpoint* second = job.add_checkpoints();
  second->set_step(3000);
  second->set_epoch(4);
  second->set_accuracy(0.981);
  second->set_bytes(356000);
  second->set_path("/var/a/2\n");
  service_.PutJob(job);
  service_.PutJob(NewJob("b", v1::QUEUED));
  EXPECT_EQ(Run("checkpoints a", &file_), kSuccess) << file_.err;
  EXPECT_EQ(file_.out,
            "STEP  EPOCH  ACCURACY    SIZE  AGE  PATH\n"
            "1500      2         -  355 kB  2 h  /var/a/1\n"
            "3000      4   98.10 %  356 kB    -  /var/a/2?\n");
  FakeFile json;
  EXPECT_EQ(Run("checkpoints a --json", &json), kSuccess);
  const std::vector<nlohmann::json> lines = JsonLines(json.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"], "1500");
  EXPECT_FALSE(lines[0].contains("accuracy"));
  EXPECT_EQ(lines[1]["accuracy"], 0.981);
  FakeFile none;
  EXPECT_EQ(Run("checkpoints b", &none), kSuccess);
  EXPECT_EQ(none.out, "STEP  EPOCH  ACCURACY  SIZE  AGE  PATH\n");
  EXPECT_EQ(none.err, "lenetctl: job b has no checkpoint\n");
  FakeFile unknown;
  EXPECT_EQ(Run("checkpoints x", &unknown), kError);
  EXPECT_THAT(unknown.err, HasSubstr("no job x (NOT_FOUND)"));
}

TEST_F(QueriesTest, InfoShowsWhyADeviceIsUnhealthy) {
  service_.SetUnhealthy("cudaMalloc: an illegal memory access");
  EXPECT_EQ(Run("info", &file_), kSuccess);
  EXPECT_THAT(file_.out, HasSubstr("     0  Test CPU  cpu avx2       -  -    unhealthy: cudaMalloc: an illegal memory "
                                   "access\n     1  Test CPU  cpu avx2       -  -    ok\n"));
}

}  // namespace
}  // namespace lenet::ctl
