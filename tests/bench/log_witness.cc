#include "tests/bench/log_witness.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "server/store/timestamp.h"

namespace lenet {

void LogWitness::Take(const v1::StreamMetricsResponse& response, absl::Time arrival) {
  if (first_arrival_ == absl::InfiniteFuture()) first_arrival_ = arrival;
  for (const v1::MetricRecord& record : response.records()) {
    const absl::Time time = FromTimestamp(record.time());
    if (fault_.empty() && (record.sequence() != sequence_ + 1 || record.has_truncated() || record.has_rewound())) {
      fault_ = absl::StrCat("after record ", sequence_, " came ", record.ShortDebugString().substr(0, 200));
    }
    sequence_ = record.sequence();
    if (record.has_step_losses()) {
      TakeLosses(record);
      if (previous_ > first_arrival_) {
        delays_.push_back(static_cast<float>(absl::ToDoubleMilliseconds(arrival - previous_)));
      }
    } else if (record.has_state_change() && record.state_change().to() == v1::RUNNING) {
      running_at_ = time;
    } else if (record.has_epoch_summary()) {
      trained_until_ = time;
    } else if (record.has_terminal()) {
      ended_ = true;
      last_step_ = record.terminal().last_step();
      for (const int64_t seen : steps_) lost_ += last_step_ - seen;
      if (record.terminal().state() != v1::SUCCEEDED && fault_.empty()) {
        fault_ = absl::StrCat("the job ended: ", record.terminal().ShortDebugString());
      }
    }
    previous_ = time;
  }
}

void LogWitness::TakeLosses(const v1::MetricRecord& record) {
  const v1::StepLosses& batch = record.step_losses();
  const int count = batch.losses_size();
  if (batch.steps_size() != count || batch.ranks_size() != count) {
    if (fault_.empty()) {
      fault_ = absl::StrCat("record ", record.sequence(), " has ", batch.steps_size(), " steps, ", batch.ranks_size(),
                            " ranks and ", count, " losses");
    }
    return;
  }
  for (int i = 0; i < count; ++i) {
    const auto rank = static_cast<size_t>(batch.ranks(i));
    const int64_t step = batch.steps(i);
    if (rank >= steps_.size() || step != steps_[rank] + 1) {
      if (fault_.empty()) {
        fault_ = absl::StrCat("record ", record.sequence(), " has step ", step, " of rank ", rank, " after step ",
                              rank < steps_.size() ? steps_[rank] : -1);
      }
      if (rank >= steps_.size()) continue;
      lost_ += std::max<int64_t>(step - steps_[rank] - 1, 0);
    }
    steps_[rank] = step;
    sum_ += std::bit_cast<uint32_t>(batch.losses(i)) * (static_cast<uint64_t>(step) * steps_.size() + rank + 1);
  }
  losses_ += count;
}

absl::Status LogWitness::Check() const {
  if (!fault_.empty()) return absl::DataLossError(fault_);
  if (!ended_) return absl::DataLossError(absl::StrCat("record ", sequence_, " is the last, and not the terminal one"));
  if (lost_ != 0) return absl::DataLossError(absl::StrCat(lost_, " losses are missing"));
  return absl::OkStatus();
}

}  // namespace lenet
