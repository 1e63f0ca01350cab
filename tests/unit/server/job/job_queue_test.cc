#include "server/job/job_queue.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

QueueEntry Any(const std::string& id, int ranks, int priority = 0) {
  return {.id = id, .priority = priority, .devices = {.ranks = ranks}};
}

QueueEntry Named(const std::string& id, const std::vector<int>& ids, int priority = 0) {
  return {.id = id, .priority = priority, .devices = {.ranks = static_cast<int>(ids.size()), .ids = ids}};
}

// The ids in the order in which they start, each giving its devices back when nothing else can start.
std::vector<std::string> Order(JobQueue* queue, DevicePool* pool) {
  std::vector<std::string> order;
  while (const std::optional<JobQueue::Start> start = queue->Pop(pool)) {
    order.push_back(start->id);
    pool->Release(start->id);
  }
  return order;
}

TEST(JobQueueTest, ThePriorityComesFirstThenTheAge) {
  JobQueue queue;
  DevicePool pool(1);
  queue.Push(Any("c", 1));
  queue.Push(Any("d", 1, 5));
  queue.Push(Any("a", 1));
  queue.Push(Any("b", 1, -1));
  queue.Push(Any("e", 1, 5));
  EXPECT_EQ(queue.Position("d"), 1);
  EXPECT_EQ(queue.Position("b"), 5);
  EXPECT_EQ(queue.Position("x"), 0);
  EXPECT_THAT(Order(&queue, &pool), ElementsAre("d", "e", "a", "c", "b"));
}

TEST(JobQueueTest, NothingPassesAHeadThatTakesAnyDevices) {
  JobQueue queue;
  DevicePool pool(3);
  ASSERT_TRUE(pool.Acquire({.ranks = 2}, "running").has_value());
  queue.Push(Any("a", 2));
  queue.Push(Any("b", 1));
  queue.Push(Named("c", {2}));
  EXPECT_EQ(queue.Pop(&pool), std::nullopt);
  EXPECT_EQ(queue.WaitsFor("a", pool), "waits for 1 device beside the 1 free");
  EXPECT_EQ(queue.WaitsFor("b", pool), "waits behind 1 job");
  EXPECT_EQ(queue.WaitsFor("c", pool), "waits behind 2 jobs");
  pool.Release("running");
  EXPECT_EQ(queue.Pop(&pool)->id, "a");
}

TEST(JobQueueTest, BackFillLeavesTheDevicesThatTheHeadNames) {
  JobQueue queue;
  DevicePool pool(4);
  ASSERT_TRUE(pool.Acquire({.ranks = 1}, "running").has_value());
  queue.Push(Named("head", {0, 1}));
  queue.Push(Named("wants-1", {1}));
  queue.Push(Any("three", 3));
  queue.Push(Any("two", 2));
  const std::optional<JobQueue::Start> start = queue.Pop(&pool);
  ASSERT_TRUE(start.has_value());
  EXPECT_EQ(start->id, "two");
  EXPECT_THAT(start->device_ids, ElementsAre(2, 3));
  EXPECT_EQ(queue.Pop(&pool), std::nullopt);
  // The head starts the moment that its own devices are free.
  pool.Release("running");
  EXPECT_EQ(queue.Pop(&pool)->id, "head");
}

TEST(JobQueueTest, OneThatNoSoundDeviceWouldDoForHoldsNobodyUp) {
  JobQueue queue;
  DevicePool pool(2);
  pool.SetUnhealthy(1, "it failed");
  queue.Push(Any("both", 2));
  queue.Push(Named("the-bad-one", {1}));
  queue.Push(Any("one", 1));
  EXPECT_EQ(queue.Pop(&pool)->id, "one");
  EXPECT_EQ(queue.WaitsFor("the-bad-one", pool), "waits for device 1, which is unhealthy: it failed");
  pool.Release("one");
  pool.SetHealthy(1);
  EXPECT_THAT(Order(&queue, &pool), ElementsAre("both", "the-bad-one"));
}

TEST(JobQueueTest, VictimsAreTheLeastImportantThatMakeEnoughRoom) {
  JobQueue queue;
  DevicePool pool(4);
  const std::vector<Holder> running = {{.entry = Any("old", 1, 1), .preemptible = true},
                                       {.entry = Any("firm", 1, 0), .preemptible = false},
                                       {.entry = Any("young", 1, 1), .preemptible = true},
                                       {.entry = Any("least", 1, 0), .preemptible = true}};
  for (const Holder& holder : running) ASSERT_TRUE(pool.Acquire(holder.entry.devices, holder.entry.id).has_value());
  EXPECT_THAT(queue.Victims(pool, running), IsEmpty());
  queue.Push(Any("head", 2, 1));
  EXPECT_THAT(queue.Victims(pool, running), IsEmpty());  // "least" alone does not make room for two
  queue.Remove("head");
  queue.Push(Any("head", 2, 2));
  EXPECT_THAT(queue.Victims(pool, running), ElementsAre("least", "young"));
  pool.Release("least");
  pool.Release("young");
  EXPECT_THAT(queue.Victims(pool, running), IsEmpty());  // it can start
}

TEST(JobQueueTest, ThoseThatMakeRoomAlreadyAreEnough) {
  JobQueue queue;
  DevicePool pool(2);
  const std::vector<Holder> running = {{.entry = Any("a", 1), .preemptible = true},
                                       {.entry = Any("b", 1), .preemptible = true, .yielding = true}};
  for (const Holder& holder : running) ASSERT_TRUE(pool.Acquire(holder.entry.devices, holder.entry.id).has_value());
  queue.Push(Any("one", 1, 1));
  EXPECT_THAT(queue.Victims(pool, running), IsEmpty());
  queue.Remove("one");
  queue.Push(Any("two", 2, 1));
  EXPECT_THAT(queue.Victims(pool, running), ElementsAre("a"));
}

TEST(JobQueueTest, OnlyWhoHoldsADeviceThatTheHeadNamesIsAVictim) {
  JobQueue queue;
  DevicePool pool(2);
  const std::vector<Holder> running = {{.entry = Any("a", 1), .preemptible = true},
                                       {.entry = Any("b", 1), .preemptible = true}};
  for (const Holder& holder : running) ASSERT_TRUE(pool.Acquire(holder.entry.devices, holder.entry.id).has_value());
  queue.Push(Named("head", {0}, 1));
  EXPECT_THAT(queue.Victims(pool, running), ElementsAre("a"));
}

}  // namespace
}  // namespace lenet
