// No memory is asked for while steps run: counts every call of the allocator in this process.

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/rank_threads.h"
#include "tests/support/sanitized.h"
#include "tests/support/synthetic_data.h"
#include "trainer/backend/cpu/cpu_engine.h"
#include "trainer/base/status.h"
#include "trainer/comm/local.h"
#include "trainer/nn/init.h"
#include "trainer/nn/net.h"

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

#ifndef LENET_SANITIZED
#pragma GCC visibility push(default)  // in place of the C library's, for its callers too
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the C library's own names
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  ++allocations;
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#pragma GCC visibility pop
#endif

namespace lenet::cpu {
namespace {

// `chunks` chunks of `steps` steps, two in flight.
absl::Status RunChunks(Engine* engine, int chunks, const StepChunk& chunk, std::span<float> losses) {
  LENET_RETURN_IF_ERROR(engine->Enqueue(chunk));
  for (int i = 1; i < chunks; ++i) {
    LENET_RETURN_IF_ERROR(engine->Enqueue(chunk));
    LENET_RETURN_IF_ERROR(engine->Wait(losses));
  }
  return engine->Wait(losses);
}

TEST(CpuAllocationTest, StepsAllocateNothing) {
#ifdef LENET_SANITIZED
  GTEST_SKIP() << "the sanitizer's allocator cannot be counted";
#endif
  constexpr int kSteps = 6;
  const auto dataset = SyntheticDataset(300, 10);
  for (const char* preset : {"lenet", "lenet5-classic", "lenet-caffe"}) {
    for (const int ranks : {1, 3}) {
      SCOPED_TRACE(testing::Message() << preset << " on " << ranks << " ranks");
      absl::StatusOr<NetSpec> spec = PresetNet(preset, dataset->train.shape, dataset->classes);
      ASSERT_TRUE(spec.ok()) << spec.status();
      const absl::StatusOr<Net> net = Net::Create(*std::move(spec));
      ASSERT_TRUE(net.ok()) << net.status();
      LocalGroup group(ranks);
      std::atomic<int64_t> before{0};
      std::atomic<int64_t> after{0};
      const absl::Status status = RunRanks(ranks, [&](int rank) -> absl::Status {
        constexpr int kBatch = 70;  // more than one pass
        LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                               CpuEngine::Create(&group, rank, *SupportedKernels().front(),
                                                 {.net = &*net,
                                                  .dataset = dataset,
                                                  .batch_size = kBatch,
                                                  .optimizer = {.momentum = 0.9, .nesterov = true},
                                                  .clip_norm = 5}));
        std::vector<float> parameters(net->flat_size());
        Initialize(*net, {}, /*seed=*/1, parameters);
        LENET_RETURN_IF_ERROR(engine->WriteParameters(parameters));
        std::vector<uint32_t> indices(kSteps * kBatch);
        for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<uint32_t>((i * 7 + rank) % 300);
        const std::vector<float> rates(kSteps, 0.01f);
        std::vector<float> losses(kSteps);
        LENET_RETURN_IF_ERROR(engine->Broadcast());
        LENET_RETURN_IF_ERROR(engine->WarmUp());
        LENET_RETURN_IF_ERROR(group.Barrier());
        if (rank == 0) before = allocations.load();
        LENET_RETURN_IF_ERROR(group.Barrier());
        LENET_RETURN_IF_ERROR(
            RunChunks(engine.get(), /*chunks=*/4, {.indices = indices, .learning_rates = rates}, losses));
        LENET_RETURN_IF_ERROR(group.Barrier());
        if (rank == 0) after = allocations.load();
        return group.Barrier();
      });
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_GT(before.load(), 0);
      EXPECT_EQ(after.load() - before.load(), 0);
    }
  }
}

}  // namespace
}  // namespace lenet::cpu
