#include "trainer/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace lenet {
namespace {

std::vector<uint32_t> Order(uint64_t seed, uint64_t epoch, uint32_t count) {
  std::vector<uint32_t> order(count);
  for (uint32_t i = 0; i < count; ++i) order[i] = PermutedIndex(seed, epoch, count, i);
  return order;
}

bool IsPermutation(std::vector<uint32_t> order) {
  std::sort(order.begin(), order.end());
  for (uint32_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

// How many standard deviations a chi-square statistic lies off its mean.
double ChiSquareDeviation(const std::vector<int>& bins, double expected, double freedom) {
  double chi_square = 0;
  for (const int bin : bins) chi_square += (bin - expected) * (bin - expected) / expected;
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

TEST(PermutedIndexTest, IsAPermutationForEveryCount) {
  std::vector<uint32_t> counts(600);
  std::iota(counts.begin(), counts.end(), 1);
  for (int bits = 10; bits <= 17; ++bits) {
    for (const int off : {-1, 0, 1}) counts.push_back(static_cast<uint32_t>((1 << bits) + off));
  }
  counts.push_back(60000);
  counts.push_back(112800);
  for (const uint32_t count : counts) {
    EXPECT_TRUE(IsPermutation(Order(/*seed=*/count, /*epoch=*/3, count))) << count;
  }
}

TEST(PermutedIndexTest, StaysBelowTheLargestCounts) {
  for (const uint32_t count : {0x80000001u, 0xfffffffeu, 0xffffffffu}) {
    std::set<uint32_t> images;
    for (const uint32_t index : {0u, 1u, count / 2, count - 2, count - 1}) {
      const uint32_t image = PermutedIndex(1, 1, count, index);
      EXPECT_LT(image, count);
      images.insert(image);
    }
    EXPECT_EQ(images.size(), 5u);
  }
}

TEST(PermutedIndexTest, DependsOnSeedAndEpochAlone) {
  const std::vector<uint32_t> order = Order(1, 0, 1000);
  EXPECT_EQ(order, Order(1, 0, 1000));
  std::set<std::vector<uint32_t>> orders = {order};
  for (const uint64_t seed : {uint64_t{0}, uint64_t{2}, (uint64_t{1} << 32) + 1, ~uint64_t{0}}) {
    orders.insert(Order(seed, 0, 1000));
  }
  for (const uint64_t epoch : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 31, uint64_t{1} << 40}) {
    orders.insert(Order(1, epoch, 1000));
  }
  EXPECT_EQ(orders.size(), 9u);
}

// Two orders of n elements agree at one place on average, whatever n is; neighbours in the set meet by chance alone.
TEST(PermutedIndexTest, EpochsShareNothingButChance) {
  constexpr uint32_t kCount = 60000;
  std::vector<uint32_t> previous(kCount);
  std::iota(previous.begin(), previous.end(), 0);
  for (uint64_t epoch = 0; epoch < 10; ++epoch) {
    const std::vector<uint32_t> order = Order(/*seed=*/1, epoch, kCount);
    int same_place = 0, neighbours = 0;
    double product = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      same_place += order[i] == previous[i];
      const uint32_t next = order[(i + 1) % kCount];
      neighbours += order[i] + 1 == next;
      product += (order[i] - kCount / 2.0) * (next - kCount / 2.0);
    }
    EXPECT_LE(same_place, 8) << epoch;  // Poisson of mean 1: a chance of 1e-6
    EXPECT_LE(neighbours, 8) << epoch;
    const double correlation = product / kCount / (double{kCount} * kCount / 12);
    EXPECT_LT(std::abs(correlation), 5 / std::sqrt(kCount)) << epoch;
    previous = order;
  }
}

TEST(PermutedIndexTest, EachElementIsEquallyLikelyAtEachPlace) {
  for (const uint32_t count : {2u, 3u, 5u, 10u, 64u, 100u}) {
    const int orders = 200 * static_cast<int>(count);
    std::vector<int> places(count * count), followers(count * count);
    for (int i = 0; i < orders; ++i) {
      const std::vector<uint32_t> order = Order(static_cast<uint64_t>(i / 10), static_cast<uint64_t>(i % 10), count);
      for (uint32_t place = 0; place < count; ++place) ++places[place * count + order[place]];
      for (uint32_t place = 1; place < count; ++place) ++followers[order[place - 1] * count + order[place]];
    }
    EXPECT_LT(std::abs(ChiSquareDeviation(places, double(orders) / count, (count - 1.0) * (count - 1.0))), 5) << count;
    std::vector<int> pairs;  // of different elements
    for (uint32_t i = 0; i < count * count; ++i) {
      if (i / count != i % count) pairs.push_back(followers[i]);
    }
    EXPECT_LT(std::abs(ChiSquareDeviation(pairs, double(orders) / count, count * (count - 1.0))), 5) << count;
  }
}

TEST(PermutedIndexTest, EveryOrderOfAFewElementsIsEquallyLikely) {
  constexpr uint32_t kCount = 4;
  constexpr int kOrders = 24 * 1000;
  std::vector<int> seen(256);
  for (int i = 0; i < kOrders; ++i) {
    const std::vector<uint32_t> order = Order(static_cast<uint64_t>(i), 0, kCount);
    ++seen[((order[0] * 4 + order[1]) * 4 + order[2]) * 4 + order[3]];
  }
  std::vector<int> orders;
  std::copy_if(seen.begin(), seen.end(), std::back_inserter(orders), [](int times) { return times > 0; });
  ASSERT_EQ(orders.size(), 24u);
  EXPECT_LT(std::abs(ChiSquareDeviation(orders, kOrders / 24.0, 23)), 5);
}

// A batch should hold about as many of the first half of the set as of the second: files are often sorted by class.
TEST(PermutedIndexTest, BatchesMixTheSet) {
  constexpr uint32_t kCount = 60000, kBatch = 60, kParts = 10;
  std::vector<int> bins(kParts);
  double squares = 0;
  const std::vector<uint32_t> order = Order(3, 0, kCount);
  for (uint32_t begin = 0; begin < kCount; begin += kBatch) {
    std::fill(bins.begin(), bins.end(), 0);
    for (uint32_t i = begin; i < begin + kBatch; ++i) ++bins[order[i] / (kCount / kParts)];
    for (const int bin : bins) squares += (bin - 6.0) * (bin - 6.0);
  }
  // Of a multinomial: 60 * 0.1 * 0.9 a bin, over 10,000 bins.
  EXPECT_NEAR(squares * kBatch / kCount / kParts, 5.4, 0.4);
}

class EpochSamplerTest : public ::testing::TestWithParam<int> {};

// 1 x 32, 2 x 16 and 4 x 8 draw the same global batches.
TEST_P(EpochSamplerTest, RanksShareOutTheGlobalBatch) {
  const int ranks = GetParam();
  constexpr int kGlobal = 32;
  const EpochSampler one(/*seed=*/5, /*count=*/1000, /*ranks=*/1, kGlobal);
  const EpochSampler many(5, 1000, ranks, kGlobal / ranks);
  EXPECT_EQ(one.steps_per_epoch(), 31);
  EXPECT_EQ(many.steps_per_epoch(), 31);
  EXPECT_EQ(one.dropped_per_epoch(), 8);
  EXPECT_EQ(many.dropped_per_epoch(), 8);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t step = 0; step < one.steps_per_epoch(); ++step) {
      std::vector<uint32_t> expected(kGlobal), got;
      one.Batch(epoch, step, 0, expected);
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<uint32_t> shard(static_cast<size_t>(kGlobal / ranks));
        many.Batch(epoch, step, rank, shard);
        got.insert(got.end(), shard.begin(), shard.end());
      }
      ASSERT_EQ(got, expected) << "epoch " << epoch << " step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EpochSamplerTest, ::testing::Values(1, 2, 4, 8, 32));

TEST(EpochSamplerTest, SevenRanksVisitNoImageTwiceAndDropTheTail) {
  constexpr int kRanks = 7, kBatch = 64;
  const EpochSampler sampler(/*seed=*/1, /*count=*/60000, kRanks, kBatch);
  EXPECT_EQ(sampler.steps_per_epoch(), 133);
  EXPECT_EQ(sampler.dropped_per_epoch(), 60000 - 133 * 448);
  std::set<uint32_t> visited, dropped;
  for (const int64_t epoch : {0, 1}) {
    std::vector<bool> seen(60000);
    std::vector<uint32_t> batch(kBatch);
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      for (int rank = 0; rank < kRanks; ++rank) {
        sampler.Batch(epoch, step, rank, batch);
        for (const uint32_t index : batch) {
          ASSERT_LT(index, 60000u);
          ASSERT_FALSE(seen[index]) << index;
          seen[index] = true;
        }
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), false), sampler.dropped_per_epoch());
    for (uint32_t i = 0; i < 60000; ++i) {
      if (!seen[i]) dropped.insert(i);
    }
  }
  // Another tail is left out in each epoch.
  EXPECT_GT(dropped.size(), 3u * static_cast<size_t>(sampler.dropped_per_epoch()) / 2);
}

// Whole batches are drawn several at a time, the rest of one with more than it needs.
TEST(EpochSamplerTest, FollowsPermutedIndex) {
  for (const uint32_t count : {100u, 60'000u, 4'000'000'000u}) {
    for (const int size : {1, 7, 50, 63, 64, 65, 1000}) {
      const EpochSampler sampler(/*seed=*/9, count, /*ranks=*/2, size);
      const int64_t steps = sampler.steps_per_epoch();
      if (steps == 0) continue;
      std::vector<uint32_t> batch(size);
      for (const int64_t step : {int64_t{0}, steps / 2, steps - 1}) {
        sampler.Batch(/*epoch=*/4, step, /*rank=*/1, batch);
        const uint32_t first = static_cast<uint32_t>(step * 2 * size + size);
        for (uint32_t i = 0; i < batch.size(); ++i) {
          ASSERT_EQ(batch[i], PermutedIndex(9, 4, count, first + i)) << count << ", batch " << size << ", image " << i;
        }
      }
    }
  }
}

TEST(EpochSamplerTest, ABatchLargerThanTheSetMakesNoStep) {
  const EpochSampler sampler(1, 10, 1, 11);
  EXPECT_EQ(sampler.steps_per_epoch(), 0);
  EXPECT_EQ(sampler.dropped_per_epoch(), 10);
  EXPECT_EQ(EpochSampler(1, 10, 1, 10).steps_per_epoch(), 1);
}

}  // namespace
}  // namespace lenet
