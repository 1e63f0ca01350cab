#include "server/memory_return.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/monitoring/process_stats.h"
#include "tests/support/sanitized.h"

namespace lenet {
namespace {

int64_t ResidentBytes() { return ReadProcessStats().value().resident_bytes; }

constexpr size_t kBytes = 200 << 20;
constexpr size_t kBlock = 1000;

TEST(MemoryReturnTest, WhatAThreadTookAndFreedGoesBack) {
#ifdef LENET_SANITIZED
  GTEST_SKIP() << "the sanitizers have allocators of their own";
#endif
  MemoryReturn memory;
  memory.Tick();
  const int64_t before = ResidentBytes();
  std::string last;  // what is in use above the freed blocks keeps them in the arena
  std::thread([&last] {
    std::vector<std::string> blocks;
    for (size_t bytes = 0; bytes < kBytes; bytes += kBlock) blocks.emplace_back(kBlock, 'x');
    last = std::string(kBlock, 'y');
  }).join();
  ASSERT_GT(ResidentBytes(), before + static_cast<int64_t>(kBytes / 2));
  memory.Tick();
  EXPECT_LT(ResidentBytes(), before + static_cast<int64_t>(kBytes / 4));
  EXPECT_EQ(last, std::string(kBlock, 'y'));
}

}  // namespace
}  // namespace lenet
