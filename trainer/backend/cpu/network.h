// A network with its memory, for one rank.
#ifndef LENET_TRAINER_BACKEND_CPU_NETWORK_H_
#define LENET_TRAINER_BACKEND_CPU_NETWORK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/backend/cpu/aligned_floats.h"
#include "trainer/backend/cpu/layers.h"
#include "trainer/data/dataset.h"
#include "trainer/nn/net.h"

namespace lenet::cpu {

// Runs at most pass_size() images at a time; a larger batch is the sum of several passes, so that activations stay in
// the processor's caches. One thread at a time. Nothing is allocated after Create.
class Network {
 public:
  // `net` outlives the network. RESOURCE_EXHAUSTED if its activations do not fit in memory.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Net& net, const Kernels& kernels);

  int pass_size() const { return max_blocks_ * kBlock; }

  // Logits and losses of these images of `split`, 1 .. pass_size() of them.
  void Forward(const Split& split, std::span<const uint32_t> indices, const float* parameters);

  // Of the images of the last Forward.
  std::span<const double> losses() const { return {losses_.data(), static_cast<size_t>(count_)}; }
  int64_t correct() const { return correct_; }
  void CopyLogits(std::span<float> logits) const;  // [images, classes]

  // The gradient of `scale` times the sum of their losses, added to `gradient` if `accumulate`. Its gaps are left
  // alone.
  void Backward(float scale, const float* parameters, bool accumulate, float* gradient);

 private:
  Network(const Net& net, const Kernels& kernels) : net_(net), kernels_(kernels) {}

  absl::Status Build();
  void Unpack(const Split& split, std::span<const uint32_t> indices);
  void ComputeLosses();

  int blocks() const { return (count_ + kBlock - 1) / kBlock; }

  const Net& net_;
  const Kernels& kernels_;
  int max_blocks_ = 0;
  AlignedFloats memory_;
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<CpuLayer>> layers_;

  int count_ = 0;  // images of the pass
  std::vector<uint8_t> labels_;
  std::vector<double> losses_;
  std::vector<float> probabilities_;  // [images, classes]
  int64_t correct_ = 0;
};

}  // namespace lenet::cpu

#endif  // LENET_TRAINER_BACKEND_CPU_NETWORK_H_
