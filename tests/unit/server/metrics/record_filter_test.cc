#include "server/metrics/record_filter.h"

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/timestamp.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kRecordSpacing = absl::Milliseconds(50);

// Steps first .. last of each of `ranks` ranks, rank after rank.
RecordPtr Losses(int64_t first, int64_t last, int ranks, absl::Time time = absl::FromUnixSeconds(1000)) {
  auto record = std::make_shared<v1::MetricRecord>();
  record->set_sequence(7);
  record->set_attempt(2);
  *record->mutable_time() = ToTimestamp(time);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int64_t step = first; step <= last; ++step) {
      record->mutable_step_losses()->add_steps(step);
      record->mutable_step_losses()->add_ranks(rank);
      record->mutable_step_losses()->add_losses(static_cast<float>(100 * rank + step));
    }
  }
  return record;
}

std::vector<RecordPtr> OneOfEachKind() {
  std::vector<RecordPtr> records = {Losses(1, 2, 1)};
  const auto add = [&records](auto fill) {
    auto record = std::make_shared<v1::MetricRecord>();
    fill(record.get());
    records.push_back(record);
  };
  add([](v1::MetricRecord* record) { record->mutable_epoch_summary(); });
  add([](v1::MetricRecord* record) { record->mutable_evaluation(); });
  add([](v1::MetricRecord* record) { record->mutable_state_change(); });
  add([](v1::MetricRecord* record) { record->mutable_checkpoint_saved(); });
  add([](v1::MetricRecord* record) { record->mutable_warning(); });
  add([](v1::MetricRecord* record) { record->mutable_terminal(); });
  add([](v1::MetricRecord* record) { record->mutable_truncated(); });
  add([](v1::MetricRecord* record) { record->mutable_rewound(); });
  return records;
}

TEST(RecordFilterTest, WithoutWishesGivesTheVeryRecords) {
  RecordFilter filter({});
  for (const RecordPtr& record : OneOfEachKind()) EXPECT_EQ(filter.Apply(record), record);
}

TEST(RecordFilterTest, EachKindAloneAndAlwaysTheOnesThatTellOfTheLogItself) {
  const std::vector<RecordPtr> records = OneOfEachKind();
  const v1::RecordKind kinds[] = {v1::STEP_LOSSES,  v1::EPOCH_SUMMARY,    v1::EVALUATION,
                                  v1::STATE_CHANGE, v1::CHECKPOINT_SAVED, v1::WARNING};
  for (size_t wanted = 0; wanted < std::size(kinds); ++wanted) {
    RecordFilter filter({.kinds = {kinds[wanted]}});
    for (size_t i = 0; i < records.size(); ++i) {
      const bool expected = i == wanted || i >= std::size(kinds);
      EXPECT_EQ(filter.Apply(records[i]) == records[i], expected) << wanted << " " << i;
    }
  }
}

TEST(RecordFilterTest, SomeRanks) {
  RecordFilter filter({.ranks = {1, 3}});
  const RecordPtr thinned = filter.Apply(Losses(5, 6, 4));
  ASSERT_NE(thinned, nullptr);
  EXPECT_THAT(thinned->step_losses().ranks(), ElementsAre(1, 1, 3, 3));
  EXPECT_THAT(thinned->step_losses().steps(), ElementsAre(5, 6, 5, 6));
  EXPECT_THAT(thinned->step_losses().losses(), ElementsAre(105, 106, 305, 306));
  EXPECT_EQ(thinned->sequence(), 7u);
  EXPECT_EQ(thinned->attempt(), 2u);
  EXPECT_EQ(FromTimestamp(thinned->time()), absl::FromUnixSeconds(1000));
  EXPECT_EQ(filter.Apply(Losses(1, 3, 1)), nullptr);
}

TEST(RecordFilterTest, EverySoManyStepsAndTheFirst) {
  RecordFilter filter({.every_n_steps = 5});
  EXPECT_THAT(filter.Apply(Losses(1, 11, 1))->step_losses().steps(), ElementsAre(1, 5, 10));
  EXPECT_EQ(filter.Apply(Losses(11, 14, 2)), nullptr);
  const RecordPtr single = Losses(15, 15, 2);
  EXPECT_EQ(filter.Apply(single), single);
}

TEST(RecordFilterTest, TheRateHoldsOverTimeForWholeSteps) {
  constexpr int kRanks = 4;
  constexpr int kRecords = 20 * 10;  // ten seconds
  constexpr double kRate = 40;
  RecordFilter filter({.max_rate = kRate});
  absl::Time time = absl::FromUnixSeconds(1000);
  std::map<int64_t, std::set<int>> ranks_of_step;
  int kept = 0;
  for (int i = 0; i < kRecords; ++i, time += kRecordSpacing) {
    const RecordPtr thinned = filter.Apply(Losses(i * 25 + 1, i * 25 + 25, kRanks, time));
    if (thinned == nullptr) continue;
    for (int j = 0; j < thinned->step_losses().steps_size(); ++j) {
      ranks_of_step[thinned->step_losses().steps(j)].insert(thinned->step_losses().ranks(j));
      ++kept;
    }
    // Newest kept.
    EXPECT_EQ(thinned->step_losses().steps(thinned->step_losses().steps_size() - 1), i * 25 + 25);
  }
  EXPECT_NEAR(kept, kRate * 10, kRate * 0.3);
  for (const auto& [step, ranks] : ranks_of_step) EXPECT_EQ(ranks.size(), static_cast<size_t>(kRanks)) << step;
}

TEST(RecordFilterTest, ALowRateStillGivesSteps) {
  RecordFilter filter({.max_rate = 0.5});
  absl::Time time = absl::FromUnixSeconds(1000);
  int kept = 0;
  for (int i = 0; i < 20 * 60; ++i, time += kRecordSpacing) {
    if (filter.Apply(Losses(i + 1, i + 1, 8, time)) != nullptr) ++kept;
  }
  EXPECT_NEAR(kept, 60 * 0.5 / 8, 1.5);
}

TEST(RecordFilterTest, AHighRateGivesAll) {
  RecordFilter filter({.max_rate = 1e300});
  absl::Time time = absl::FromUnixSeconds(1000);
  (void)filter.Apply(Losses(1, 1, 2, time));
  for (int i = 1; i < 10; ++i) {
    time += kRecordSpacing;
    const RecordPtr record = Losses(i * 100, i * 100 + 99, 2, time);
    EXPECT_EQ(filter.Apply(record), record);
  }
}

TEST(RecordFilterTest, AClockThatGoesBackDoesNoHarm) {
  RecordFilter filter({.max_rate = 10});
  const absl::Time time = absl::FromUnixSeconds(1000);
  EXPECT_NE(filter.Apply(Losses(1, 1, 1, time)), nullptr);
  EXPECT_EQ(filter.Apply(Losses(2, 2, 1, time - absl::Hours(1))), nullptr);
  EXPECT_NE(filter.Apply(Losses(3, 3, 1, time - absl::Hours(1) + absl::Seconds(1))), nullptr);
}

TEST(RecordFilterTest, OtherRecordsDoNotCountForTheRate) {
  RecordFilter filter({.max_rate = 1});
  EXPECT_NE(filter.Apply(Losses(1, 1, 1)), nullptr);
  for (const RecordPtr& record : OneOfEachKind()) {
    if (record->has_step_losses()) continue;
    EXPECT_EQ(filter.Apply(record), record);
  }
}

}  // namespace
}  // namespace lenet
