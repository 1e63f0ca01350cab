// The kernels of every instruction set that this processor has, against plain loops.

#include "trainer/backend/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/backend/cpu/aligned_floats.h"

namespace lenet::cpu {
namespace {

std::vector<std::string> InstructionSets() {
  std::vector<std::string> names;
  for (const Kernels* kernels : SupportedKernels()) names.emplace_back(kernels->instruction_set);
  return names;
}

const Kernels& KernelsFor(const std::string& name) {
  const auto found = std::ranges::find(SupportedKernels(), name, &Kernels::instruction_set);
  return **found;
}

class CpuKernelsTest : public ::testing::TestWithParam<std::string> {
 protected:
  AlignedFloats Random(int64_t count) {
    AlignedFloats floats;
    EXPECT_TRUE(floats.Allocate(count));
    for (float& value : floats.span()) value = uniform_(random_);
    return floats;
  }
  AlignedFloats Zeros(int64_t count) {
    AlignedFloats floats;
    EXPECT_TRUE(floats.Allocate(count));
    return floats;
  }
  // `count` different multiples of kBlock below `limit`, in no order.
  std::vector<int32_t> Places(int count, int limit) {
    std::vector<int32_t> places;
    for (int i = 0; i < limit; ++i) places.push_back(i * kBlock);
    std::shuffle(places.begin(), places.end(), random_);
    places.resize(count);
    return places;
  }

  const Kernels& kernels_ = KernelsFor(GetParam());
  std::mt19937 random_{3};
  std::uniform_real_distribution<float> uniform_{-1, 1};
};

TEST_P(CpuKernelsTest, ProductOfAnySize) {
  for (const int cells : {1, 3, 4, 5, 9}) {
    for (const int outputs : {1, 2, 5, 6, 7, 13}) {
      for (const int taps : {0, 1, 7}) {
        const std::vector<int32_t> in_cells = Places(cells, 20);
        const std::vector<int32_t> out_cells = Places(cells, 10);
        const std::vector<int32_t> in_taps = Places(taps, 8);
        std::vector<int32_t> weight_taps;
        for (int t = 0; t < taps; ++t) weight_taps.push_back(t * 3);
        const AlignedFloats in = Random(40 * kBlock);
        const AlignedFloats weights = Random(outputs * 30 + 30);
        const AlignedFloats bias = Random(outputs);
        const int64_t out_stride = 10 * kBlock;
        for (const bool relu : {false, true}) {
          for (const bool accumulate : {false, true}) {
            const AlignedFloats out = Random(outputs * out_stride);
            const std::vector<float> before(out.span().begin(), out.span().end());
            kernels_.product({.in_cells = in_cells.data(),
                              .out_cells = out_cells.data(),
                              .cells = cells,
                              .in_taps = in_taps.data(),
                              .weight_taps = weight_taps.data(),
                              .taps = taps,
                              .outputs = outputs,
                              .weight_stride = 30,
                              .out_stride = out_stride,
                              .relu = relu,
                              .accumulate = accumulate},
                             in.data(), weights.data(), accumulate ? nullptr : bias.data(), out.data());
            std::vector<double> expected(before.begin(), before.end());
            for (int q = 0; q < outputs; ++q) {
              for (int cell = 0; cell < cells; ++cell) {
                for (int i = 0; i < kBlock; ++i) {
                  double& value = expected[q * out_stride + out_cells[cell] + i];
                  if (!accumulate) value = bias.data()[q];
                  for (int t = 0; t < taps; ++t) {
                    value +=
                        double{weights.data()[q * 30 + weight_taps[t]]} * in.data()[in_cells[cell] + in_taps[t] + i];
                  }
                  if (relu) value = std::max(value, 0.0);
                }
              }
            }
            for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(out.data()[i], expected[i], 3e-6) << i;
          }
        }
      }
    }
  }
}

TEST_P(CpuKernelsTest, CorrelationAndCellSumsOfAnySize) {
  for (const int cells : {1, 4, 7}) {
    for (const int outputs : {1, 3, 4, 6, 11}) {
      for (const int taps : {1, 3, 4, 10}) {
        const std::vector<int32_t> in_cells = Places(cells, 12);
        const std::vector<int32_t> gradient_cells = Places(cells, 8);
        const std::vector<int32_t> in_taps = Places(taps, 10);
        const AlignedFloats in = Random(40 * kBlock);
        const AlignedFloats gradient = Random(outputs * 8 * kBlock);
        for (const bool accumulate : {false, true}) {
          const Correlation shape = {.in_cells = in_cells.data(),
                                     .gradient_cells = gradient_cells.data(),
                                     .cells = cells,
                                     .in_taps = in_taps.data(),
                                     .taps = taps,
                                     .outputs = outputs,
                                     .gradient_stride = 8 * kBlock,
                                     .accumulate = accumulate};
          std::vector<float> weights(outputs * taps, 0.25f);
          std::vector<float> sums(outputs, 0.5f);
          kernels_.correlate(shape, in.data(), gradient.data(), weights.data());
          kernels_.sum_cells(shape, gradient.data(), sums.data());
          for (int q = 0; q < outputs; ++q) {
            double sum = accumulate ? 0.5 : 0;
            for (int t = 0; t < taps; ++t) {
              double weight = accumulate ? 0.25 : 0;
              for (int i = 0; i < cells * kBlock; ++i) {
                const int cell = i / kBlock;
                const double g = gradient.data()[q * 8 * kBlock + gradient_cells[cell] + i % kBlock];
                weight += g * in.data()[in_cells[cell] + in_taps[t] + i % kBlock];
                if (t == 0) sum += g;
              }
              ASSERT_NEAR(weights[q * taps + t], weight, 1e-5);
            }
            ASSERT_NEAR(sums[q], sum, 1e-5);
          }
        }
      }
    }
  }
}

TEST_P(CpuKernelsTest, MaxPoolGivesTheGradientToTheFirstOfEquals) {
  // One window of 2x2 cells; per image another pattern of ties.
  const AlignedFloats in = Zeros(4 * kBlock);
  for (int image = 0; image < kBlock; ++image) {
    for (int k = 0; k < 4; ++k) in.data()[k * kBlock + image] = (image >> k & 1) != 0 ? 2.0f : 1.0f;
  }
  const AlignedFloats out = Zeros(kBlock);
  const AlignedFloats out_gradient = Random(kBlock);
  const AlignedFloats in_gradient = Random(4 * kBlock);
  const Pooling shape = {.channels = 1,
                         .out_height = 1,
                         .out_width = 1,
                         .kernel = 2,
                         .stride = 2,
                         .in_row = 2 * kBlock,
                         .in_gradient_row = 2 * kBlock};
  kernels_.max_pool(shape, in.data(), out.data());
  kernels_.max_pool_backward(shape, in.data(), out_gradient.data(), in_gradient.data());
  for (int image = 0; image < kBlock; ++image) {
    int first = 0;
    while (image != 0 && (image >> first & 1) == 0) ++first;
    EXPECT_EQ(out.data()[image], image == 0 ? 1.0f : 2.0f);
    for (int k = 0; k < 4; ++k) {
      EXPECT_EQ(in_gradient.data()[k * kBlock + image], k == first ? out_gradient.data()[image] : 0.0f);
    }
  }
}

TEST_P(CpuKernelsTest, NanPassesThroughEveryLayer) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const AlignedFloats in = Random(4 * kBlock);
  in.data()[2 * kBlock + 5] = nan;
  const AlignedFloats out = Zeros(4 * kBlock);
  kernels_.relu(4 * kBlock, in.data(), out.data());
  EXPECT_TRUE(std::isnan(out.data()[2 * kBlock + 5]));
  kernels_.tanh(4 * kBlock, in.data(), out.data());
  EXPECT_TRUE(std::isnan(out.data()[2 * kBlock + 5]));
  kernels_.max_pool({.channels = 1, .out_height = 1, .out_width = 1, .kernel = 2, .stride = 2, .in_row = 2 * kBlock},
                    in.data(), out.data());
  EXPECT_TRUE(std::isnan(out.data()[5]));
  EXPECT_FALSE(std::isnan(out.data()[4]));
}

TEST_P(CpuKernelsTest, TanhIsAccurateOverItsWholeRange) {
  const AlignedFloats in = Zeros(4096 * kBlock);
  const AlignedFloats out = Zeros(4096 * kBlock);
  for (int64_t i = 0; i < 4096 * kBlock; ++i) {
    const double size = std::pow(10.0, -8.0 + 10.5 * static_cast<double>(i) / (4096 * kBlock));  // 1e-8 to 316
    in.data()[i] = static_cast<float>(i % 2 == 0 ? size : -size);
  }
  in.data()[0] = 0;
  in.data()[1] = std::numeric_limits<float>::infinity();
  in.data()[2] = -std::numeric_limits<float>::infinity();
  in.data()[3] = 0.625f;
  in.data()[4] = -0.62499994f;
  kernels_.tanh(4096 * kBlock, in.data(), out.data());
  double worst = 0;
  for (int64_t i = 1; i < 4096 * kBlock; ++i) {
    const double exact = std::tanh(double{in.data()[i]});
    worst = std::max(worst, std::abs(out.data()[i] - exact) / std::abs(exact));
  }
  EXPECT_LE(worst, 3 * std::numeric_limits<float>::epsilon());
  EXPECT_EQ(out.data()[0], 0.0f);
  EXPECT_EQ(out.data()[1], 1.0f);
  EXPECT_EQ(out.data()[2], -1.0f);
}

TEST_P(CpuKernelsTest, UnpackAndTranspose) {
  constexpr int kPixels = 37;
  std::vector<std::vector<uint8_t>> bytes(kBlock, std::vector<uint8_t>(kPixels + 5));
  std::vector<const uint8_t*> images;
  for (auto& image : bytes) {
    for (uint8_t& byte : image) byte = static_cast<uint8_t>(random_());
    images.push_back(image.data());
  }
  for (const int count : {1, 11, kBlock}) {
    const AlignedFloats cells = Random(48 * kBlock);
    kernels_.unpack(images.data(), count, /*first=*/5, kPixels, cells.data());
    for (int p = 0; p < kPixels; ++p) {
      for (int image = 0; image < kBlock; ++image) {
        const float expected = image < count ? static_cast<float>(bytes[image][p + 5]) / 255.0f : 0.0f;
        ASSERT_EQ(cells.data()[p * kBlock + image], expected);
      }
    }
    const AlignedFloats rows = Zeros(kBlock * 64);
    kernels_.transpose(48, cells.data(), /*row=*/64, rows.data());
    for (int f = 0; f < 48; ++f) {
      for (int image = 0; image < kBlock; ++image) {
        ASSERT_EQ(rows.data()[image * 64 + f], cells.data()[f * kBlock + image]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, CpuKernelsTest, ::testing::ValuesIn(InstructionSets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lenet::cpu
