// A plug-in in the place of the CPU's whose devices compute nothing but keep time: LENET_PACED_RATE training steps a
// second, each joined over the ranks as by an all-reduce. A rank that queues its steps too late lets all of them wait.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/engine_checks.h"
#include "trainer/backend/plugin_entry.h"
#include "trainer/base/mutex.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

using Clock = std::chrono::steady_clock;

class PacedGroup final : public RankGroup {
 public:
  PacedGroup(std::chrono::nanoseconds step_time, std::span<const int> device_ids)
      : step_time_(step_time),
        device_ids_(device_ids.begin(), device_ids.end()),
        queued_(device_ids.size()),
        waited_(device_ids.size()) {}

  std::span<const int> device_ids() const override { return device_ids_; }
  absl::StatusOr<std::unique_ptr<Engine>> NewEngine(int rank, const EngineOptions& options) override;

  void Abort(absl::string_view reason) override {
    MutexLock lock(&mutex_);
    if (!abort_reason_) abort_reason_ = std::string(reason);
    changed_.SignalAll();
  }
  bool aborted() const override {
    MutexLock lock(&mutex_);
    return abort_reason_.has_value();
  }

  // The n-th chunk of a rank belongs to the n-th of every other.
  void Enqueue(int rank, int64_t steps) {
    MutexLock lock(&mutex_);
    const int64_t chunk = queued_[static_cast<size_t>(rank)]++;
    if (chunk == first_ + static_cast<int64_t>(chunks_.size())) chunks_.emplace_back();
    Chunk& joined = chunks_[static_cast<size_t>(chunk - first_)];
    if (++joined.queued < size()) return;
    // It begins once the last rank is there, and the chunk before is done.
    free_at_ = std::max(free_at_, Clock::now()) + steps * step_time_;
    joined.done_at = free_at_;
    changed_.SignalAll();
  }

  absl::Status Wait(int rank) {
    MutexLock lock(&mutex_);
    const int64_t number = waited_[static_cast<size_t>(rank)]++;
    // The deque may lose chunks at its front during a wait.
    const auto chunk = [this, number]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> Chunk& {
      return chunks_[static_cast<size_t>(number - first_)];
    };
    while (!abort_reason_ && !chunk().done_at) changed_.Wait(&mutex_);
    while (!abort_reason_ && Clock::now() < *chunk().done_at) changed_.WaitUntil(&mutex_, *chunk().done_at);
    if (abort_reason_) return absl::AbortedError(*abort_reason_);
    ++chunk().waited;
    while (!chunks_.empty() && chunks_.front().waited == size()) {
      chunks_.pop_front();
      ++first_;
    }
    return absl::OkStatus();
  }

  // All ranks have the same, as nothing changes them.
  void WriteParameters(std::span<const float> flat) {
    MutexLock lock(&mutex_);
    parameters_.assign(flat.begin(), flat.end());
  }
  absl::Status ReadParameters(std::span<float> flat) {
    MutexLock lock(&mutex_);
    LENET_RETURN_IF_ERROR(CheckSize("parameters", flat.size(), static_cast<int64_t>(parameters_.size())));
    std::copy(parameters_.begin(), parameters_.end(), flat.begin());
    return absl::OkStatus();
  }

 private:
  struct Chunk {
    int queued = 0;  // ranks
    int waited = 0;
    std::optional<Clock::time_point> done_at;
  };

  const std::chrono::nanoseconds step_time_;
  const std::vector<int> device_ids_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<std::string> abort_reason_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> queued_ ABSL_GUARDED_BY(mutex_);  // chunks of each rank
  std::vector<int64_t> waited_ ABSL_GUARDED_BY(mutex_);
  std::deque<Chunk> chunks_ ABSL_GUARDED_BY(mutex_);  // those that a rank has yet to wait for, after first_ others
  int64_t first_ ABSL_GUARDED_BY(mutex_) = 0;
  Clock::time_point free_at_ ABSL_GUARDED_BY(mutex_);
  std::vector<float> parameters_ ABSL_GUARDED_BY(mutex_);
};

class PacedEngine final : public Engine {
 public:
  PacedEngine(PacedGroup* group, int rank, const EngineOptions& options)
      : group_(group), rank_(rank), options_(options) {}

  absl::string_view name() const override { return "paced"; }

  absl::Status WriteParameters(std::span<const float> flat) override {
    group_->WriteParameters(flat);
    return absl::OkStatus();
  }
  absl::Status ReadParameters(std::span<float> flat) override { return group_->ReadParameters(flat); }
  absl::Status WriteState(std::span<const float> /*state*/) override { return absl::OkStatus(); }
  absl::Status ReadState(std::span<float> state) override {
    std::fill(state.begin(), state.end(), 0.0F);
    return absl::OkStatus();
  }
  absl::Status Broadcast() override { return absl::OkStatus(); }
  absl::Status AllReduceSum(std::span<float> /*values*/) override {
    return absl::UnimplementedError("the paced engine has no sums");
  }
  absl::Status WarmUp() override { return absl::OkStatus(); }

  absl::Status Enqueue(const StepChunk& chunk) override {
    LENET_RETURN_IF_ERROR(CheckRoom(static_cast<int64_t>(first_steps_.size())));
    LENET_RETURN_IF_ERROR(CheckChunk(chunk, options_.dataset->train, options_.batch_size));
    first_steps_.push_back(chunk.first_step);
    group_->Enqueue(rank_, static_cast<int64_t>(chunk.learning_rates.size()));
    return absl::OkStatus();
  }

  absl::Status Wait(std::span<float> losses) override {
    LENET_RETURN_IF_ERROR(CheckQueued(static_cast<int64_t>(first_steps_.size())));
    LENET_RETURN_IF_ERROR(group_->Wait(rank_));
    // Not two of them alike, so that one in the place of another shows.
    auto number = static_cast<uint32_t>(first_steps_.front());
    for (float& loss : losses) {
      const uint32_t mixed =
          (number++ * static_cast<uint32_t>(group_->size()) + static_cast<uint32_t>(rank_)) * 2654435761U;
      loss = static_cast<float>(mixed >> 8) / static_cast<float>(1 << 24);
    }
    first_steps_.pop_front();
    return absl::OkStatus();
  }

  absl::StatusOr<EvalResult> Evaluate(SplitKind split, int64_t begin, int64_t end) override {
    LENET_RETURN_IF_ERROR(CheckIdle(static_cast<int64_t>(first_steps_.size())));
    const Split& images = split == SplitKind::kTrain ? options_.dataset->train : options_.dataset->test;
    LENET_RETURN_IF_ERROR(CheckEvaluation(images, begin, end));
    return EvalResult{.count = end - begin};
  }

  absl::Status Gradient(std::span<const uint32_t> /*indices*/, std::span<float> /*logits*/, std::span<float> /*losses*/,
                        std::span<float> /*gradient*/) override {
    return absl::UnimplementedError("a paced device has no gradient");
  }

 private:
  PacedGroup* const group_;
  const int rank_;
  const EngineOptions options_;
  std::deque<int64_t> first_steps_;  // of the chunks in flight
};

absl::StatusOr<std::unique_ptr<Engine>> PacedGroup::NewEngine(int rank, const EngineOptions& options) {
  LENET_RETURN_IF_ERROR(CheckEngineOptions(options));
  return std::make_unique<PacedEngine>(this, rank, options);
}

class PacedBackend final : public Backend {
 public:
  explicit PacedBackend(std::chrono::nanoseconds step_time) : step_time_(step_time) {}

  absl::string_view name() const override { return "cpu"; }
  std::span<const DeviceInfo> devices() const override { return devices_; }
  std::vector<std::pair<std::string, std::string>> versions() const override { return {}; }
  std::vector<std::pair<std::string, std::string>> built_with() const override { return {}; }
  absl::StatusOr<DeviceStatus> Inspect(int /*id*/) const override { return DeviceStatus(); }
  bool supports(Precision precision) const override { return precision == Precision::kFp32; }
  absl::Status CheckEngine(EngineKind engine, const Net& /*net*/, Precision /*precision*/) const override {
    return NoFusedEngine(engine, "paced");
  }
  bool oversubscribable() const override { return true; }
  bool failures_last() const override { return false; }
  absl::StatusOr<std::unique_ptr<RankGroup>> NewGroup(std::span<const int> device_ids) override {
    return std::make_unique<PacedGroup>(step_time_, device_ids);
  }

 private:
  const std::chrono::nanoseconds step_time_;
  const std::vector<DeviceInfo> devices_ = {{.id = 0, .name = "paced", .kind = "paced"},
                                            {.id = 1, .name = "paced", .kind = "paced"}};
};

absl::StatusOr<std::unique_ptr<Backend>> NewBackend() {
  const char* rate = std::getenv("LENET_PACED_RATE");  // NOLINT(concurrency-mt-unsafe)
  double steps = 0;
  if (rate == nullptr || !absl::SimpleAtod(rate, &steps) || !(steps >= 1 && steps <= 1e9)) {
    return absl::UnavailableError(
        absl::StrCat("LENET_PACED_RATE is '", rate != nullptr ? rate : "", "': must be steps a second, 1 to 1e9"));
  }
  return std::make_unique<PacedBackend>(std::chrono::nanoseconds(static_cast<int64_t>(1e9 / steps)));
}

}  // namespace
}  // namespace lenet

extern "C" __attribute__((visibility("default"))) void lenet_new_backend(
    int abi, const lenet::LogSink& log, absl::StatusOr<std::unique_ptr<lenet::Backend>>* result) {
  *result = lenet::AnswerEntry("paced", abi, log, lenet::NewBackend);
}
