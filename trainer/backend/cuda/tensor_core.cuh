// Products of small matrices on the tensor cores, with nearly the precision of float32: factors are split into sums of
// numbers that the tensor cores take as they are. On devices before compute capability 8.0 they do nothing.
#ifndef LENET_TRAINER_BACKEND_CUDA_TENSOR_CORE_CUH_
#define LENET_TRAINER_BACKEND_CUDA_TENSOR_CORE_CUH_

#include <cstdint>

namespace lenet::cuda {

// Where the entries of a product's matrices lie among the lanes of a warp (PTX ISA, "Matrix fragments for mma"), with
// row = lane / 4 and column = lane % 4:
//   sums [16][8]: sums[0], [1] in line `row`, columns 2 * column and one more; sums[2], [3] in line row + 8.
//   Tf32: a [16][8]: a[0] (row, column), a[1] (row + 8, column), a[2] (row, column + 4), a[3] (row + 8, column + 4);
//         b [8][8]: b[0] (column, row), b[1] (column + 4, row).
//   Bf16: the same, with two neighbours of the inner dimension in each register, the lower in its lower half.

// sums += a * b. The lower 13 bits of the factors do not count.
__device__ __forceinline__ void AddProductTf32(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// sums += a * b, with an inner dimension of 16.
__device__ __forceinline__ void AddProductBf16(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// x = big + small: big the nearest TF32 number (11 significant bits, ties away from zero), small the rest, whose first
// 11 bits count. From the products big * big, big * small and small * big that of two such sums is right to 2^-21, in
// the mean square to 2^-24 (float32's: 2^-24 and 2^-25). A NaN stays one, in small at least; an infinity becomes one.
__device__ __forceinline__ void SplitTf32(float x, uint32_t& big, uint32_t& small) {
  big = (__float_as_uint(x) + 0x1000) & 0xffffe000;  // cheaper than cvt.rna, which is several instructions
  small = __float_as_uint(x - __uint_as_float(big));
}

// x = the sum of three BF16 numbers of 8 significant bits, each in the upper half of a word: exact where no part
// underflows.
__device__ __forceinline__ void SplitBf16(float x, uint32_t (&parts)[3]) {
  constexpr uint32_t kUpper = 0xffff0000;
  parts[0] = __float_as_uint(x) & kUpper;
  const float rest = x - __uint_as_float(parts[0]);
  parts[1] = __float_as_uint(rest) & kUpper;
  parts[2] = __float_as_uint(rest - __uint_as_float(parts[1])) & kUpper;
}

// An integer of 8 bits at most as BF16, which is exact.
__device__ __forceinline__ uint32_t ByteToBf16(uint8_t x) { return __float_as_uint(static_cast<float>(x)) >> 16; }

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_TENSOR_CORE_CUH_
