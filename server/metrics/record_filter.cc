#include "server/metrics/record_filter.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "server/store/timestamp.h"

namespace lenet {
namespace {

// Longest part of a second that a quiet stretch of the log saves up for a burst.
constexpr double kMaxBurstSeconds = 0.25;

v1::RecordKind KindOf(const v1::MetricRecord& record) {
  switch (record.kind_case()) {
    case v1::MetricRecord::kStepLosses:
      return v1::STEP_LOSSES;
    case v1::MetricRecord::kEpochSummary:
      return v1::EPOCH_SUMMARY;
    case v1::MetricRecord::kEvaluation:
      return v1::EVALUATION;
    case v1::MetricRecord::kStateChange:
      return v1::STATE_CHANGE;
    case v1::MetricRecord::kCheckpointSaved:
      return v1::CHECKPOINT_SAVED;
    case v1::MetricRecord::kWarning:
      return v1::WARNING;
    default:
      return v1::RECORD_KIND_UNSPECIFIED;
  }
}

}  // namespace

RecordPtr RecordFilter::Apply(const RecordPtr& record) {
  if (!KindWanted(*record)) return nullptr;
  return record->has_step_losses() ? ThinLosses(record) : record;
}

bool RecordFilter::KindWanted(const v1::MetricRecord& record) const {
  if (wishes_.kinds.empty() || record.has_terminal() || record.has_truncated() || record.has_rewound()) {
    return true;
  }
  return wishes_.kinds.contains(KindOf(record));
}

RecordPtr RecordFilter::ThinLosses(const RecordPtr& record) {
  const bool whole = wishes_.ranks.empty() && wishes_.every_n_steps == 1;
  if (whole && wishes_.max_rate == 0) return record;

  const auto wanted = [this](int64_t step, int rank) {
    if (!wishes_.ranks.empty() && !wishes_.ranks.contains(rank)) return false;
    return step == 1 || step % wishes_.every_n_steps == 0;
  };
  const v1::StepLosses& all = record->step_losses();
  auto thinned = std::make_shared<v1::MetricRecord>();
  v1::StepLosses& kept = *thinned->mutable_step_losses();
  for (int i = 0; i < all.losses_size(); ++i) {
    if (!wanted(all.steps(i), all.ranks(i))) continue;
    kept.add_steps(all.steps(i));
    kept.add_ranks(all.ranks(i));
    kept.add_losses(all.losses(i));
  }
  if (wishes_.max_rate > 0 && kept.losses_size() > 0) {
    const std::optional<int64_t> lowest = LowestStepInRate(kept, FromTimestamp(record->time()));
    if (!lowest) return nullptr;
    int count = 0;
    for (int i = 0; i < kept.losses_size(); ++i) {
      if (kept.steps(i) < *lowest) continue;
      kept.set_steps(count, kept.steps(i));
      kept.set_ranks(count, kept.ranks(i));
      kept.set_losses(count, kept.losses(i));
      ++count;
    }
    kept.mutable_steps()->Truncate(count);
    kept.mutable_ranks()->Truncate(count);
    kept.mutable_losses()->Truncate(count);
  }
  if (kept.losses_size() == 0) return nullptr;
  if (kept.losses_size() == all.losses_size()) return record;
  thinned->set_sequence(record->sequence());
  thinned->set_attempt(record->attempt());
  *thinned->mutable_time() = record->time();
  return thinned;
}

// Whole steps are kept, so that no rank is seen more often than another.
std::optional<int64_t> RecordFilter::LowestStepInRate(const v1::StepLosses& batch, absl::Time time) {
  std::map<int64_t, int, std::greater<>> losses_of_step;
  for (int64_t step : batch.steps()) ++losses_of_step[step];
  const double newest = losses_of_step.begin()->second;
  if (!filled_at_) {
    allowance_ = newest;
  } else {
    const double filled = allowance_ + absl::ToDoubleSeconds(time - *filled_at_) * wishes_.max_rate;
    allowance_ = std::clamp(filled, 0.0, std::max(newest, wishes_.max_rate * kMaxBurstSeconds));
  }
  filled_at_ = time;

  std::optional<int64_t> lowest;
  for (const auto& [step, count] : losses_of_step) {
    if (allowance_ < count) break;
    allowance_ -= count;
    lowest = step;
  }
  return lowest;
}

}  // namespace lenet
