#include "server/metrics/metrics_reader.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/memory_store.h"

namespace lenet {
namespace {

using Place = MetricsReader::Place;

class MetricsReaderTest : public ::testing::Test {
 protected:
  explicit MetricsReaderTest(const StoreLimits& options = {}) : store_(options) {
    v1::Job job;
    job.set_id("a");
    job.set_state(v1::QUEUED);
    EXPECT_TRUE(store_.CreateJob(job, {}).ok());
    log_ = std::make_shared<MetricsLog>(&store_, "a", 0);
  }

  void AddWarnings(int count, size_t bytes = 10) {
    for (int i = 0; i < count; ++i) {
      v1::MetricRecord record;
      record.mutable_warning()->set_message(std::string(bytes, 'x'));
      log_->Add(record);
    }
    ASSERT_TRUE(log_->Flush().ok());
  }

  void End() { ASSERT_TRUE(log_->ChangeState({.from = v1::QUEUED, .to = v1::STOPPED, .time = absl::Now()}).ok()); }

  // `live` false: the job is over.
  MetricsReader Reader(uint64_t from, RecordWishes wishes = {}, bool live = true) {
    return MetricsReader(&store_, "a", live ? log_ : nullptr, from, std::move(wishes));
  }

  // Reads until there is no more now, appends the sequences, and gives the place.
  static Place ReadUp(MetricsReader* reader, std::vector<uint64_t>* sequences, int64_t max_bytes = 1 << 20) {
    for (;;) {
      google::protobuf::RepeatedPtrField<v1::MetricRecord> out;
      const Place place = reader->Read(max_bytes, &out).value();
      for (const v1::MetricRecord& record : out) sequences->push_back(record.sequence());
      if (place != Place::kMore) return place;
    }
  }

  static std::vector<uint64_t> Range(uint64_t first, uint64_t last) {
    std::vector<uint64_t> range;
    for (uint64_t i = first; i <= last; ++i) range.push_back(i);
    return range;
  }

  MemoryStore store_;
  std::shared_ptr<MetricsLog> log_;
};

TEST_F(MetricsReaderTest, ReplaysThenFollowsToTheEnd) {
  AddWarnings(5);
  MetricsReader reader = Reader(0);
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  EXPECT_EQ(sequences, Range(1, 5));
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  AddWarnings(2);
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  EXPECT_EQ(sequences, Range(1, 7));
  End();
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kEnd);
  EXPECT_EQ(sequences, Range(1, 9));
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kEnd);
  EXPECT_EQ(sequences, Range(1, 9));
}

TEST_F(MetricsReaderTest, AnEndedLogIsServedWholeWithoutItsLiveEnd) {
  AddWarnings(5);
  End();
  for (uint64_t from : {0, 1, 4, 7}) {
    MetricsReader reader = Reader(from, {}, /*live=*/false);
    std::vector<uint64_t> sequences;
    EXPECT_EQ(ReadUp(&reader, &sequences), Place::kEnd);
    EXPECT_EQ(sequences, Range(std::max<uint64_t>(from, 1), 7));
  }
}

TEST_F(MetricsReaderTest, BeyondTheEndThereIsNothing) {
  AddWarnings(1);
  End();
  for (bool live : {true, false}) {
    for (uint64_t from : {uint64_t{4}, uint64_t{1000}, ~uint64_t{0}}) {
      MetricsReader reader = Reader(from, {}, live);
      std::vector<uint64_t> sequences;
      EXPECT_EQ(ReadUp(&reader, &sequences), Place::kEnd);
      EXPECT_TRUE(sequences.empty());
    }
  }
}

TEST_F(MetricsReaderTest, AnEndThatIsNotRecordedIsAnErrorAfterAllRecords) {
  AddWarnings(3);
  MetricsReader follower = Reader(0);
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&follower, &sequences), Place::kNewest);
  AddWarnings(2);
  log_->Close(absl::DataLossError("lost"));
  EXPECT_EQ(ReadUp(&follower, &sequences), Place::kNewest);
  EXPECT_EQ(sequences, Range(1, 5));
  google::protobuf::RepeatedPtrField<v1::MetricRecord> out;
  EXPECT_EQ(follower.Read(1000, &out).status(), absl::DataLossError("lost"));

  // Whoever comes later.
  MetricsReader late = Reader(0, {}, /*live=*/false);
  EXPECT_EQ(late.Read(1 << 20, &out).value(), Place::kMore);
  EXPECT_EQ(out.size(), 5);
  out.Clear();
  EXPECT_TRUE(absl::IsDataLoss(late.Read(1 << 20, &out).status()));
  EXPECT_TRUE(out.empty());
}

TEST_F(MetricsReaderTest, AReaderAheadWaitsForItsSequence) {
  AddWarnings(2);
  MetricsReader reader = Reader(5);
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  AddWarnings(2);
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  EXPECT_TRUE(sequences.empty());
  AddWarnings(2);
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  EXPECT_EQ(sequences, Range(5, 6));
}

TEST_F(MetricsReaderTest, ReconnectingWithTheNextSequenceMissesAndRepeatsNothing) {
  AddWarnings(50, 1000);
  std::vector<uint64_t> sequences;
  uint64_t last = 0;
  while (last < 50) {
    MetricsReader reader = Reader(last + 1);
    google::protobuf::RepeatedPtrField<v1::MetricRecord> out;
    ASSERT_TRUE(reader.Read(5000, &out).ok());
    ASSERT_FALSE(out.empty());
    EXPECT_LE(out.size(), 5);
    for (const v1::MetricRecord& record : out) sequences.push_back(record.sequence());
    last = sequences.back();
  }
  EXPECT_EQ(sequences, Range(1, 50));
}

TEST_F(MetricsReaderTest, AFilterThatDropsAllStillGetsToTheEnd) {
  AddWarnings(300, 1000);
  End();
  MetricsReader reader = Reader(0, {.kinds = {v1::EVALUATION}});
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&reader, &sequences, 2000), Place::kEnd);
  EXPECT_EQ(sequences, Range(302, 302));  // the terminal record
}

TEST_F(MetricsReaderTest, ManyReadersFollowOneLog) {
  constexpr int kReaders = 20;
  std::vector<std::thread> readers;
  readers.reserve(kReaders);
  std::vector<std::vector<uint64_t>> sequences(kReaders);
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&, i] {
      // Some join late.
      const uint64_t from = static_cast<uint64_t>(i % 4) * 100;
      while (log_->last_sequence() < from) std::this_thread::yield();
      MetricsReader reader = Reader(from);
      while (ReadUp(&reader, &sequences[static_cast<size_t>(i)], 3000) != Place::kEnd) std::this_thread::yield();
    });
  }
  for (int i = 0; i < 100; ++i) AddWarnings(5, 100);
  End();
  for (std::thread& reader : readers) reader.join();
  for (int i = 0; i < kReaders; ++i) {
    EXPECT_EQ(sequences[static_cast<size_t>(i)], Range(std::max(i % 4 * 100, 1), 502)) << i;
  }
}

class ForgottenReaderTest : public MetricsReaderTest {
 protected:
  ForgottenReaderTest() : MetricsReaderTest({.max_ended_jobs = 0}) {}
};

TEST_F(ForgottenReaderTest, AForgottenJobEndsItsReader) {
  AddWarnings(3);
  MetricsReader reader = Reader(0);
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  End();
  google::protobuf::RepeatedPtrField<v1::MetricRecord> out;
  EXPECT_TRUE(absl::IsNotFound(reader.Read(1000, &out).status()));
}

class TruncatedReaderTest : public MetricsReaderTest {
 protected:
  TruncatedReaderTest() : MetricsReaderTest({.max_log_bytes = 20000}) {}

  // The first record, which must tell of a truncation; the sequences of the others.
  v1::MetricRecord ReadTruncated(uint64_t from, std::vector<uint64_t>* sequences) {
    MetricsReader reader = Reader(from);
    google::protobuf::RepeatedPtrField<v1::MetricRecord> out;
    EXPECT_TRUE(reader.Read(1 << 20, &out).ok());
    EXPECT_FALSE(out.empty());
    for (int i = 1; i < out.size(); ++i) sequences->push_back(out[i].sequence());
    return out.empty() ? v1::MetricRecord() : out[0];
  }
};

TEST_F(TruncatedReaderTest, WhatIsRemovedIsToldOnceWithItsCount) {
  AddWarnings(100, 1000);
  const uint64_t first = store_.ReadRecords("a", 1, 1)->first_sequence;
  ASSERT_GT(first, 50u);
  std::vector<uint64_t> sequences;
  v1::MetricRecord truncated = ReadTruncated(0, &sequences);
  ASSERT_TRUE(truncated.has_truncated());
  EXPECT_EQ(truncated.truncated().count(), first - 1);
  EXPECT_EQ(truncated.sequence(), first - 1);
  EXPECT_TRUE(truncated.has_time());
  EXPECT_EQ(sequences, Range(first, 100));

  sequences.clear();
  truncated = ReadTruncated(40, &sequences);
  EXPECT_EQ(truncated.truncated().count(), first - 40);
  EXPECT_EQ(sequences, Range(first, 100));

  // Just what was removed last, and just what is left.
  sequences.clear();
  EXPECT_EQ(ReadTruncated(first - 1, &sequences).truncated().count(), 1u);
  std::vector<uint64_t> whole;
  MetricsReader reader = Reader(first);
  EXPECT_EQ(ReadUp(&reader, &whole), Place::kNewest);
  EXPECT_EQ(whole, Range(first, 100));
}

TEST_F(TruncatedReaderTest, AReaderThatIsOvertakenIsToldOfTheGap) {
  AddWarnings(5, 1000);
  MetricsReader reader = Reader(0);
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  AddWarnings(100, 1000);
  google::protobuf::RepeatedPtrField<v1::MetricRecord> out;
  ASSERT_TRUE(reader.Read(1 << 20, &out).ok());
  ASSERT_GT(out.size(), 1);
  ASSERT_TRUE(out[0].has_truncated());
  EXPECT_EQ(out[0].truncated().count() + 5, out[0].sequence());
  EXPECT_EQ(out[1].sequence(), out[0].sequence() + 1);
  EXPECT_EQ(out[out.size() - 1].sequence(), 105u);
}

}  // namespace
}  // namespace lenet
