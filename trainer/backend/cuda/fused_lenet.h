// A training step of the "lenet" preset on 28x28 images of one channel, up to the update, in few kernels: a pass takes
// images through the network and back, with weights and values in shared memory; another turns what it leaves into the
// gradient. For GPUs whose blocks get that much (Hopper and later).
#ifndef LENET_TRAINER_BACKEND_CUDA_FUSED_LENET_H_
#define LENET_TRAINER_BACKEND_CUDA_FUSED_LENET_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/backend/cuda/kernels.h"

namespace lenet::cuda::fused {

inline constexpr int kSide = 28;
inline constexpr int kPixels = kSide * kSide;
inline constexpr int kMaps1 = 6;  // of the first convolution; its 24x24 sums become 12x12
inline constexpr int kSide1 = 12;
inline constexpr int kMaps2 = 16;  // of the second; its 8x8 sums become 4x4
inline constexpr int kSide2 = 4;
inline constexpr int kTaps = 25;  // 5x5 windows
inline constexpr int kFeatures0 = kMaps2 * kSide2 * kSide2;
inline constexpr int kFeatures1 = 120;
inline constexpr int kFeatures2 = 84;
inline constexpr int kMaxClasses = 64;

// What a block leaves of the convolutions' gradients: [conv2.weight, conv1.weight, conv2.bias, conv1.bias].
inline constexpr int kWeights2 = kMaps2 * kMaps1 * kTaps;
inline constexpr int kWeights1 = kMaps1 * kTaps;
inline constexpr int kConvPartials = kWeights2 + kWeights1 + kMaps2 + kMaps1;

// Rows of what the linear layers' gradients are made from, an image a row: their inputs [kFeatures0, kFeatures1,
// kFeatures2], and the gradients of their sums [kFeatures1, kFeatures2, classes and zeros up to kMaxClasses].
inline constexpr int kInputRow = kFeatures0 + kFeatures1 + kFeatures2;
inline constexpr int kGradientRow = kFeatures1 + kFeatures2 + kMaxClasses;
inline constexpr int kBeyondInputs = 64;  // floats behind the last row of inputs, which may be read but do not count

// Places of the parameters in a flat buffer. The linear layers' follow each other without other parameters between.
struct Offsets {
  int conv1_weight, conv1_bias, conv2_weight, conv2_bias;
  int fc1_weight, fc1_bias, fc2_weight, fc2_bias, fc3_weight, fc3_bias;
  int end;
};

// What each image of a batch gives.
struct ResultArguments {
  float* losses = nullptr;     // [batch]
  uint8_t* correct = nullptr;  // [batch], see LaunchSoftmaxLoss; or null
  float* logits = nullptr;     // [batch, classes], or null
};

// Of one image, what the convolutions give beside pool2; see ConvValues.
inline constexpr int kConvValueBytes = 4704;

struct PassArguments {
  ImageSet set;
  Source source;
  int batch = 0;
  int classes = 0;
  bool backward = true;
  const float* parameters = nullptr;  // flat
  Offsets offsets;
  float scale = 0;  // of the gradients: 1 / images in the global batch
  ResultArguments results;
  float* inputs = nullptr;  // [batch, kInputRow]; without `backward` large batches use it, for pool2
  // With `backward`:
  float* gradients = nullptr;      // [batch, kGradientRow]
  float* conv_partials = nullptr;  // [ConvPartialRows, kConvPartials]
  // With `backward`, in large batches:
  float* pool2_gradients = nullptr;      // [batch, kFeatures0]
  unsigned char* conv_values = nullptr;  // [batch, kConvValueBytes]
};

// Whether the pass takes three kernels, which share what a block loads among several images, and not one, a block of
// which takes one image through the whole network.
bool IsLarge(int batch, int multiprocessors);
int ConvPartialRows(int batch, int multiprocessors);
int SharedBytes(const Offsets& offsets, int classes);  // that a block needs at most
// Before the first launch on a device.
cudaError_t PreparePass(const Offsets& offsets, int classes);
cudaError_t LaunchPass(const PassArguments& arguments, int multiprocessors, cudaStream_t stream);

struct GradientArguments {
  const float* inputs = nullptr;         // [batch, kInputRow], with kBeyondInputs behind
  const float* gradients = nullptr;      // [batch, kGradientRow]
  const float* conv_partials = nullptr;  // [conv_partial_rows, kConvPartials]
  const float* losses = nullptr;
  int batch = 0;
  int conv_partial_rows = 0;
  int classes = 0;
  Offsets offsets;
  float* gradient = nullptr;        // flat
  double* norm_partials = nullptr;  // [GradientBlocks(batch, classes)] whose sum is the square of its 2-norm; or null
  Chunk* chunk = nullptr;           // counted up to the next step; or null
  float* step_losses = nullptr;     // of the chunk, the mean over `losses` for this step
  // Of GradientPartials(batch, classes) floats, and of GradientBlocks(batch, classes) zeros, which are zeros again in
  // the end.
  float* partials = nullptr;
  uint32_t* arrivals = nullptr;
};

int GradientBlocks(int batch, int classes);
int64_t GradientPartials(int batch, int classes);
cudaError_t PrepareGradient();  // before the first launch on a device
cudaError_t LaunchGradient(const GradientArguments& arguments, cudaStream_t stream);

}  // namespace lenet::cuda::fused

#endif  // LENET_TRAINER_BACKEND_CUDA_FUSED_LENET_H_
