#include "server/job/device_health.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/job_manager.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kInterval(20);

FakeScript Failing(int rank = 0) { return {.faults = {{.rank = rank, .status = absl::InternalError("device lost")}}}; }

// Devices whose n-th group fails if n is in the list.
class DeviceHealthTest : public ::testing::Test {
 protected:
  void Make(int devices, const std::set<int>& failing_groups, std::chrono::milliseconds interval = kInterval) {
    backend_ = std::make_unique<ScriptedBackend>(
        devices, [failing_groups](int group) { return failing_groups.contains(group) ? Failing() : FakeScript{}; });
    groups_ = std::make_unique<GroupCache>(backend_.get(), 8);
    health_ = std::make_unique<DeviceHealth>(
        backend_.get(), groups_.get(), interval, WarmUpTimeouts(),
        DeviceHealth::Hooks{.excluded =
                                [this](int device, const absl::Status& why) {
                                  EXPECT_THAT(std::string(why.message()), HasSubstr("device lost"));
                                  excluded_.push_back(device);
                                },
                            .restored = [this](int device) { restored_ = device; },
                            .unusable = [this](const std::string& why) { unusable_ = why; }});
  }

  std::unique_ptr<ScriptedBackend> backend_;
  std::unique_ptr<GroupCache> groups_;
  std::vector<int> excluded_;
  std::atomic<int> restored_{-1};
  std::string unusable_;
  std::unique_ptr<DeviceHealth> health_;
};

TEST_F(DeviceHealthTest, ASoundHostIsWarmedUpAtOnce) {
  Make(3, {});
  EXPECT_TRUE(health_->WarmUp().ok());
  EXPECT_EQ(backend_->groups_made(), 1);
}

TEST_F(DeviceHealthTest, TheDeviceThatFailsIsLeftOutAndTriedAgain) {
  // All together; then 0, 1, 2 alone; then 0 and 2; then 1, which fails once more before it works. It must not be tried
  // again before that.
  Make(3, {0, 2, 5}, /*interval=*/std::chrono::milliseconds(500));
  EXPECT_TRUE(health_->WarmUp().ok());
  EXPECT_THAT(excluded_, ElementsAre(1));
  EXPECT_TRUE(Eventually([this] { return restored_ == 1; }));
  EXPECT_EQ(backend_->groups_made(), 7);
}

TEST_F(DeviceHealthTest, WithoutASoundDeviceThereIsNoStart) {
  Make(2, {0, 1, 2});
  const absl::Status status = health_->WarmUp();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(excluded_, ElementsAre(0, 1));
}

TEST_F(DeviceHealthTest, DevicesThatFailOnlyTogetherAreAnError) {
  Make(2, {0});
  EXPECT_EQ(health_->WarmUp().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(excluded_.empty());
}

TEST_F(DeviceHealthTest, OnlyWhatMayBeTheDevicesIsLookedInto) {
  Make(2, {0});
  v1::Failure failure;
  failure.set_phase("load");
  failure.set_code("INTERNAL");
  health_->CheckAfter(failure, {0, 1});
  failure.set_phase("step");
  failure.set_code("FAILED_PRECONDITION");
  health_->CheckAfter(failure, {0, 1});
  EXPECT_EQ(backend_->groups_made(), 0);
  failure.set_code("INTERNAL");
  health_->CheckAfter(failure, {0, 1});
  EXPECT_THAT(excluded_, ElementsAre(0));
  EXPECT_TRUE(unusable_.empty());
}

TEST_F(DeviceHealthTest, WhereFailuresLastTheProcessIsToEnd) {
  Make(2, {1});
  backend_->set_failures_last(true);
  v1::Failure failure;
  failure.set_phase("step");
  failure.set_code("INTERNAL");
  health_->CheckAfter(failure, {0, 1});
  EXPECT_THAT(unusable_, HasSubstr("device 1 failed"));
}

// Through the manager: a job that breaks a device fails, others get the sound ones, and it comes back.
TEST(UnhealthyDeviceTest, GetsNoJobUntilItWorksAgain) {
  std::atomic<bool> broken{true};
  ServerUnderTestOptions options;
  options.manager.probe_interval = kInterval;
  options.script = [&broken](int) { return broken ? Failing() : FakeScript{}; };
  ServerUnderTest server(options);
  v1::StartRequest request = ServerUnderTest::Request(5, 0);
  request.mutable_spec()->add_device_ids(1);
  const std::string failing = server.manager().Start(request)->id();
  EXPECT_EQ(server.AwaitState(failing, v1::FAILED).state(), v1::FAILED);
  EXPECT_TRUE(Eventually([&] { return !server.manager().Load().devices[1].unhealthy.empty(); }));
  const std::string waiting = server.manager().Start(request)->id();
  EXPECT_THAT(server.manager().GetJob(waiting)->reason(), HasSubstr("device 1, which is unhealthy"));
  broken = false;
  EXPECT_EQ(server.AwaitState(waiting, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  EXPECT_TRUE(server.manager().Load().devices[1].unhealthy.empty());
}

}  // namespace
}  // namespace lenet
