#include "client/ctl/progress.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/text.h"

namespace lenet::ctl {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(3);
constexpr absl::Duration kShortestWindow = absl::Milliseconds(200);
constexpr absl::Duration kSampleSpacing = absl::Milliseconds(50);
constexpr int kShortestBar = 10;
constexpr int kLongestBar = 40;

std::string Bar(double share, int width) {
  const int inner = width - 2;
  const int filled = std::clamp(static_cast<int>(share * inner), 0, inner);
  std::string bar = absl::StrCat("[", std::string(filled, '='), std::string(inner - filled, ' '), "]");
  if (filled > 0 && filled < inner) bar[filled] = '>';
  return bar;
}

// A part of a line; the lowest rank is the first to be left out.
struct Part {
  int rank;
  std::string text;
};

std::string Join(const std::vector<Part>& parts, int least_rank) {
  std::string line;
  for (const Part& part : parts) {
    if (part.rank >= least_rank && !part.text.empty()) absl::StrAppend(&line, line.empty() ? "" : "  ", part.text);
  }
  return line;
}

// The parts that fit, of the highest ranks.
std::string FitParts(const std::vector<Part>& parts, int width) {
  int highest = 0;
  for (const Part& part : parts) highest = std::max(highest, part.rank);
  for (int least = 0; least < highest; ++least) {
    std::string line = Join(parts, least);
    if (DisplayWidth(line) <= width) return line;
  }
  return Fit(Join(parts, highest), width);
}

std::string StepLine(const JobProgress& progress, const std::string& note, int width) {
  if (progress.state() != v1::RUNNING && progress.state() != v1::STOPPING) {
    std::string text = progress.state() == v1::JOB_STATE_UNSPECIFIED ? "waiting" : StateName(progress.state());
    if (progress.state() == v1::QUEUED && progress.queue_position() > 0) {
      absl::StrAppend(&text, ", position ", progress.queue_position());
    }
    return FitParts({{1, note}, {2, text}}, width);
  }
  const int64_t total = progress.total_steps();
  std::vector<Part> parts;
  parts.push_back({8, note});
  if (progress.state() == v1::STOPPING) parts.push_back({7, "stopping"});
  if (total <= 0) {
    parts.push_back({9, absl::StrCat("step ", FormatCount(progress.step()))});
    return FitParts(parts, width);
  }
  const double share = std::min(1.0, static_cast<double>(progress.step()) / static_cast<double>(total));
  parts.push_back({5, absl::StrCat("epoch ", progress.epoch(), "/", progress.total_epochs())});
  const size_t bar_place = parts.size();
  parts.push_back({4, std::string(kShortestBar, '#')});
  parts.push_back({9, absl::StrFormat("%3d %%", static_cast<int>(100 * share))});
  // As wide as it will ever be, so that the line does not jump.
  const std::string all = FormatCount(total);
  parts.push_back({3, absl::StrFormat("step %*s/%s", static_cast<int>(all.size()), FormatCount(progress.step()), all)});
  if (progress.images_per_second() > 0) {
    parts.push_back({2, absl::StrCat(FormatCount(std::llround(progress.images_per_second())), " images/s")});
  }
  if (progress.seconds_left() >= 0) {
    parts.push_back({6, absl::StrCat("ETA ", FormatClock(progress.seconds_left()))});
  }
  std::string line = FitParts(parts, width);
  // Where the bar's place was kept, the bar takes it and all that is left.
  const size_t at = line.find(parts[bar_place].text);
  if (at == std::string::npos) return line;
  const int bar = std::min(kLongestBar, kShortestBar + width - DisplayWidth(line));
  return absl::StrCat(line.substr(0, at), Bar(share, bar), line.substr(at + kShortestBar));
}

std::string LossLine(const JobProgress& progress, int width) {
  const std::map<int, float>& losses = progress.losses();
  if (losses.empty()) return "";
  std::string each = "loss";
  for (const auto& [rank, loss] : losses) absl::StrAppend(&each, "  rank ", rank, ": ", FormatLoss(loss));
  if (DisplayWidth(each) <= width) return each;

  // Those that are not finite are what one wants to see, so they count as the largest.
  const auto size = [](float loss) { return std::isfinite(loss) ? loss : std::numeric_limits<float>::infinity(); };
  const auto less = [&](const auto& a, const auto& b) { return size(a.second) < size(b.second); };
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end(), less);
  double sum = 0;
  for (const auto& [rank, loss] : losses) sum += loss;
  return FitParts({{1, absl::StrCat("loss of ", losses.size(), " ranks")},
                   {4, absl::StrCat("mean ", FormatLoss(sum / static_cast<double>(losses.size())))},
                   {2, absl::StrCat("min ", FormatLoss(least->second), " (rank ", least->first, ")")},
                   {3, absl::StrCat("max ", FormatLoss(most->second), " (rank ", most->first, ")")}},
                  width);
}

}  // namespace

void JobProgress::SetJob(const v1::Job& job) {
  // The records are ahead of a job that was asked for before they came.
  if (state_ == v1::JOB_STATE_UNSPECIFIED) state_ = job.state();
  queue_position_ = job.queue_position();
  first_attempts_step_ = job.resumed_from().step();
  if (!job.has_resolved()) return;
  total_steps_ = job.resolved().total_steps();
  steps_per_epoch_ = job.resolved().steps_per_epoch();
  global_batch_size_ = job.resolved().global_batch_size();
}

int64_t JobProgress::total_epochs() const {
  return steps_per_epoch_ > 0 ? (total_steps_ + steps_per_epoch_ - 1) / steps_per_epoch_ : 0;
}

int64_t JobProgress::epoch() const {
  if (steps_per_epoch_ <= 0) return 0;
  return std::clamp<int64_t>((step_ + steps_per_epoch_ - 1) / steps_per_epoch_, 1,
                             std::max<int64_t>(total_epochs(), 1));
}

double JobProgress::seconds_left() const {
  const int64_t done = last_.step - first_.step;
  if (total_steps_ <= 0 || done <= 0) return -1;
  const double seconds = absl::ToDoubleSeconds(last_.time - first_.time);
  return seconds / static_cast<double>(done) * static_cast<double>(std::max<int64_t>(0, total_steps_ - step_));
}

void JobProgress::StartAttempt(uint32_t attempt) {
  attempt_ = attempt;
  rank_steps_.clear();
  losses_.clear();
  window_.clear();
  first_ = last_ = {absl::InfinitePast(), 0};
}

void JobProgress::Add(const v1::MetricRecord& record) {
  const absl::Time time = ToTime(record.time());
  if (record.attempt() > attempt_) StartAttempt(record.attempt());
  switch (record.kind_case()) {
    case v1::MetricRecord::kStepLosses:
      AddSteps(record.step_losses(), time);
      break;
    case v1::MetricRecord::kEvaluation:
      // The pause is no part of the training's speed.
      window_.clear();
      window_.push_back({time, step_});
      break;
    case v1::MetricRecord::kStateChange:
      state_ = record.state_change().to();
      if (state_ == v1::RUNNING && attempt_ <= 1) first_ = {time, first_attempts_step_};
      // Where it stands when it waits once more is not known.
      if (state_ == v1::QUEUED && record.state_change().from() != v1::JOB_STATE_UNSPECIFIED) queue_position_ = 0;
      break;
    case v1::MetricRecord::kRewound:
      // What follows was so once before.
      StartAttempt(record.attempt());
      break;
    case v1::MetricRecord::kTerminal:
      state_ = record.terminal().state();
      break;
    default:
      break;
  }
}

void JobProgress::AddSteps(const v1::StepLosses& losses, absl::Time time) {
  const int count = std::min({losses.steps_size(), losses.ranks_size(), losses.losses_size()});
  if (count == 0) return;
  for (int i = 0; i < count; ++i) {
    rank_steps_[losses.ranks(i)] = losses.steps(i);
    losses_[losses.ranks(i)] = losses.losses(i);
  }
  step_ = std::numeric_limits<int64_t>::max();
  for (const auto& [rank, step] : rank_steps_) step_ = std::min(step_, step);

  last_ = {time, step_};
  if (first_.time == absl::InfinitePast()) first_ = last_;
  if (window_.size() >= 2 && time - window_[window_.size() - 2].time < kSampleSpacing) window_.pop_back();
  window_.push_back(last_);
  while (window_.size() > 2 && time - window_[1].time >= kWindow) window_.pop_front();
  const absl::Duration span = time - window_.front().time;
  if (span >= kShortestWindow) {
    steps_per_second_ = static_cast<double>(step_ - window_.front().step) / absl::ToDoubleSeconds(span);
  }
}

std::vector<std::string> RenderProgress(const JobProgress& progress, const std::string& note, int width) {
  std::vector<std::string> lines = {StepLine(progress, note, width)};
  std::string losses = LossLine(progress, width);
  if (!losses.empty()) lines.push_back(std::move(losses));
  return lines;
}

}  // namespace lenet::ctl
