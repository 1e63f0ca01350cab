// Training steps on a backend without a trainer.
#ifndef LENET_TESTS_SUPPORT_RANK_RUN_H_
#define LENET_TESTS_SUPPORT_RANK_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"

namespace lenet {

struct RankRun {
  const Net* net = nullptr;
  std::shared_ptr<const Dataset> dataset;
  int ranks = 1;
  int batch_size = 1;  // of a rank
  OptimizerSpec optimizer;
  float clip_norm = 0;
  std::vector<float> parameters;      // at the start, [flat_size]
  std::vector<float> learning_rates;  // [steps]
  int chunk = 1;                      // steps given to the engine at once
  // The images of the global batch of a step, [ranks * batch_size]; rank r trains on the r-th part.
  std::function<std::vector<uint32_t>(int64_t step)> images;
};

struct RankRunResult {
  std::vector<std::vector<float>> losses;      // [rank][step]
  std::vector<std::vector<float>> parameters;  // [rank][flat_size]
  std::vector<std::vector<float>> state;       // [rank][StateSlots * flat_size]
};

// Every rank starts from `parameters` by the broadcast of rank 0.
absl::StatusOr<RankRunResult> RunOnRanks(Backend* backend, const RankRun& run);

// A group of this many ranks; ranks beyond the devices share them if the backend lets them.
absl::StatusOr<std::unique_ptr<RankGroup>> NewGroupOf(Backend* backend, int ranks);

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_RANK_RUN_H_
