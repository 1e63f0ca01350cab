// The steps of a network's forward and backward pass on the device.
#ifndef LENET_TRAINER_BACKEND_CUDA_STAGE_H_
#define LENET_TRAINER_BACKEND_CUDA_STAGE_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/cuda/rank_context.h"
#include "trainer/nn/net.h"

namespace lenet::cuda {

// The values between two stages, [batch, shape].
struct Tensor {
  ImageShape shape;
  float* value = nullptr;
  float* gradient = nullptr;  // null where nothing before it has parameters, and without training
};

// Weight gradients depend on nothing but what is there already, and nothing but the optimiser waits for them: they run
// on a second stream, beside the chain of the other gradients.
class SideBranch {
 public:
  // Without a second stream in `context` all runs on the main one.
  static absl::StatusOr<std::unique_ptr<SideBranch>> Create(const RankContext* context);

  // What is put on stream() after this runs after all that is on the main stream now.
  absl::Status Fork();
  // What is put on the main stream after this runs after all that is on the side stream now.
  absl::Status Join();

  cudaStream_t stream() const;
  void* blas_workspace() const;

 private:
  explicit SideBranch(const RankContext* context) : context_(context) {}

  const RankContext* const context_;
  Event forked_;
  Event joined_;
  bool is_forked_ = false;  // since the last join; a capture must not wait for a stream that it has not forked to
};

// What every stage of one network is made with; outlives them.
struct NetworkContext {
  RankContext* rank = nullptr;
  SideBranch* side = nullptr;
  int batch = 0;
  bool training = false;
  Precision precision = Precision::kFp32;
  const Net* net = nullptr;
  const float* parameters = nullptr;  // flat
  float* gradients = nullptr;         // flat; null without training
  std::vector<Reduction> reductions;  // the stages add what is left to sum up after the backward pass

  const float* parameter(int index) const { return parameters + net->parameters()[index].offset; }
  float* gradient(int index) const { return gradients + net->parameters()[index].offset; }
};

// Queues work on the rank's streams; the buffers are fixed, so it may be captured. Backward takes the gradient in its
// output tensor, which it may overwrite, writes the gradient of its input tensor unless that is null, and its
// parameters' into the flat buffer or as reductions.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual absl::Status Forward() = 0;
  virtual absl::Status Backward() = 0;
};

// Convolution, with the activation and the 2x2 maximum (stride 2) that follow it, through the direct kernels.
absl::StatusOr<std::unique_ptr<Stage>> NewDirectConvStage(NetworkContext* context, const Layer& layer,
                                                          Activation activation, bool pooled, const Tensor& in,
                                                          const Tensor& out);
// Convolution, with the activation that follows it, through cuDNN.
absl::StatusOr<std::unique_ptr<Stage>> NewCudnnConvStage(NetworkContext* context, const Layer& layer,
                                                         Activation activation, const Tensor& in, const Tensor& out);
absl::StatusOr<std::unique_ptr<Stage>> NewPoolStage(NetworkContext* context, const Layer& layer, const Tensor& in,
                                                    const Tensor& out);
absl::StatusOr<std::unique_ptr<Stage>> NewActivationStage(NetworkContext* context, Activation activation,
                                                          const Tensor& in, const Tensor& out);
// Linear, with the activation that follows it.
absl::StatusOr<std::unique_ptr<Stage>> NewLinearStage(NetworkContext* context, const Layer& layer,
                                                      Activation activation, const Tensor& in, const Tensor& out);

// The convolution of a layer, for a batch.
ConvShape ConvShapeOf(const Layer& layer, int batch);

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_STAGE_H_
