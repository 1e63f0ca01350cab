#include "client/ctl/job_view.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/json.h"
#include "client/ctl/live_block.h"
#include "client/ctl/progress.h"
#include "client/ctl/text.h"

namespace lenet::ctl {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);

// Tells of each outage once, and of its end.
class OutageNotice {
 public:
  explicit OutageNotice(Output* output) : output_(output) {}

  void Tell(const absl::Status& outage) {
    if (outage.ok() == connected_) return;
    connected_ = outage.ok();
    output_->WriteError(connected_
                            ? "connected again\n"
                            : absl::StrCat("connection lost, reconnecting: ", Printable(outage.message()), "\n"));
  }

 private:
  Output* const output_;
  bool connected_ = true;
};

class JsonView : public JobView {
 public:
  explicit JsonView(Output* output) : output_(output), notice_(output) {}

  bool wants_job() const override { return false; }
  void SetJob(const v1::Job&) override {}
  void Record(const v1::MetricRecord& record) override { output_->Write(JsonLine(record)); }
  void Tick(absl::Time, const absl::Status& outage) override { notice_.Tell(outage); }
  void Close() override {}

 private:
  Output* const output_;
  OutageNotice notice_;
};

// What the job's spec came to.
std::string Describe(const v1::Job& job) {
  const v1::ResolvedSpec& resolved = job.resolved();
  // Ranks that share a device name it once each.
  const std::set<int> devices(resolved.device_ids().begin(), resolved.device_ids().end());
  return absl::StrCat(resolved.net(), " on ", job.spec().dataset(), ", ", resolved.ranks(),
                      resolved.ranks() == 1 ? " rank" : " ranks", " x ", resolved.batch_size(), " images, ",
                      resolved.backend(), devices.size() == 1 ? " device " : " devices ", absl::StrJoin(devices, ","),
                      ", ", FormatCount(resolved.total_steps()), " steps (", FormatCount(resolved.steps_per_epoch()),
                      " an epoch), learning rate ", FormatShort(resolved.learning_rate()), ", seed ", resolved.seed());
}

class TextView : public JobView {
 public:
  TextView(const std::string& job_id, bool every_step, Output* output)
      : job_id_(job_id), every_step_(every_step), output_(output), notice_(output), block_(output) {}

  bool wants_job() const override { return !described_; }
  void SetJob(const v1::Job& job) override;
  void Record(const v1::MetricRecord& record) override;
  void Tick(absl::Time now, const absl::Status& outage) override;
  void Close() override { block_.Clear(); }

 private:
  std::string StepLines(const v1::StepLosses& losses) const;
  std::string Line(const v1::MetricRecord& record) const;
  std::string Job(absl::string_view text) const { return absl::StrCat("job ", job_id_, ": ", Printable(text), "\n"); }

  const std::string job_id_;
  const bool every_step_;
  Output* const output_;
  OutageNotice notice_;
  LiveBlock block_;
  JobProgress progress_;
  bool described_ = false;
  uint64_t last_sequence_ = 0;  // of what was shown
  bool ended_ = false;
  absl::Time next_draw_ = absl::InfinitePast();
};

void TextView::SetJob(const v1::Job& job) {
  progress_.SetJob(job);
  // The devices are chosen as the job leaves the queue.
  if (described_ || job.resolved().backend().empty()) return;
  described_ = true;
  block_.Print(Job(Describe(job)));
}

std::string TextView::StepLines(const v1::StepLosses& losses) const {
  if (!every_step_ && output_->is_terminal()) return "";
  const int64_t total = progress_.total_steps();
  const int64_t interval = every_step_ ? 1 : StepInterval(total);
  const int count = std::min({losses.steps_size(), losses.ranks_size(), losses.losses_size()});
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const int64_t step = losses.steps(i);
    if (step % interval != 0 && step != 1 && step != total) continue;
    absl::StrAppend(&lines, "step ", step, " rank ", losses.ranks(i), " loss ", FormatLoss(losses.losses(i)), "\n");
  }
  return lines;
}

std::string TextView::Line(const v1::MetricRecord& record) const {
  switch (record.kind_case()) {
    case v1::MetricRecord::kStepLosses:
      return StepLines(record.step_losses());
    case v1::MetricRecord::kEpochSummary: {
      const v1::EpochSummary& epoch = record.epoch_summary();
      const int64_t epochs = progress_.total_epochs();
      return absl::StrCat("epoch ", epoch.epoch(), epochs > 0 ? absl::StrCat("/", epochs) : "", ": mean loss ",
                          FormatLoss(epoch.mean_loss()), ", ",
                          FormatCount(static_cast<int64_t>(epoch.images_per_second())), " images/s, ",
                          FormatSeconds(epoch.seconds()), ", learning rate ", FormatShort(epoch.learning_rate()), "\n");
    }
    case v1::MetricRecord::kEvaluation: {
      const v1::Evaluation& evaluation = record.evaluation();
      return absl::StrCat("evaluation at step ", evaluation.step(), ": accuracy ", FormatPercent(evaluation.accuracy()),
                          " (", FormatCount(evaluation.correct()), " of ", FormatCount(evaluation.count()),
                          "), mean loss ", FormatLoss(evaluation.mean_loss()), ", ",
                          FormatSeconds(evaluation.seconds()), "\n");
    }
    case v1::MetricRecord::kStateChange: {
      const v1::StateChange& change = record.state_change();
      // The terminal record says it better.
      if (IsTerminal(change.to())) return "";
      return Job(absl::StrCat(StateName(change.to()), change.reason().empty() ? "" : ": ", change.reason()));
    }
    case v1::MetricRecord::kCheckpointSaved: {
      const v1::CheckpointSaved& saved = record.checkpoint_saved();
      return absl::StrCat("checkpoint at step ", saved.step(), ": ", Printable(saved.path()), " (",
                          FormatBytes(saved.bytes()), ")\n");
    }
    case v1::MetricRecord::kWarning:
      return absl::StrCat("warning: ", Printable(record.warning().message()), "\n");
    case v1::MetricRecord::kTruncated:
      return absl::StrCat(FormatCount(static_cast<int64_t>(record.truncated().count())),
                          " records up to here are no longer kept\n");
    case v1::MetricRecord::kRewound: {
      const uint64_t first = record.rewound().first_sequence();
      return absl::StrCat("records ", first, " to ", std::max(first, last_sequence_),
                          " were lost when the server's power failed; others follow in their place\n");
    }
    case v1::MetricRecord::kTerminal: {
      const v1::Terminal& terminal = record.terminal();
      std::string text = absl::StrCat(StateName(terminal.state()), " after ", FormatCount(terminal.last_step()),
                                      terminal.last_step() == 1 ? " step" : " steps");
      if (terminal.has_evaluation()) {
        absl::StrAppend(&text, ", accuracy ", FormatPercent(terminal.evaluation().accuracy()));
      }
      // A failure is reported as an error, beside the view; that all steps were done needs no reason.
      const bool early = terminal.state() == v1::STOPPED ||
                         (terminal.state() == v1::SUCCEEDED && terminal.last_step() < progress_.total_steps());
      if (early && !terminal.reason().empty()) {
        absl::StrAppend(&text, ": ", terminal.reason());
      }
      return Job(text);
    }
    case v1::MetricRecord::KIND_NOT_SET:
      break;
  }
  return "";
}

void TextView::Record(const v1::MetricRecord& record) {
  progress_.Add(record);
  const std::string lines = Line(record);
  if (record.has_terminal()) {
    block_.Clear();
    ended_ = true;
  }
  if (!lines.empty()) block_.Print(lines);
  last_sequence_ = record.sequence();
}

void TextView::Tick(absl::Time now, const absl::Status& outage) {
  if (!output_->is_terminal()) return notice_.Tell(outage);
  if (ended_ || now < next_draw_) return;
  next_draw_ = now + kRedrawInterval;
  block_.Show(
      RenderProgress(progress_, outage.ok() ? "" : "connection lost, reconnecting", std::max(output_->width() - 1, 1)));
}

}  // namespace

std::unique_ptr<JobView> NewJsonView(Output* output) { return std::make_unique<JsonView>(output); }

std::unique_ptr<JobView> NewTextView(const std::string& job_id, bool every_step, Output* output) {
  return std::make_unique<TextView>(job_id, every_step, output);
}

int64_t StepInterval(int64_t total_steps) {
  constexpr int64_t kPrintedSteps = 50;
  int64_t interval = 1;
  for (int i = 0; total_steps > kPrintedSteps * interval; ++i) {
    interval = i % 3 == 1 ? interval / 2 * 5 : interval * 2;
  }
  return interval;
}

}  // namespace lenet::ctl
