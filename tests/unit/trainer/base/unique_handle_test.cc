#include "trainer/base/unique_handle.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;

std::vector<int>& Deleted() {
  static std::vector<int> deleted;
  return deleted;
}

struct Delete {
  void operator()(int handle) const { Deleted().push_back(handle); }
};

using Handle = UniqueHandle<int, Delete>;

class UniqueHandleTest : public ::testing::Test {
 protected:
  void SetUp() override { Deleted().clear(); }
};

TEST_F(UniqueHandleTest, DeletesOnceAtItsEnd) {
  {
    const Handle empty;
    EXPECT_FALSE(empty);
    const Handle handle(1);
    EXPECT_TRUE(handle);
    EXPECT_EQ(handle.get(), 1);
  }
  EXPECT_THAT(Deleted(), ElementsAre(1));
}

TEST_F(UniqueHandleTest, MovesWithoutDeletingTwice) {
  {
    Handle first(1);
    Handle second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): a moved-from handle is empty
    Handle third(3);
    third = std::move(second);
    EXPECT_THAT(Deleted(), ElementsAre(3));
    Handle& same = third;
    third = std::move(same);
    EXPECT_EQ(third.get(), 1);
  }
  EXPECT_THAT(Deleted(), ElementsAre(3, 1));
}

TEST_F(UniqueHandleTest, ResetReleaseAndReceive) {
  Handle handle(1);
  handle.reset(2);
  EXPECT_THAT(Deleted(), ElementsAre(1));
  *handle.receive() = 3;
  EXPECT_THAT(Deleted(), ElementsAre(1, 2));
  EXPECT_EQ(handle.release(), 3);
  handle.reset();
  EXPECT_THAT(Deleted(), ElementsAre(1, 2));
}

}  // namespace
}  // namespace lenet
