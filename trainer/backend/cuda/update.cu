// Gradient norm and optimiser updates over the flat buffers. Compiled without contraction, as trainer/optim is.
#include "trainer/backend/cuda/block_sum.cuh"
#include "trainer/backend/cuda/kernels.h"
#include "trainer/backend/cuda/launch_early.cuh"
#include "trainer/comm/peer_sum.cuh"

namespace lenet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNormBlocks = 64;  // of a rank alone
static_assert(kMaxNormBlocks <= kThreads);
constexpr int kBlocksAtOnce = 1024 / kThreads;  // on a multiprocessor, as PeerMemory counts on

// An element of the step's gradient, over all ranks.
__device__ float StepGradient(const UpdateArguments& a, int64_t i) {
  const float own = a.gradient[i];
  if (a.peers.ranks == 1) return own;
  const uint32_t sum = a.chunk->first_peer_sum + static_cast<uint32_t>(a.chunk->next_step - 1);
  SendToPeers(a.peers, sum, i, own);
  return SumOverPeers(a.peers, sum, i, own);
}

// One element a thread where they are sums over ranks, so that no rank waits for more than one at a time.
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    SquaredNormKernel(const __grid_constant__ UpdateArguments a) {
  AwaitPrevious();
  LetNextStart();
  double sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.count; i += int64_t{gridDim.x} * kThreads) {
    const float g = StepGradient(a, i);
    if (a.peers.ranks > 1) a.gradient[i] = g;
    sum += double{g} * g;
  }
  sum = BlockSum<kThreads>(sum);
  if (threadIdx.x == 0) a.norm_partials[blockIdx.x] = sum;
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
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce) SgdKernel(const __grid_constant__ UpdateArguments a) {
  AwaitPrevious();
  LetNextStart();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool valid = i < a.count;
  // Asked for before other ranks are waited for.
  const float p = valid ? a.parameters[i] : 0;
  const float before = kMomentum && valid ? a.state[i] : 0;
  const float g = valid ? StepGradient(a, i) : 0;
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
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce) AdamKernel(const __grid_constant__ UpdateArguments a) {
  AwaitPrevious();
  LetNextStart();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool valid = i < a.count;
  float p = valid ? a.parameters[i] : 0;
  const float m_before = valid ? a.state[i] : 0;
  const float v_before = valid ? a.state[a.count + i] : 0;
  const float g = valid ? StepGradient(a, i) : 0;
  const UpdateScalars& s = a.chunk->scalars[a.chunk->next_step - 1];
  const float scale = GradientScale(a);
  if (!valid) return;
  float d = g * scale;
  if constexpr (kDecoupled) {
    p *= s.decay;
  } else {
    d += s.weight_decay * p;
  }
  const float m = s.beta1 * m_before + s.one_minus_beta1 * d;
  const float v = s.beta2 * v_before + s.one_minus_beta2 * d * d;
  a.state[i] = m;
  a.state[a.count + i] = v;
  a.parameters[i] = p - s.step_size * (m / (sqrtf(v) / s.sqrt_correction2 + s.epsilon));
}

cudaError_t Launch(void (*kernel)(UpdateArguments), int blocks, const UpdateArguments& arguments, cudaStream_t stream) {
  if (arguments.early) return LaunchEarly(kernel, dim3(blocks), kThreads, 0, stream, arguments);
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

int BlocksOfOneElementAThread(const UpdateArguments& arguments) {
  return static_cast<int>((arguments.count + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t LaunchSquaredNorm(UpdateArguments* arguments, cudaStream_t stream) {
  static_assert(kMaxPeerValues <= int64_t{kMaxNormBlocks} * kThreads);
  arguments->norm_blocks = arguments->peers.ranks > 1 ? BlocksOfOneElementAThread(*arguments) : kNormBlocks;
  const cudaError_t result = Launch(SquaredNormKernel, arguments->norm_blocks, *arguments, stream);
  arguments->peers = Peers();
  return result;
}

cudaError_t LaunchSgd(const UpdateArguments& arguments, bool momentum, bool nesterov, cudaStream_t stream) {
  auto* kernel = !momentum ? SgdKernel<false, false> : nesterov ? SgdKernel<true, true> : SgdKernel<true, false>;
  return Launch(kernel, BlocksOfOneElementAThread(arguments), arguments, stream);
}

cudaError_t LaunchAdam(const UpdateArguments& arguments, bool decoupled, cudaStream_t stream) {
  auto* kernel = decoupled ? AdamKernel<true> : AdamKernel<false>;
  return Launch(kernel, BlocksOfOneElementAThread(arguments), arguments, stream);
}

}  // namespace lenet::cuda
