#include "trainer/base/random.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace lenet {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers that the authors of Random123 publish for philox4x32 with 10 rounds.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomBlockTest, PutsBlockAndStreamIntoTheCounterAndTheSeedIntoTheKey) {
  EXPECT_EQ(RandomBlock(/*seed=*/0x299f31d0a4093822, /*stream=*/0x0370734413198a2e, /*block=*/0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformFloatTest, IsTheTop24BitsOfItsWord) {
  for (const uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{4}, uint64_t{1000003},
                               (uint64_t{1} << 40) + 7, ~uint64_t{0}}) {
    const uint32_t word = RandomBlock(7, 9, index >> 2)[index & 3];
    const double expected = std::floor(word / 256.0) / 16777216.0;
    EXPECT_EQ(double{UniformFloat(7, 9, index)}, expected) << index;
  }
}

TEST(UniformFloatTest, IsUniform) {
  constexpr int kCount = 1 << 20;
  constexpr int kBins = 256;
  std::vector<int> bins(kBins);
  double sum = 0, squares = 0, neighbours = 0, previous = 0.5;
  for (int i = 0; i < kCount; ++i) {
    const double x = UniformFloat(/*seed=*/1, kInitStream, static_cast<uint64_t>(i));
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    ++bins[static_cast<size_t>(x * kBins)];
    sum += x - 0.5;
    squares += (x - 0.5) * (x - 0.5);
    neighbours += (x - 0.5) * (previous - 0.5);
    previous = x;
  }
  // Five standard deviations of each statistic.
  EXPECT_LT(std::abs(sum / kCount), 5 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_LT(std::abs(squares / kCount - 1.0 / 12), 5 * std::sqrt(1.0 / 180 / kCount));
  EXPECT_LT(std::abs(neighbours / kCount), 5.0 / 12 / std::sqrt(kCount));
  double chi_square = 0;
  const double expected = double{kCount} / kBins;
  for (const int bin : bins) chi_square += (bin - expected) * (bin - expected) / expected;
  EXPECT_LT(std::abs(chi_square - (kBins - 1)), 5 * std::sqrt(2.0 * (kBins - 1)));
}

TEST(UniformFloatTest, SeedsAndStreamsShareNothing) {
  std::set<std::vector<float>> starts;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (const uint64_t stream : {uint64_t{0}, kShuffleStream, kInitStream, kInitStream + 1}) {
      std::vector<float> start;
      for (uint64_t i = 0; i < 8; ++i) start.push_back(UniformFloat(seed, stream, i));
      starts.insert(start);
    }
  }
  EXPECT_EQ(starts.size(), 12u);
}

}  // namespace
}  // namespace lenet
