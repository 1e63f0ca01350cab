// Ranks without a device: they train nothing, but keep and check the contract of backend.h, and fail, hang or
// diverge where a script says so.
#ifndef LENET_TESTS_SUPPORT_FAKE_BACKEND_H_
#define LENET_TESTS_SUPPORT_FAKE_BACKEND_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/backend/backend.h"
#include "trainer/base/mutex.h"
#include "trainer/comm/local.h"

namespace lenet {

enum class FakeCall { kNewEngine, kBroadcast, kAllReduce, kWarmUp, kStep, kEvaluate, kReadParameters };

struct FakeFault {
  enum class Kind {
    kError,    // the call fails with `status`
    kHang,     // it does not return before the group is aborted
    kLoss,     // kStep: this rank's loss is `loss`
    kCorrupt,  // kStep: this rank's weights change
  };
  FakeCall call = FakeCall::kStep;
  Kind kind = Kind::kError;
  int rank = 0;
  int64_t step = 0;  // kStep: counted from 0
  float loss = 0;
  absl::Status status = absl::InternalError("fake error");
};

struct FakeScript {
  std::vector<FakeFault> faults;
  std::chrono::microseconds step_time{0};
  std::chrono::microseconds evaluate_time{0};  // of one call
  std::chrono::microseconds warm_up_time{0};
  std::function<void(int rank, const StepChunk& chunk)> on_enqueue;  // on the rank's thread
  std::function<void(int rank, int64_t begin, int64_t end)> on_evaluate;
  std::function<void()> on_hang;
  // The share of the images that evaluation finds correct after so many steps; without it, those of an even index.
  std::function<double(int64_t steps)> accuracy;
  int64_t first_step = 0;  // steps done before the group's training, for `accuracy`
};

// The parameters depend on every index, every learning rate and their order: each step adds to all of them the mean
// over the ranks of a number drawn from its indices, times the rate. Losses are in (0, 3). Evaluation gives each image
// the loss 0.5.
class FakeGroup : public RankGroup {
 public:
  FakeGroup(std::vector<int> device_ids, FakeScript script);
  explicit FakeGroup(int ranks, FakeScript script = {});

  std::span<const int> device_ids() const override { return device_ids_; }
  absl::StatusOr<std::unique_ptr<Engine>> NewEngine(int rank, const EngineOptions& options) override;
  void Abort(absl::string_view reason) override;
  bool aborted() const override { return comm_.aborted(); }

  int engines() const { return engines_.load(); }  // alive

 private:
  friend class FakeEngine;

  // Takes the scripted fault for this call, if there is one, and gives what the call comes to. *loss and *corrupt are
  // set by the kinds that the caller applies.
  absl::Status Play(FakeCall call, int rank, int64_t step, float* loss = nullptr, bool* corrupt = nullptr);
  // Sleeps, unless the group is aborted first.
  absl::Status Pause(std::chrono::microseconds time) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Hang() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<int> device_ids_;
  const FakeScript script_;
  LocalGroup comm_;
  std::atomic<int> engines_{0};
  Mutex mutex_;
  CondVar abort_changed_;
  std::optional<std::string> abort_reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_FAKE_BACKEND_H_
