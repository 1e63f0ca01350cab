// What the default job reaches on real data: nothing but the data set, the ranks and the seed is given.
#include <gtest/gtest.h>

#include <memory>

#include "tests/support/backend_under_test.h"
#include "tests/support/rank_run.h"
#include "tests/support/recording_observer.h"
#include "tests/support/sanitized.h"
#include "trainer/data/catalog.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

#ifdef LENET_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

void Reaches(const char* name, double accuracy) {
  if (kSanitized) GTEST_SKIP() << "ten epochs take too long under a sanitizer";
  DatasetCatalog catalog({LENET_TEST_DATA "/../../build/data", "/usr/share/datasets"});
  const absl::StatusOr<std::shared_ptr<const Dataset>> dataset = catalog.Load(name);
  if (absl::IsNotFound(dataset.status())) GTEST_SKIP() << dataset.status().message();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  Backend* backend = nullptr;
  LENET_USE_BACKEND(backend, LENET_TEST_BACKEND);
  const int ranks = backend->oversubscribable() || backend->devices().size() > 1 ? 2 : 1;

  TrainJob job;
  job.dataset = *dataset;
  const absl::StatusOr<TrainPlan> plan = PlanTraining({.dataset = name}, ranks, **dataset);
  ASSERT_TRUE(plan.ok()) << plan.status();
  job.plan = *plan;
  const absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend, ranks);
  ASSERT_TRUE(group.ok()) << group.status();
  const StopRequest stop;
  RecordingObserver observer(ranks);
  const TrainResult result = Train(job, group->get(), &stop, &observer);
  ASSERT_EQ(result.end, TrainEnd::kCompleted);
  EXPECT_EQ(result.evaluation->count, 10000);
  EXPECT_GE(result.evaluation->accuracy(), accuracy);
  EXPECT_EQ(observer.Get().evaluations.size(), 10u);
}

TEST(AccuracyTest, Mnist) { Reaches("mnist", 0.989); }

TEST(AccuracyTest, FashionMnist) { Reaches("fashion-mnist", 0.89); }

}  // namespace
}  // namespace lenet
