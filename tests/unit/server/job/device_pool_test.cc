#include "server/job/device_pool.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

v1::TrainingSpec Spec(int ranks, const std::vector<int>& ids = {}) {
  v1::TrainingSpec spec;
  spec.set_ranks(ranks);
  spec.mutable_device_ids()->Add(ids.begin(), ids.end());
  return spec;
}

class RequestDevicesTest : public ::testing::Test {
 protected:
  static FakeScript NoScript(int) { return {}; }

  static void ExpectRefused(const v1::TrainingSpec& spec, const Backend& backend, const std::string& words) {
    const absl::Status status = RequestDevices(spec, backend).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << spec.ShortDebugString() << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  ScriptedBackend exclusive_{4, NoScript};
  ScriptedBackend shared_{4, NoScript, /*oversubscribable=*/true};
};

TEST_F(RequestDevicesTest, CountsAndIds) {
  EXPECT_EQ(RequestDevices(Spec(0), exclusive_)->ranks, 4);
  EXPECT_EQ(RequestDevices(Spec(3), exclusive_)->ranks, 3);
  EXPECT_TRUE(RequestDevices(Spec(3), exclusive_)->ids.empty());
  const DeviceRequest listed = RequestDevices(Spec(0, {3, 1}), exclusive_).value();
  EXPECT_EQ(listed.ranks, 2);
  EXPECT_THAT(listed.ids, ElementsAre(3, 1));
  EXPECT_EQ(RequestDevices(Spec(2, {3, 1}), exclusive_)->ranks, 2);
  EXPECT_EQ(RequestDevices(Spec(8), shared_)->ranks, 8);
  EXPECT_EQ(RequestDevices(Spec(kMaxSharedRanks), shared_)->ranks, kMaxSharedRanks);
}

TEST_F(RequestDevicesTest, RefusesByTheFieldsName) {
  constexpr int kHuge = std::numeric_limits<int32_t>::max();
  ExpectRefused(Spec(-1), exclusive_, "spec.ranks = -1");
  ExpectRefused(Spec(5), exclusive_, "spec.ranks = 5: must be at most 4");
  ExpectRefused(Spec(kHuge), exclusive_, "spec.ranks = 2147483647");
  ExpectRefused(Spec(kMaxSharedRanks + 1), shared_, "spec.ranks = 65: must be at most 64");
  ExpectRefused(Spec(0, {0, 4}), exclusive_, "spec.device_ids: 4");
  ExpectRefused(Spec(0, {-1}), exclusive_, "spec.device_ids: -1");
  ExpectRefused(Spec(0, {kHuge}), exclusive_, "spec.device_ids: 2147483647");
  ExpectRefused(Spec(0, {1, 2, 1}), exclusive_, "spec.device_ids: 1 is listed twice");
  ExpectRefused(Spec(0, {1, 1}), shared_, "spec.device_ids: 1 is listed twice");
  ExpectRefused(Spec(3, {0, 1}), exclusive_, "spec.ranks = 3: must be 0 or 2");
}

std::vector<std::string> Holders(const DevicePool& pool) {
  std::vector<std::string> holders;
  for (const DevicePool::Device& device : pool.devices()) holders.push_back(device.holder);
  return holders;
}

TEST(DevicePoolTest, GivesTheLowestThatAreFree) {
  DevicePool pool(4);
  EXPECT_THAT(pool.Acquire({.ranks = 2}, "a"), Optional(ElementsAre(0, 1)));
  EXPECT_THAT(pool.Acquire({.ranks = 1}, "b"), Optional(ElementsAre(2)));
  EXPECT_EQ(pool.Acquire({.ranks = 2}, "c"), std::nullopt);
  EXPECT_THAT(Holders(pool), ElementsAre("a", "a", "b", ""));
  pool.Release("a");
  EXPECT_THAT(pool.Acquire({.ranks = 3}, "c"), Optional(ElementsAre(0, 1, 3)));
  EXPECT_THAT(Holders(pool), ElementsAre("c", "c", "b", "c"));
}

TEST(DevicePoolTest, GivesTheIdsAskedForInTheirOrder) {
  DevicePool pool(4);
  EXPECT_THAT(pool.Acquire({.ranks = 2, .ids = {3, 0}}, "a"), Optional(ElementsAre(3, 0)));
  EXPECT_EQ(pool.Acquire({.ranks = 2, .ids = {1, 0}}, "b"), std::nullopt);
  EXPECT_THAT(Holders(pool), ElementsAre("a", "", "", "a"));  // nothing held by halves
  EXPECT_THAT(pool.Acquire({.ranks = 2, .ids = {2, 1}}, "b"), Optional(ElementsAre(2, 1)));
}

TEST(DevicePoolTest, MoreRanksThanDevicesTakeAllRoundRobin) {
  DevicePool pool(2);
  ASSERT_TRUE(pool.Acquire({.ranks = 1}, "a").has_value());
  EXPECT_EQ(pool.Acquire({.ranks = 5}, "b"), std::nullopt);
  pool.Release("a");
  EXPECT_THAT(pool.Acquire({.ranks = 5}, "b"), Optional(ElementsAre(0, 1, 0, 1, 0)));
  EXPECT_THAT(Holders(pool), ElementsAre("b", "b"));
  pool.Release("b");
  EXPECT_THAT(Holders(pool), ElementsAre("", ""));
}

TEST(DevicePoolTest, DevicesToAvoidAndUnhealthyOnesAreNotGiven) {
  DevicePool pool(3);
  EXPECT_THAT(pool.Acquire({.ranks = 1}, "a", /*avoid=*/{0}), Optional(ElementsAre(1)));
  pool.Release("a");
  pool.SetUnhealthy(0, "it failed");
  EXPECT_THAT(pool.Acquire({.ranks = 2}, "a"), Optional(ElementsAre(1, 2)));
  pool.Release("a");
  EXPECT_EQ(pool.Acquire({.ranks = 3}, "a"), std::nullopt);
  EXPECT_FALSE(pool.CanEverAcquire({.ranks = 3}));
  EXPECT_EQ(pool.Missing({.ranks = 3}), "1 device beside the 2 free; 1 is unhealthy");
  EXPECT_FALSE(pool.CanEverAcquire({.ranks = 1, .ids = {0}}));
  EXPECT_EQ(pool.Missing({.ranks = 1, .ids = {0}}), "device 0, which is unhealthy: it failed");
  pool.SetHealthy(0);
  EXPECT_TRUE(pool.CanEverAcquire({.ranks = 3}));
  EXPECT_THAT(pool.Acquire({.ranks = 1, .ids = {2}}, "b"), Optional(ElementsAre(2)));
  EXPECT_EQ(pool.Missing({.ranks = 1, .ids = {2}}), "device 2, which job b holds");
}

}  // namespace
}  // namespace lenet
