// Gradient norm and optimiser updates over the flat buffers. Compiled without contraction, as trainer/optim is.
#include "trainer/backend/cuda/block_sum.cuh"
#include "trainer/backend/cuda/kernels.h"
#include "trainer/backend/cuda/launch_early.cuh"

namespace lenet::cuda {
namespace {

constexpr int kThreads = 256;
static_assert(kMaxNormBlocks <= kThreads);

__global__ void SquaredNormKernel(const float* gradient, int64_t count, double* partials) {
  double sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    const double g = gradient[i];
    sum += g * g;
  }
  sum = BlockSum<kThreads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// The factor for every gradient of the step, the same in each block; all threads must call it. See ClipScale in
// trainer/optim.
__device__ float GradientScale(const UpdateArguments& a) {
  if (a.norm_partials == nullptr) return 1;
  __shared__ float scale;
  const double sum = BlockSum<kThreads>(threadIdx.x < a.norm_blocks ? a.norm_partials[threadIdx.x] : 0);
  if (threadIdx.x == 0) {
    const float norm = static_cast<float>(sqrt(sum));
    const float ratio = a.clip_norm / (norm + 1e-6f);
    scale = ratio > 1 ? 1 : ratio;  // a NaN stays one
  }
  __syncthreads();
  return scale;
}

template <bool kMomentum, bool kNesterov>
__global__ void SgdKernel(UpdateArguments a) {
  AwaitPrevious();
  LetNextStart();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool valid = i < a.count;
  // Asked for before anything is waited for.
  const float p = valid ? a.parameters[i] : 0;
  const float g = valid ? a.gradient[i] : 0;
  const float before = kMomentum && valid ? a.state[i] : 0;
  const UpdateScalars& s = a.chunk->scalars[a.chunk->next_step - 1];
  const float scale = GradientScale(a);
  if (!valid) return;
  float d = g * scale + s.weight_decay * p;
  if constexpr (kMomentum) {
    const float v = s.momentum * before + d;
    a.state[i] = v;
    d = kNesterov ? d + s.momentum * v : v;
  }
  a.parameters[i] = p - s.learning_rate * d;
}

template <bool kDecoupled>
__global__ void AdamKernel(UpdateArguments a) {
  AwaitPrevious();
  LetNextStart();
  const float scale = GradientScale(a);
  const UpdateScalars& s = a.chunk->scalars[a.chunk->next_step - 1];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.count) return;
  float d = a.gradient[i] * scale;
  float p = a.parameters[i];
  if constexpr (kDecoupled) {
    p *= s.decay;
  } else {
    d += s.weight_decay * p;
  }
  const float m = s.beta1 * a.state[i] + s.one_minus_beta1 * d;
  const float v = s.beta2 * a.state[a.count + i] + s.one_minus_beta2 * d * d;
  a.state[i] = m;
  a.state[a.count + i] = v;
  a.parameters[i] = p - s.step_size * (m / (sqrtf(v) / s.sqrt_correction2 + s.epsilon));
}

cudaError_t Launch(void (*kernel)(UpdateArguments), const UpdateArguments& arguments, cudaStream_t stream) {
  const int blocks = static_cast<int>((arguments.count + kThreads - 1) / kThreads);
  if (arguments.early) return LaunchEarly(kernel, dim3(blocks), kThreads, 0, stream, arguments);
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchSquaredNorm(const float* gradient, int64_t count, double* partials, cudaStream_t stream) {
  SquaredNormKernel<<<kNormBlocks, kThreads, 0, stream>>>(gradient, count, partials);
  return cudaGetLastError();
}

cudaError_t LaunchSgd(const UpdateArguments& arguments, bool momentum, bool nesterov, cudaStream_t stream) {
  auto* kernel = !momentum ? SgdKernel<false, false> : nesterov ? SgdKernel<true, true> : SgdKernel<true, false>;
  return Launch(kernel, arguments, stream);
}

cudaError_t LaunchAdam(const UpdateArguments& arguments, bool decoupled, cudaStream_t stream) {
  auto* kernel = decoupled ? AdamKernel<true> : AdamKernel<false>;
  return Launch(kernel, arguments, stream);
}

}  // namespace lenet::cuda
