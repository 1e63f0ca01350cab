// What the tests of lenetctl's commands share.
#ifndef LENET_TESTS_UNIT_CLIENT_CTL_APP_FIXTURE_H_
#define LENET_TESTS_UNIT_CLIENT_CTL_APP_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/ctl/app.h"
#include "tests/unit/client/ctl/fake_terminal.h"
#include "tests/unit/client/fake_server.h"

namespace lenet::ctl {

// Runs commands against a server in this process.
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

}  // namespace lenet::ctl

#endif  // LENET_TESTS_UNIT_CLIENT_CTL_APP_FIXTURE_H_
