#include "server/memory_return.h"

#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/monitoring/process_stats.h"
#include "tests/support/sanitized.h"

namespace lenet {
namespace {

int64_t ResidentBytes() { return ReadProcessStats().value().resident_bytes; }

constexpr size_t kBytes = 200 << 20;
constexpr size_t kBlock = 1000;

// Blocks from the arena of a thread of their own.
std::vector<std::string> TakeBlocks(size_t bytes) {
  std::vector<std::string> blocks;
  std::thread([&blocks, bytes] {
    while (blocks.size() * kBlock < bytes) blocks.emplace_back(kBlock, 'x');
  }).join();
  return blocks;
}

// Ticks, `seen_in_use` also before the blocks are freed.
void ExpectItGoesBack(bool seen_in_use) {
#ifdef LENET_SANITIZED
  GTEST_SKIP() << "the sanitizers have allocators of their own";
#endif
  MemoryReturn memory;
  memory.Tick();
  const int64_t before = ResidentBytes();
  std::vector<std::string> blocks = TakeBlocks(kBytes);
  if (seen_in_use) memory.Tick();
  const std::string last = std::move(blocks.back());  // keeps those below it in the arena
  blocks.clear();
  ASSERT_GT(ResidentBytes(), before + static_cast<int64_t>(kBytes / 2));
  memory.Tick();
  EXPECT_LT(ResidentBytes(), before + static_cast<int64_t>(kBytes / 4));
  EXPECT_EQ(last, std::string(kBlock, 'x'));
}

TEST(MemoryReturnTest, WhatAThreadTookAndFreedGoesBack) { ExpectItGoesBack(/*seen_in_use=*/false); }

TEST(MemoryReturnTest, WhatWasInUseAtTheLastTickGoesBack) { ExpectItGoesBack(/*seen_in_use=*/true); }

}  // namespace
}  // namespace lenet
