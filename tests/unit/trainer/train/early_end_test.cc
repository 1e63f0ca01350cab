#include "trainer/train/early_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lenet {
namespace {

using Metadata = std::map<std::string, std::string>;

constexpr int64_t kEpoch = 10;

TrainSpec Spec(std::optional<double> target, int patience, int every = 1) {
  TrainSpec spec;
  spec.target_accuracy = target;
  spec.patience = patience;
  spec.evaluate_every_epochs = every;
  return spec;
}

TEST(EarlyEndTest, IsDueAtTheEpochsAskedForOnce) {
  EarlyEnd end(Spec({}, 0, 2), kEpoch);
  for (const int64_t step : {0, 5, 10, 19, 21, 30}) EXPECT_FALSE(end.due(step)) << step;
  EXPECT_TRUE(end.due(20));
  EXPECT_TRUE(end.due(40));
  end.Add(20, 0.5);
  EXPECT_FALSE(end.due(20));
  EXPECT_FALSE(EarlyEnd(Spec({}, 0, 0), kEpoch).due(20));
}

TEST(EarlyEndTest, TargetAccuracy) {
  EarlyEnd end(Spec(0.98, 0), kEpoch);
  end.Add(10, 0.9799);
  EXPECT_EQ(end.Reason(10), "");
  end.Add(15, 0.99);
  EXPECT_EQ(end.Reason(15), "") << "no epoch's evaluation";
  end.Add(20, 0.98);
  EXPECT_EQ(end.Reason(20), "target_accuracy 0.98 reached: 0.98 after epoch 2");
  EXPECT_EQ(end.Reason(21), "");
}

TEST(EarlyEndTest, PatienceCountsEvaluationsInARow) {
  EarlyEnd end(Spec({}, 3), kEpoch);
  const double accuracies[] = {0.5, 0.7, 0.7, 0.6, 0.71, 0.71, 0.1, 0.7};
  int64_t step = 0;
  for (const double accuracy : accuracies) {
    EXPECT_EQ(end.Reason(step), "") << step;
    step += kEpoch;
    end.Add(step, accuracy);
  }
  EXPECT_EQ(end.Reason(80), "patience: no better accuracy than 0.71 (epoch 5) in 3 evaluations");
}

TEST(EarlyEndTest, WhatIsStoredComesBack) {
  const double third = 1.0 / 3;
  EarlyEnd end(Spec({}, 2), kEpoch);
  end.Add(10, third);
  end.Add(20, 0.25);
  Metadata at_epoch;
  end.Store(20, &at_epoch);
  EXPECT_EQ(at_epoch.at("accuracy"), "0.25");
  EXPECT_EQ(at_epoch.at("best_epoch"), "1");
  EXPECT_EQ(at_epoch.at("evaluations_since_best"), "1");
  Metadata between;
  end.Store(25, &between);
  EXPECT_FALSE(between.contains("accuracy"));

  EarlyEnd resumed(Spec({}, 2), kEpoch);
  ASSERT_TRUE(resumed.Restore(20, at_epoch).ok());
  EXPECT_FALSE(resumed.due(20));
  EXPECT_EQ(resumed.accuracy(20), 0.25);
  EXPECT_EQ(resumed.Reason(20), "");
  resumed.Add(30, third);
  EXPECT_EQ(resumed.Reason(30), "patience: no better accuracy than 0.333333 (epoch 1) in 2 evaluations");
  Metadata again;
  resumed.Store(30, &again);
  EXPECT_EQ(again.at("best_accuracy"), at_epoch.at("best_accuracy"));

  EarlyEnd ended(Spec({}, 2), kEpoch);
  ASSERT_TRUE(ended.Restore(30, again).ok());
  EXPECT_EQ(ended.Reason(30), resumed.Reason(30));
}

TEST(EarlyEndTest, AStateWithoutItsEvaluationIsStillDue) {
  EarlyEnd end(Spec(0.5, 0), kEpoch);
  ASSERT_TRUE(end.Restore(20, {{"seed", "7"}}).ok());
  EXPECT_TRUE(end.due(20));
  EXPECT_EQ(end.Reason(20), "");
  Metadata nothing;
  end.Store(20, &nothing);
  EXPECT_TRUE(nothing.empty());
}

TEST(EarlyEndTest, WeightsAloneBringNoHistory) {
  EarlyEnd end(Spec({}, 1), kEpoch);
  ASSERT_TRUE(end.Restore(0, {{"best_accuracy", "damaged"}}).ok());
  end.Add(10, 0);
  EXPECT_EQ(end.Reason(10), "");
}

TEST(EarlyEndTest, RefusesDamagedMetadata) {
  const Metadata good = {
      {"accuracy", "0.5"}, {"best_accuracy", "0.75"}, {"best_epoch", "1"}, {"evaluations_since_best", "1"}};
  const auto error = [&](const std::string& key, const std::optional<std::string>& value) {
    Metadata metadata = good;
    metadata.erase(key);
    if (value) metadata[key] = *value;
    const absl::Status status = EarlyEnd(Spec({}, 2), kEpoch).Restore(20, metadata);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << key;
    return std::string(status.message());
  };
  EXPECT_EQ(error("best_accuracy", "nan"), "the checkpoint's best_accuracy = \"nan\": must be in [0, 1]");
  EXPECT_EQ(error("best_accuracy", std::nullopt), "the checkpoint's best_accuracy = \"\": must be in [0, 1]");
  EXPECT_EQ(error("accuracy", "1.5"), "the checkpoint's accuracy = \"1.5\": must be in [0, 1]");
  EXPECT_EQ(error("best_epoch", "0"), "the checkpoint's best_epoch = \"0\": must be at least 1");
  EXPECT_EQ(error("evaluations_since_best", "-1"),
            "the checkpoint's evaluations_since_best = \"-1\": must be at least 0");
}

}  // namespace
}  // namespace lenet
