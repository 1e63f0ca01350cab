// A device whose context is spoilt in the midst of a job: nothing works on it any more in this process. Alone in its
// executable for that.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/job_manager.h"
#include "server/store/memory_store.h"
#include "tests/gpu/cuda_driver.h"
#include "tests/support/backend_under_test.h"
#include "tests/support/dataset_files.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStep = 51;
constexpr std::chrono::seconds kPatience(60);

// Spoils device 0 before rank 0 queues step kStep of the first job.
class Spoiler : public FaultInjector {
 public:
  absl::Status At(const FaultSite& site, const std::function<bool()>& /*aborted*/) override {
    const bool now = site.point == FaultPoint::kChunk && site.rank == 0 && site.step == kStep;
    return now ? SpoilContext(0) : absl::OkStatus();
  }
  int64_t NextStep(int64_t done) const override { return done < kStep - 1 ? kStep : kMaxSteps + 1; }
};

TEST(SpoiltContextTest, FailsTheJobAndAsksForANewProcess) {
  Backend* backend = nullptr;
  LENET_USE_BACKEND(backend, "cuda");
  TempFolder folder;
  ASSERT_TRUE(WriteDataset(folder.path() / "data" / "small", *SyntheticDataset(640, 100)));
  DatasetCatalog catalog({folder.path() / "data"});
  MemoryStore store;
  Spoiler spoiler;
  std::atomic<bool> unusable{false};
  JobManagerOptions options = {.checkpoint_root = folder.path() / "jobs", .faults = &spoiler};
  options.collective_timeout = std::chrono::seconds(5);
  options.unusable = [&unusable](const std::string&) { unusable = true; };
  auto manager = std::make_unique<JobManager>(options, backend, &catalog, &store);
  ASSERT_TRUE(manager->WarmUp().ok());
  manager->Serve();

  v1::StartRequest request;
  request.mutable_spec()->set_dataset("small");
  request.mutable_spec()->set_batch_size(16);
  request.mutable_spec()->set_ranks(static_cast<int>(backend->devices().size()));
  request.mutable_spec()->set_max_steps(100'000);
  request.mutable_spec()->mutable_checkpoints()->set_every_steps(20);
  const absl::StatusOr<v1::Job> started = manager->Start(request);
  ASSERT_TRUE(started.ok()) << started.status();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!unusable && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(unusable);

  const v1::Job job = manager->GetJob(started->id()).value();
  EXPECT_EQ(job.state(), v1::FAILED) << job.ShortDebugString();
  EXPECT_EQ(job.failure().rank(), 0);
  EXPECT_EQ(job.failure().phase(), "step");
  EXPECT_EQ(job.failure().code(), "INTERNAL");
  EXPECT_THAT(job.failure().message(), HasSubstr("cudaError"));
  // What was saved before stays.
  ASSERT_GT(job.checkpoints_size(), 0);
  for (const v1::Checkpoint& checkpoint : job.checkpoints()) {
    EXPECT_LT(checkpoint.step(), kStep);
    EXPECT_TRUE(std::filesystem::exists(checkpoint.path()));
  }
  EXPECT_THAT(manager->Load().devices[0].unhealthy, HasSubstr("cudaError"));
  // Every thread comes back.
  manager->BeginDrain();
  EXPECT_TRUE(manager->WaitIdle(std::chrono::steady_clock::now() + kPatience));
  manager.reset();
}

}  // namespace
}  // namespace lenet
