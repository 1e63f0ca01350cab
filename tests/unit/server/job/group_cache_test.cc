#include "server/job/group_cache.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using Ids = std::vector<int>;

class GroupCacheTest : public ::testing::Test {
 protected:
  // The group's address, which tells it apart from another; the group goes back.
  const RankGroup* Use(const Ids& ids) {
    std::unique_ptr<RankGroup> group = cache_.Take(ids).value();
    const RankGroup* const address = group.get();
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), group->device_ids().begin(), group->device_ids().end()));
    cache_.Give(std::move(group));
    return address;
  }

  int full_from_ = 1000;  // groups from this number on find no memory
  bool full_ends_ = false;
  ScriptedBackend backend_{4, [this](int group) -> absl::StatusOr<FakeScript> {
                             if (group >= full_from_ && !(full_ends_ && cache_.size() == 0)) {
                               return absl::ResourceExhaustedError("no memory");
                             }
                             return FakeScript{};
                           }};
  GroupCache cache_{&backend_, 2};
};

TEST_F(GroupCacheTest, GivesTheSameGroupForTheSameDevicesInTheSameOrder) {
  const RankGroup* const first = Use({0, 1});
  EXPECT_EQ(Use({0, 1}), first);
  EXPECT_EQ(backend_.groups_made(), 1);
  Use({1, 0});
  Use({0});
  EXPECT_EQ(backend_.groups_made(), 3);
}

TEST_F(GroupCacheTest, ATakenGroupIsNotGivenTwice) {
  std::unique_ptr<RankGroup> one = cache_.Take(Ids{0}).value();
  std::unique_ptr<RankGroup> two = cache_.Take(Ids{0}).value();
  EXPECT_NE(one.get(), two.get());
}

TEST_F(GroupCacheTest, ThrowsAwayAnAbortedGroup) {
  std::unique_ptr<RankGroup> group = cache_.Take(Ids{0}).value();
  group->Abort("test");
  cache_.Give(std::move(group));
  EXPECT_EQ(cache_.size(), 0u);
  Use({0});
  EXPECT_EQ(backend_.groups_made(), 2);
}

TEST_F(GroupCacheTest, TheLeastRecentlyUsedGoesFirst) {
  Use({0});
  Use({1});
  Use({0});
  Use({2});
  EXPECT_EQ(cache_.size(), 2u);
  EXPECT_EQ(backend_.groups_made(), 3);
  Use({0});
  EXPECT_EQ(backend_.groups_made(), 3);
  Use({1});
  EXPECT_EQ(backend_.groups_made(), 4);
}

TEST_F(GroupCacheTest, KeptGroupsMakeRoomWhenThereIsNoMemory) {
  Use({0});
  Use({1});
  full_from_ = 2;
  full_ends_ = true;
  EXPECT_TRUE(cache_.Take(Ids{2}).ok());
  EXPECT_EQ(cache_.size(), 0u);
}

TEST_F(GroupCacheTest, ClearTellsWhetherThereWasAny) {
  EXPECT_FALSE(cache_.Clear());
  Use({0});
  EXPECT_TRUE(cache_.Clear());
  EXPECT_EQ(cache_.size(), 0u);
  Use({0});
  EXPECT_EQ(backend_.groups_made(), 2);
}

TEST_F(GroupCacheTest, GivesTheBackendsError) {
  full_from_ = 0;
  const absl::Status status = cache_.Take(Ids{0}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(backend_.groups_made(), 1);  // nothing kept: not tried again
}

}  // namespace
}  // namespace lenet
