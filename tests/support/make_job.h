// A training as a spec gives it.
#ifndef LENET_TESTS_SUPPORT_MAKE_JOB_H_
#define LENET_TESTS_SUPPORT_MAKE_JOB_H_

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "trainer/train/trainer.h"

namespace lenet {

inline TrainJob MakeJob(const TrainSpec& spec, int ranks, std::shared_ptr<const Dataset> dataset) {
  TrainJob job;
  const absl::StatusOr<TrainPlan> plan = PlanTraining(spec, ranks, *dataset);
  EXPECT_TRUE(plan.ok()) << plan.status();
  job.plan = *plan;
  job.dataset = std::move(dataset);
  return job;
}

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_MAKE_JOB_H_
