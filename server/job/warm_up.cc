#include "server/job/warm_up.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

constexpr int kBatch = 64;
constexpr int kSteps = 2;
constexpr int kClasses = 10;
constexpr ImageShape kShape = {.channels = 1, .height = 28, .width = 28};

class WarmUpObserver : public TrainObserver {
 public:
  explicit WarmUpObserver(const std::function<void(const std::string&)>& stuck) : stuck_(stuck) {}

  void OnRunning(absl::string_view) override {}
  void OnSteps(int, int64_t, std::span<const float>) override {}
  void OnEpoch(const EpochSummary&) override {}
  void OnEvaluation(const Evaluation&) override {}
  void OnCheckpoint(const CheckpointSaved&) override {}
  void OnWarning(absl::string_view) override {}
  void OnRanksStuck(const std::string& message) override {
    if (stuck_) stuck_(message);
  }

 private:
  const std::function<void(const std::string&)>& stuck_;
};

Split MakeSplit(int64_t count) {
  Split split = {.shape = kShape, .count = count};
  split.images.resize(static_cast<size_t>(count * kShape.size()));
  for (size_t i = 0; i < split.images.size(); ++i) split.images[i] = static_cast<uint8_t>(i * 31 % 251);
  split.labels.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < split.labels.size(); ++i) split.labels[i] = static_cast<uint8_t>(i % kClasses);
  return split;
}

}  // namespace

absl::Status WarmUp(GroupCache* groups, std::span<const int> device_ids, const StopRequest* stop,
                    const WarmUpTimeouts& timeouts) {
  const int ranks = static_cast<int>(device_ids.size());
  const int64_t images = int64_t{ranks} * kBatch * kSteps;
  auto dataset = std::make_shared<const Dataset>(
      Dataset{.name = "warm-up", .classes = kClasses, .train = MakeSplit(images), .test = MakeSplit(images)});

  TrainSpec spec = {.dataset = "warm-up"};
  spec.batch_size = kBatch;
  spec.max_steps = kSteps;
  TrainJob job = {.dataset = dataset};
  job.collective_timeout = timeouts.collective;
  job.join_timeout = timeouts.join;
  LENET_ASSIGN_OR_RETURN(job.plan, PlanTraining(spec, ranks, *dataset));
  LENET_ASSIGN_OR_RETURN(std::unique_ptr<RankGroup> group, groups->Take(device_ids));
  WarmUpObserver observer(timeouts.stuck);
  const TrainResult result = Train(job, group.get(), stop, &observer);
  switch (result.end) {
    case TrainEnd::kCompleted:
      groups->Give(std::move(group));
      return absl::OkStatus();
    case TrainEnd::kStopped:
    case TrainEnd::kAborted:
      return absl::CancelledError("stopped in the warm-up");
    case TrainEnd::kFailed:
      break;
  }
  if (!result.failure) return absl::InternalError("the warm-up failed");
  return Annotate(result.failure->status, absl::StrCat("rank ", result.failure->rank, ", in ", result.failure->phase));
}

}  // namespace lenet
