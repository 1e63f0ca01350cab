// Small pieces that several kernels share.
#ifndef LENET_TRAINER_BACKEND_CUDA_DEVICE_HELPERS_CUH_
#define LENET_TRAINER_BACKEND_CUDA_DEVICE_HELPERS_CUH_

#include "trainer/backend/cuda/kernels.h"

namespace lenet::cuda {

// Not fmaxf: a NaN must stay one.
__device__ inline float Activate(Activation activation, float x) {
  if (activation == Activation::kRelu) return x <= 0 ? 0.0f : x;
  if (activation == Activation::kTanh) return tanhf(x);
  return x;
}

// The gradient before the activation, from that after it and what the activation gave.
__device__ inline float ActivationGradient(Activation activation, float dy, float y) {
  if (activation == Activation::kRelu) return y <= 0 ? 0.0f : dy;
  if (activation == Activation::kTanh) return dy * (1 - y * y);
  return dy;
}

// Walks i = start, start + step, … as i = (a * n1 + b) * n0 + c without dividing again at each step.
struct Walk3 {
  int a, b, c;

  __device__ Walk3(int start, int step, int n1, int n0) : n1_(n1), n0_(n0) {
    Split(start, a, b, c);
    Split(step, step_a_, step_b_, step_c_);
  }
  __device__ void Next() {
    c += step_c_;
    b += step_b_;
    a += step_a_;
    if (c >= n0_) {
      c -= n0_;
      ++b;
    }
    if (b >= n1_) {
      b -= n1_;
      ++a;
    }
  }

 private:
  __device__ void Split(int i, int& high, int& middle, int& low) const {
    const int t = i / n0_;
    low = i - t * n0_;
    high = t / n1_;
    middle = t - high * n1_;
  }

  int n1_, n0_;
  int step_a_, step_b_, step_c_;
};

// Calls store(channel, y, x, value) for every element of image n's gradient with respect to the convolution's sums, in
// `count` channels from `first`; what no pooling window covers is left out, its gradient is zero.
template <typename Store>
__device__ void ForEachSumGradient(const ConvGradient& gradient, int64_t n, int channels, int first, int count,
                                   const Store& store) {
  const int area = gradient.height * gradient.width;
  const int64_t base = (n * channels + first) * area;
  Walk3 at(threadIdx.x, blockDim.x, gradient.height, gradient.width);
  for (int i = threadIdx.x; i < count * area; i += blockDim.x, at.Next()) {
    const float value = ActivationGradient(gradient.activation, gradient.dy[base + i], gradient.y[base + i]);
    if (gradient.winner == nullptr) {
      store(at.a, at.b, at.c, value);
    } else {
      const int winner = gradient.winner[base + i];
      for (int k = 0; k < 4; ++k) {
        store(at.a, 2 * at.b + k / 2, 2 * at.c + k % 2, k == winner ? value : 0.0f);
      }
    }
  }
}

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_DEVICE_HELPERS_CUH_
