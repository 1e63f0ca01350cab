// Launchers of the backend's own kernels. All are asynchronous and deterministic: no sum depends on the order in which
// threads happen to run. Pointers are to device memory unless said otherwise. The result is that of the launch.
#ifndef LENET_TRAINER_BACKEND_CUDA_KERNELS_H_
#define LENET_TRAINER_BACKEND_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/backend/cuda/conv_geometry.h"
#include "trainer/comm/peer_memory.h"
#include "trainer/optim/update_scalars.h"

namespace lenet::cuda {

inline constexpr int kMaxSteps = 256;  // of a chunk

// A chunk of steps on the device; the indices of its batches, [steps, batch] of uint32_t, follow it. One captured graph
// serves every step: its kernels look up here which step it is.
struct Chunk {
  int32_t next_step;  // of the chunk; LaunchSoftmaxLoss counts it up, so that kernels after it belong to next_step - 1
  uint32_t first_peer_sum;  // the number of the first step's sum over the ranks, see SumOverPeers
  int32_t unused[2];
  UpdateScalars scalars[kMaxSteps];
};

enum class Activation { kNone, kRelu, kTanh };

// --- gather.cu

struct ImageSet {
  const uint8_t* images = nullptr;  // [count, image_size]
  const uint8_t* labels = nullptr;  // [count]
  int image_size = 0;
};

// Where images come from: of the first that is not null the batch's, else begin, begin + 1, …
struct Source {
  const Chunk* chunk = nullptr;       // of the chunk's next step
  const uint32_t* indices = nullptr;  // [batch]
  int64_t begin = 0;
};

// x: [batch, image_size], byte / 255; batch_labels: [batch]. Of the chunk's next step.
cudaError_t LaunchGatherStep(const ImageSet& set, const Chunk* chunk, int batch, float* x, uint8_t* batch_labels,
                             cudaStream_t stream);
// indices: [batch].
cudaError_t LaunchGatherIndices(const ImageSet& set, const uint32_t* indices, int batch, float* x,
                                uint8_t* batch_labels, cudaStream_t stream);
// Images begin, begin + 1, …; beyond `end` the last one again.
cudaError_t LaunchGatherRange(const ImageSet& set, int64_t begin, int64_t end, int batch, float* x,
                              uint8_t* batch_labels, cudaStream_t stream);

// --- conv_direct.cu: convolution for DirectConvolutionFits(shape)

// y: activation(convolution of x + bias), [N, C, H, W]. With `pooled`, its 2x2 maximum at stride 2, and winner (may be
// null) the place of the maximum, 0 to 3 in reading order, the first of equals.
cudaError_t LaunchConvForward(const ConvShape& shape, const TilePlan& plan, const float* x, const float* weight,
                              const float* bias, Activation activation, bool pooled, float* y, uint8_t* winner,
                              cudaStream_t stream);

// The gradient with respect to what LaunchConvForward gave, and what its way back to the convolution's sums needs.
struct ConvGradient {
  const float* dy = nullptr;
  const float* y = nullptr;
  const uint8_t* winner = nullptr;  // null: not pooled
  int height = 0;                   // of dy, y and winner
  int width = 0;
  Activation activation = Activation::kNone;
};

// dx: [N, C, H, W] of the convolution's input.
cudaError_t LaunchConvDataGradient(const ConvShape& shape, const TilePlan& plan, const ConvGradient& gradient,
                                   const float* weight, float* dx, cudaStream_t stream);

// --- conv_filter.cu

// partials: [plan.blocks, weights + out_channels], to be added up by LaunchReduce.
cudaError_t LaunchConvFilterGradient(const ConvShape& shape, const FilterPlan& plan, const ConvGradient& gradient,
                                     const float* x, float* partials, cudaStream_t stream);

// --- bias.cu

// y: activation(y + bias of its channel) in place, [N, C, inner].
cudaError_t LaunchBiasActivation(float* y, const float* bias, int64_t batch, int channels, int inner,
                                 Activation activation, cudaStream_t stream);

// Rows of the partial sums that the next two write.
int BiasPartialRows(int batch);

// dy becomes the gradient before the activation (y: what the activation gave), and partials [BiasPartialRows(batch),
// channels] its sums by channel. For [N, C, inner] and, with coalesced reads, [N, C].
cudaError_t LaunchChannelGradient(float* dy, const float* y, int batch, int channels, int inner, Activation activation,
                                  float* partials, cudaStream_t stream);
cudaError_t LaunchColumnGradient(float* dy, const float* y, int batch, int columns, Activation activation,
                                 float* partials, cudaStream_t stream);

// --- softmax_loss.cu

// losses: [batch], -log softmax(logits)[label]; dlogits (may be null): (softmax - one hot) * scale; correct (may be
// null): 1 where the largest logit, the first of equals, is the label's. classes <= 256. Counts chunk->next_step up
// unless chunk is null.
cudaError_t LaunchSoftmaxLoss(const float* logits, const uint8_t* labels, int batch, int classes, float scale,
                              float* losses, float* dlogits, uint8_t* correct, Chunk* chunk, cudaStream_t stream);

// --- reduce.cu

// out[i] = scale * the sum over r < rows of partials[r * stride + i], for i < size; of a step's own place in `out` if
// `by_step`.
struct Reduction {
  const float* partials = nullptr;
  float* out = nullptr;
  int64_t stride = 0;
  int rows = 0;
  int size = 0;
  float scale = 1;
  bool by_step = false;
};

// reductions: [count] on the device; max_size: their largest size.
cudaError_t LaunchReduce(const Reduction* reductions, int count, int max_size, const Chunk* chunk, cudaStream_t stream);

// --- update.cu

inline constexpr int kMaxNormBlocks = 256;

struct UpdateArguments {
  float* parameters = nullptr;
  float* gradient = nullptr;
  float* state = nullptr;  // [slots, count]
  int64_t count = 0;
  const Chunk* chunk = nullptr;     // the update is that of step next_step - 1
  Peers peers;                      // the gradient is summed over these ranks first
  double* norm_partials = nullptr;  // [norm_blocks] whose sum is the square of the 2-norm; null: no clipping
  int norm_blocks = 0;              // at most kMaxNormBlocks
  float clip_norm = 0;
  bool early = false;  // see LaunchEarly; where the kernels around it are launched so too
};

// For clipping where the gradient's kernels do not give the norm: norm_partials of the gradient, which becomes the sum
// over the ranks before; then there is nothing left to sum for the update itself.
cudaError_t LaunchSquaredNorm(UpdateArguments* arguments, cudaStream_t stream);

// The formulas of trainer/optim, operation by operation, so that a processor's result has the same bits.
cudaError_t LaunchSgd(const UpdateArguments& arguments, bool momentum, bool nesterov, cudaStream_t stream);
cudaError_t LaunchAdam(const UpdateArguments& arguments, bool decoupled, cudaStream_t stream);

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_KERNELS_H_
