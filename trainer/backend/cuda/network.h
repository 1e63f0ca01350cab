// A Net laid out on the device for one batch size.
#ifndef LENET_TRAINER_BACKEND_CUDA_NETWORK_H_
#define LENET_TRAINER_BACKEND_CUDA_NETWORK_H_

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/cuda/stage.h"

namespace lenet::cuda {

class Network {
 public:
  // parameters and gradients: flat buffers on the device. Without `gradients` it can only go forward. Only allocates
  // and asks; queues nothing.
  static absl::StatusOr<std::unique_ptr<Network>> Create(RankContext* rank, const Net& net, int batch,
                                                         Precision precision, const float* parameters,
                                                         float* gradients);

  int batch() const { return context_.batch; }
  float* input() const { return tensors_.front().value; }        // [batch, C, H, W]
  const float* logits() const { return tensors_.back().value; }  // [batch, classes]
  float* logits_gradient() const { return tensors_.back().gradient; }

  // Queue on the rank's streams; what they leave unsummed is in reductions(), for LaunchReduce on the main stream.
  absl::Status Forward();
  absl::Status Backward();
  std::span<const Reduction> reductions() const { return context_.reductions; }

 private:
  Network() = default;

  absl::Status Build(const Net& net);
  // Appends a tensor of this shape.
  absl::Status AddTensor(const ImageShape& shape, bool has_gradient);

  NetworkContext context_;
  std::unique_ptr<SideBranch> side_;
  std::vector<DeviceArray<float>> buffers_;
  std::vector<Tensor> tensors_;  // tensors_[i] goes into stages_[i], tensors_[i + 1] comes out
  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_NETWORK_H_
