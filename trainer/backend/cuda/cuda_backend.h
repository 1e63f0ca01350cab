// The CUDA devices of this host.
#ifndef LENET_TRAINER_BACKEND_CUDA_CUDA_BACKEND_H_
#define LENET_TRAINER_BACKEND_CUDA_CUDA_BACKEND_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/cuda/rank_context.h"

namespace lenet::cuda {

class CudaBackend : public Backend {
 public:
  // UNAVAILABLE with the reason if there is no driver or no device that the kernels are compiled for.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(const Tuning& tuning);

  absl::string_view name() const override { return "cuda"; }
  std::span<const DeviceInfo> devices() const override { return devices_; }
  std::vector<std::pair<std::string, std::string>> versions() const override;
  std::vector<std::pair<std::string, std::string>> built_with() const override;
  absl::StatusOr<DeviceStatus> Inspect(int id) const override;
  bool supports(Precision precision) const override;
  absl::Status CheckEngine(EngineKind engine, const Net& net, Precision precision) const override;
  bool oversubscribable() const override { return false; }
  bool failures_last() const override { return true; }
  absl::StatusOr<std::unique_ptr<RankGroup>> NewGroup(std::span<const int> device_ids) override;

 private:
  explicit CudaBackend(const Tuning& tuning) : tuning_(tuning) {}

  absl::Status CheckId(int id) const;

  const Tuning tuning_;
  std::vector<DeviceInfo> devices_;
  std::vector<int> ordinals_;  // of devices_[i] for CUDA
  bool tf32_ = true;           // on every device
};

// Reads "key=value" pairs split by commas: engine=fused|layered, convolution=direct|cudnn, streams=1|2, sums=peers|nccl,
// steps=1..64 (of one graph).
// INVALID_ARGUMENT names the pair that is wrong.
absl::StatusOr<Tuning> ParseTuning(absl::string_view text);

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_CUDA_BACKEND_H_
