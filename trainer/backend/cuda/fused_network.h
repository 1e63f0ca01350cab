// The fused kernels with their buffers: a network as the "lenet" preset, laid out for one batch size.
#ifndef LENET_TRAINER_BACKEND_CUDA_FUSED_NETWORK_H_
#define LENET_TRAINER_BACKEND_CUDA_FUSED_NETWORK_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/cuda/fused_lenet.h"
#include "trainer/backend/cuda/rank_context.h"
#include "trainer/nn/net.h"

namespace lenet::cuda {

class FusedNetwork {
 public:
  // Why the kernels do not serve this net at this precision on the device; empty if they do. `ordinal` as CUDA counts.
  static absl::StatusOr<std::string> WhyNot(const Place& place, int ordinal, const Net& net, Precision precision);

  // Of a net that they serve. parameters, gradient: flat, on the device. Forward takes up to `evaluation_batch` images.
  // Queues on the main stream.
  static absl::StatusOr<std::unique_ptr<FusedNetwork>> Create(RankContext* rank, const Net& net, int batch,
                                                              int evaluation_batch, const float* parameters,
                                                              float* gradient);

  // All only queue on the main stream. The gradient is that of the losses' sum, times `scale`.
  absl::Status ForwardBackward(const Source& source, float scale, const fused::ResultArguments& results);
  // The flat gradient from the last ForwardBackward. If `chunk` is not null it is counted up, and the step's mean loss
  // goes into `step_losses`. norm_partials: [norm_blocks()], see LaunchSgd, or null.
  absl::Status Gradient(const float* losses, Chunk* chunk, float* step_losses, double* norm_partials);
  // Images begin .. begin + count - 1 of the set.
  absl::Status Forward(const ImageSet& set, int64_t begin, int count, const fused::ResultArguments& results);

  int norm_blocks() const { return fused::GradientBlocks(batch_, classes_); }

 private:
  FusedNetwork(RankContext* rank, const Net& net, int batch, const float* parameters, float* gradient);

  fused::PassArguments Arguments(const ImageSet& set, const fused::ResultArguments& results) const;

  RankContext* const rank_;
  const int batch_;
  const int classes_;
  const fused::Offsets offsets_;
  const float* const parameters_;
  float* const gradient_;
  int multiprocessors_ = 0;
  // See fused::PassArguments.
  DeviceArray<float> inputs_;
  DeviceArray<float> gradients_;
  DeviceArray<float> conv_partials_;
  DeviceArray<float> pool2_gradients_;
  DeviceArray<unsigned char> conv_values_;
  DeviceArray<float> gradient_partials_;
  DeviceArray<uint32_t> arrivals_;
};

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_FUSED_NETWORK_H_
