#include "trainer/backend/cpu/kernels.h"

#include <array>

namespace lenet::cpu {

// Each from its own build of kernels_simd.cc.
const Kernels& BaselineKernels();
#if defined(__x86_64__)
const Kernels& Avx2Kernels();
const Kernels& Avx512Kernels();
#endif

namespace {

struct Supported {
  std::array<const Kernels*, 3> list = {};
  size_t size = 0;
};

Supported Detect() {
  Supported supported;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f")) supported.list[supported.size++] = &Avx512Kernels();
  if (avx2) supported.list[supported.size++] = &Avx2Kernels();
#endif
  supported.list[supported.size++] = &BaselineKernels();
  return supported;
}

}  // namespace

std::span<const Kernels* const> SupportedKernels() {
  static const Supported supported = Detect();
  return {supported.list.data(), supported.size};
}

}  // namespace lenet::cpu
