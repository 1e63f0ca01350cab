#include "trainer/comm/local.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/rank_threads.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Values whose sum depends on the order of the additions.
std::vector<std::vector<float>> RandomData(int ranks, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::vector<std::vector<float>> data(ranks);
  for (auto& values : data) {
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(std::ldexp(mantissa(random), static_cast<int>(random() % 24)));
    }
  }
  return data;
}

std::vector<float> SerialSum(const std::vector<std::vector<float>>& data) {
  std::vector<float> sum = data[0];
  for (size_t rank = 1; rank < data.size(); ++rank) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += data[rank][i];
  }
  return sum;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<uint32_t, float>, std::bit_cast<uint32_t, float>);
}

struct SumCase {
  int ranks;
  int64_t count;
};

void PrintTo(const SumCase& sum, std::ostream* out) { *out << sum.count << " values on " << sum.ranks << " ranks"; }

class LocalGroupSumTest : public ::testing::TestWithParam<SumCase> {};

TEST_P(LocalGroupSumTest, AddsInTheOrderOfTheRanksOnEveryRank) {
  const int ranks = GetParam().ranks;
  const int64_t count = GetParam().count;
  const auto data = RandomData(ranks, count, 7);
  const std::vector<float> expected = SerialSum(data);
  for (int run = 0; run < 3; ++run) {
    auto sums = data;
    LocalGroup group(ranks);
    EXPECT_EQ(group.size(), ranks);
    const absl::Status status = RunRanks(ranks, [&](int rank) {
      return group.communicator(rank)->AllReduceSum(sums[rank].data(), count, nullptr);
    });
    ASSERT_TRUE(status.ok()) << status;
    for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(SameBits(sums[rank], expected)) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LocalGroupSumTest,
                         ::testing::Values(SumCase{1, 100}, SumCase{2, 1}, SumCase{2, 44426}, SumCase{3, 17},
                                           SumCase{4, 0}, SumCase{5, 1000}, SumCase{7, 6}, SumCase{8, 8192},
                                           SumCase{17, 5000}),
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) + "Ranks" + std::to_string(info.param.count);
                         });

TEST(LocalGroupTest, BroadcastGivesRankZerosDataToAll) {
  constexpr int kRanks = 6;
  auto data = RandomData(kRanks, 1234, 3);
  const std::vector<float> root = data[0];
  LocalGroup group(kRanks);
  const absl::Status status =
      RunRanks(kRanks, [&](int rank) { return group.communicator(rank)->Broadcast(data[rank].data(), 1234, nullptr); });
  ASSERT_TRUE(status.ok()) << status;
  for (const auto& values : data) EXPECT_TRUE(SameBits(values, root));
}

TEST(LocalGroupTest, DifferentCountsFailOnEveryRankAndLeaveTheGroupUsable) {
  constexpr int kRanks = 3;
  LocalGroup group(kRanks);
  std::vector<std::vector<float>> data(kRanks, std::vector<float>(8, 1.0f));
  std::vector<absl::Status> statuses(kRanks);
  ASSERT_TRUE(RunRanks(kRanks, [&](int rank) {
                statuses[rank] = group.communicator(rank)->AllReduceSum(data[rank].data(), rank == 2 ? 7 : 8, nullptr);
                return group.communicator(rank)->AllReduceSum(data[rank].data(), 8, nullptr);
              }).ok());
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("8 values on rank 0 but 7 on rank 2"));
  }
  for (const auto& values : data) EXPECT_EQ(values, std::vector<float>(8, 3.0f));
}

TEST(LocalGroupTest, NoRankPassesABarrierBeforeTheLastOneComes) {
  constexpr int kRanks = 5;
  LocalGroup group(kRanks);
  std::atomic<int> arrived{0};
  const absl::Status status = RunRanks(kRanks, [&](int rank) {
    if (rank == kRanks - 1) std::this_thread::sleep_for(milliseconds(30));
    ++arrived;
    absl::Status passed = group.Barrier();
    EXPECT_EQ(arrived.load(), kRanks);
    return passed;
  });
  EXPECT_TRUE(status.ok()) << status;
}

// More ranks than any machine here has cores would take minutes if waiting ranks did not sleep.
TEST(LocalGroupTest, ManyCollectivesInARow) {
  for (const int ranks : {2, 17}) {
    constexpr int kRounds = 500;
    constexpr int64_t kCount = 257;
    const int of_ranks = ranks * (ranks - 1) / 2;  // 0 + 1 + ... + (ranks - 1)
    LocalGroup group(ranks);
    const absl::Status status = RunRanks(ranks, [&](int rank) -> absl::Status {
      std::vector<float> data(kCount);
      for (int round = 0; round < kRounds; ++round) {
        for (int64_t i = 0; i < kCount; ++i) data[i] = static_cast<float>(rank + round + i);
        absl::Status sum = group.communicator(rank)->AllReduceSum(data.data(), kCount, nullptr);
        if (!sum.ok()) return sum;
        for (int64_t i = 0; i < kCount; ++i) {
          if (data[i] != static_cast<float>(of_ranks + ranks * (round + i))) {
            return absl::InternalError("wrong sum");
          }
        }
        absl::Status barrier = group.Barrier();
        if (!barrier.ok()) return barrier;
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(LocalGroupTest, AbortWakesBlockedRanksWithItsReason) {
  constexpr int kRanks = 4;
  LocalGroup group(kRanks);
  std::vector<absl::Status> statuses(kRanks - 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks - 1; ++rank) {  // the last one never comes
    threads.emplace_back([&, rank] {
      float value = 1;
      statuses[rank] = rank == 0 ? group.Barrier() : group.communicator(rank)->AllReduceSum(&value, 1, nullptr);
    });
  }
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(group.aborted());
  group.Abort("rank 3 lost its device");
  group.Abort("a later reason");
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(group.aborted());
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status, absl::AbortedError("rank 3 lost its device"));
  }
  float value = 1;
  EXPECT_EQ(group.communicator(3)->AllReduceSum(&value, 1, nullptr), absl::AbortedError("rank 3 lost its device"));
  EXPECT_EQ(group.communicator(3)->Broadcast(&value, 1, nullptr).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(group.Barrier().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(value, 1);
}

TEST(LocalGroupTest, AbortOfAGroupOfOne) {
  LocalGroup group(1);
  float value = 2;
  EXPECT_TRUE(group.communicator(0)->AllReduceSum(&value, 1, nullptr).ok());
  EXPECT_EQ(value, 2);
  group.Abort("stop");
  EXPECT_EQ(group.communicator(0)->AllReduceSum(&value, 1, nullptr), absl::AbortedError("stop"));
}

// Every rank must see the same number of collectives succeed, and none may touch the data of a rank that has left:
// each frees its own on the first error.
TEST(LocalGroupTest, AbortAtAnyMomentPartsNoCollective) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const int ranks = 2 + round % 4;
    LocalGroup group(ranks);
    std::vector<int> done(ranks);
    std::thread aborter([&, delay = random() % 2000] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      group.Abort("now");
    });
    const absl::Status status = RunRanks(ranks, [&](int rank) {
      auto data = std::make_unique<std::vector<float>>(3000, 1.0f);
      absl::Status sum;
      while (sum.ok()) {
        sum = group.communicator(rank)->AllReduceSum(data->data(), 3000, nullptr);
        if (sum.ok()) ++done[rank];
      }
      data.reset();
      return sum;
    });
    aborter.join();
    EXPECT_EQ(status, absl::AbortedError("now"));
    for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(done[rank], done[0]);
  }
}

TEST(LocalGroupTest, AbortFromManyThreadsKeepsOneReason) {
  LocalGroup group(2);
  std::thread waiter([&] { EXPECT_EQ(group.Barrier().code(), absl::StatusCode::kAborted); });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] { group.Abort("reason " + std::to_string(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  waiter.join();
  const std::string first(group.Barrier().message());
  EXPECT_THAT(first, HasSubstr("reason "));
  EXPECT_EQ(group.Barrier().message(), first);
}

}  // namespace
}  // namespace lenet
