#include "trainer/train/early_end.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

using Metadata = std::map<std::string, std::string>;

constexpr char kAccuracy[] = "accuracy";
constexpr char kBestAccuracy[] = "best_accuracy";
constexpr char kBestEpoch[] = "best_epoch";
constexpr char kSinceBest[] = "evaluations_since_best";

absl::Status BadMetadata(const Metadata& metadata, const char* key, absl::string_view bound) {
  const auto found = metadata.find(key);
  return absl::FailedPreconditionError(absl::StrCat(
      "the checkpoint's ", key, " = \"", found == metadata.end() ? "" : found->second, "\": must be ", bound));
}

absl::StatusOr<double> Accuracy(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  double value = 0;
  if (found == metadata.end() || !absl::SimpleAtod(found->second, &value) || !(value >= 0 && value <= 1)) {
    return BadMetadata(metadata, key, "in [0, 1]");
  }
  return value;
}

absl::StatusOr<int64_t> Count(const Metadata& metadata, const char* key, int64_t least) {
  const auto found = metadata.find(key);
  int64_t value = 0;
  if (found == metadata.end() || !absl::SimpleAtoi(found->second, &value) || value < least) {
    return BadMetadata(metadata, key, absl::StrCat("at least ", least));
  }
  return value;
}

// All digits that a double needs to come back as it was.
std::string Exact(double value) { return absl::StrFormat("%.*g", std::numeric_limits<double>::max_digits10, value); }

}  // namespace

EarlyEnd::EarlyEnd(const TrainSpec& spec, int64_t steps_per_epoch)
    : target_(spec.target_accuracy),
      patience_(spec.patience),
      every_epochs_(spec.evaluate_every_epochs),
      steps_per_epoch_(steps_per_epoch) {}

absl::Status EarlyEnd::Restore(int64_t step, const Metadata& metadata) {
  if (step == 0) return absl::OkStatus();
  if (metadata.contains(kBestAccuracy) || metadata.contains(kBestEpoch) || metadata.contains(kSinceBest)) {
    LENET_ASSIGN_OR_RETURN(best_, Accuracy(metadata, kBestAccuracy));
    LENET_ASSIGN_OR_RETURN(best_epoch_, Count(metadata, kBestEpoch, 1));
    LENET_ASSIGN_OR_RETURN(since_best_, Count(metadata, kSinceBest, 0));
  }
  if (metadata.contains(kAccuracy)) {
    LENET_ASSIGN_OR_RETURN(accuracy_, Accuracy(metadata, kAccuracy));
    step_ = step;
    if (due(step)) counted_step_ = step;
  }
  return absl::OkStatus();
}

void EarlyEnd::Store(int64_t step, Metadata* metadata) const {
  if (const std::optional<double> reached = accuracy(step)) (*metadata)[kAccuracy] = Exact(*reached);
  if (best_ < 0) return;
  (*metadata)[kBestAccuracy] = Exact(best_);
  (*metadata)[kBestEpoch] = absl::StrCat(best_epoch_);
  (*metadata)[kSinceBest] = absl::StrCat(since_best_);
}

bool EarlyEnd::due(int64_t step) const {
  if (every_epochs_ == 0 || step == 0 || step == counted_step_ || step % steps_per_epoch_ != 0) return false;
  return step / steps_per_epoch_ % every_epochs_ == 0;
}

void EarlyEnd::Add(int64_t step, double accuracy) {
  step_ = step;
  accuracy_ = accuracy;
  if (!due(step)) return;
  counted_step_ = step;
  ++since_best_;
  if (accuracy > best_) {
    best_ = accuracy;
    best_epoch_ = step / steps_per_epoch_;
    since_best_ = 0;
  }
}

std::optional<double> EarlyEnd::accuracy(int64_t step) const {
  return step_ == step ? std::optional<double>(accuracy_) : std::nullopt;
}

std::string EarlyEnd::Reason(int64_t step) const {
  if (step == 0 || step != counted_step_) return "";
  if (target_ && accuracy_ >= *target_) {
    return absl::StrCat("target_accuracy ", *target_, " reached: ", accuracy_, " after epoch ",
                        step / steps_per_epoch_);
  }
  if (patience_ > 0 && since_best_ >= patience_) {
    return absl::StrCat("patience: no better accuracy than ", best_, " (epoch ", best_epoch_, ") in ", since_best_,
                        " evaluations");
  }
  return "";
}

}  // namespace lenet
