#include "server/monitoring/gpu_monitor.h"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kInterval(10);

TEST(GpuMonitorTest, WithoutTheLibraryThereIsNoMonitor) {
  const auto monitor = GpuMonitor::Start({.library = "liblenet-no-such-library.so.1"});
  EXPECT_TRUE(absl::IsNotFound(monitor.status())) << monitor.status();
  // One that is there but lacks the functions.
  EXPECT_TRUE(absl::IsNotFound(GpuMonitor::Start({.library = "libc.so.6"}).status()));
}

TEST(GpuMonitorTest, ReadsWhatEachGpuTells) {
  const auto monitor = GpuMonitor::Start({.library = LENET_FAKE_NVML, .interval = kInterval});
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  std::vector<GpuReading> gpus;
  ASSERT_TRUE(Eventually([&] {
    gpus = (*monitor)->Latest();
    return gpus.size() == 2 && gpus[1].xids == 1;
  }));
  EXPECT_EQ(gpus[0].index, 0);
  EXPECT_EQ(gpus[0].uuid, "GPU-0");
  EXPECT_EQ(gpus[0].name, "Fake GPU");
  EXPECT_EQ(gpus[0].memory_bytes, 1000u);
  EXPECT_EQ(gpus[0].memory_used_bytes, 100u);
  EXPECT_EQ(gpus[1].memory_used_bytes, 200u);
  EXPECT_EQ(gpus[0].utilization, 0.75);
  EXPECT_EQ(gpus[0].temperature, 40);
  EXPECT_EQ(gpus[1].temperature, 41);
  EXPECT_EQ(gpus[0].power, 250.5);
  EXPECT_EQ(gpus[0].ecc_corrected, 7u);
  EXPECT_EQ(gpus[0].ecc_uncorrected, 1u);
  EXPECT_EQ(gpus[1].last_xid, 79u);
  // What it does not support is not set.
  EXPECT_FALSE(gpus[1].power.has_value());
  EXPECT_FALSE(gpus[0].xids.has_value());
}

TEST(GpuMonitorTest, OldReadingsAreNotGiven) {
  const auto monitor =
      GpuMonitor::Start({.library = LENET_FAKE_NVML, .interval = std::chrono::hours(1), .max_age = milliseconds(300)});
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  ASSERT_TRUE(Eventually([&] { return (*monitor)->Latest().size() == 2; }));
  EXPECT_TRUE(Eventually([&] { return (*monitor)->Latest().empty(); }));
}

TEST(GpuMonitorTest, ADriverThatHangsKeepsNobodyWaiting) {
  ::setenv("LENET_FAKE_NVML_HANG", "1", 1);  // NOLINT(concurrency-mt-unsafe): before its thread
  auto monitor = GpuMonitor::Start({.library = LENET_FAKE_NVML, .interval = kInterval});
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE((*monitor)->Latest().empty());
  std::this_thread::sleep_for(milliseconds(50));  // into the driver
  EXPECT_TRUE((*monitor)->Latest().empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  monitor->reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ::unsetenv("LENET_FAKE_NVML_HANG");  // NOLINT(concurrency-mt-unsafe): its thread reads it no more
}

}  // namespace
}  // namespace lenet
