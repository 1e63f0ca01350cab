#include "server/metrics/metrics_reader.h"

#include <atomic>
#include <chrono>
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

// Counts reads of the log, and can have lost records with the power.
class ReadStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  std::vector<uint64_t> epoch_starts;
  mutable std::atomic<int> reads{0};

  absl::StatusOr<RecordPage> ReadRecords(absl::string_view id, uint64_t from_sequence,
                                         int64_t max_bytes) const override {
    ++reads;
    absl::StatusOr<RecordPage> page = MemoryStore::ReadRecords(id, from_sequence, max_bytes);
    if (page.ok()) {
      page->epoch_starts = epoch_starts;
      page->log_epoch = static_cast<uint32_t>(epoch_starts.size()) + 1;
    }
    return page;
  }
};

class MetricsReaderTest : public ::testing::Test {
 protected:
  explicit MetricsReaderTest(const StoreLimits& limits = {}, const MetricsLog::Options& options = {}) : store_(limits) {
    v1::Job job;
    job.set_id("a");
    job.set_state(v1::QUEUED);
    EXPECT_TRUE(store_.CreateJob(job, {}).ok());
    log_ = std::make_shared<MetricsLog>(&store_, "a", 0, MetricsLog::Hooks(), options);
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
  MetricsReader Reader(uint64_t from, RecordWishes wishes = {}, bool live = true, uint32_t known_epoch = 0) {
    return MetricsReader(&store_, "a", live ? log_ : nullptr, from, std::move(wishes), known_epoch);
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

  ReadStore store_;
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

TEST_F(MetricsReaderTest, AtTheNewestEndTheStoreIsNotRead) {
  AddWarnings(5);
  std::vector<MetricsReader> readers;
  std::vector<std::vector<uint64_t>> sequences(10);
  for (size_t i = 0; i < sequences.size(); ++i) {
    readers.push_back(Reader(0));
    EXPECT_EQ(ReadUp(&readers[i], &sequences[i]), Place::kNewest);
  }
  const int reads = store_.reads;
  for (int round = 0; round < 20; ++round) {
    AddWarnings(10, 1000);
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(ReadUp(&readers[i], &sequences[i], 3000), Place::kNewest);
    }
  }
  EXPECT_EQ(store_.reads, reads);
  End();
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_EQ(ReadUp(&readers[i], &sequences[i]), Place::kEnd);
    EXPECT_EQ(sequences[i], Range(1, 207));
  }
}

TEST_F(MetricsReaderTest, AReaderAtTheNewestWaitsForMore) {
  AddWarnings(1);
  MetricsReader reader = Reader(0);
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  reader.AwaitMore();
  v1::MetricRecord record;
  record.mutable_warning()->set_message("next");
  log_->Add(record);
  EXPECT_LE(log_->due(), MetricsLog::Clock::now() + std::chrono::milliseconds(5));
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

// A memory of a few records.
class SmallRingTest : public MetricsReaderTest {
 protected:
  SmallRingTest() : MetricsReaderTest({}, {.recent_records = 4}) {}
};

TEST_F(SmallRingTest, AReaderThatFallsBehindReadsTheStoreAndComesBack) {
  AddWarnings(3);
  MetricsReader reader = Reader(0);
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  int reads = store_.reads;
  AddWarnings(4);
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  EXPECT_EQ(store_.reads, reads);
  AddWarnings(3);
  AddWarnings(2);
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  EXPECT_GT(store_.reads, reads);
  reads = store_.reads;
  AddWarnings(2);
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  EXPECT_EQ(store_.reads, reads);
  EXPECT_EQ(sequences, Range(1, 14));
}

TEST_F(SmallRingTest, AReaderThatGoesFromTheStoreIntoMemorySeesNoGap) {
  AddWarnings(50, 1000);
  MetricsReader reader = Reader(0);
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&reader, &sequences, 3500), Place::kNewest);
  EXPECT_EQ(sequences, Range(1, 50));
}

TEST_F(SmallRingTest, FastAndSlowReadersFollowAWriter) {
  constexpr int kReaders = 6;
  std::vector<std::thread> readers;
  readers.reserve(kReaders);
  std::vector<std::vector<uint64_t>> sequences(kReaders);
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&, i] {
      MetricsReader reader = Reader(0);
      while (ReadUp(&reader, &sequences[static_cast<size_t>(i)], 300) != Place::kEnd) {
        std::this_thread::sleep_for(std::chrono::microseconds(i * 300));
      }
    });
  }
  for (int i = 0; i < 300; ++i) {
    AddWarnings(1 + i % 3);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  End();
  for (std::thread& reader : readers) reader.join();
  for (const std::vector<uint64_t>& read : sequences) EXPECT_EQ(read, Range(1, 602));
  EXPECT_GT(store_.reads, 0);
}

// The log has 20 records; those from 8 on, and then those from 15 on, took the place of lost ones.
class RewoundReaderTest : public MetricsReaderTest {
 protected:
  RewoundReaderTest() {
    AddWarnings(20);
    store_.epoch_starts = {8, 15};
  }
};

TEST_F(RewoundReaderTest, AReaderBeyondTheCutIsToldAndGoesBack) {
  struct Case {
    uint32_t epoch;
    uint64_t from;
    uint64_t cut;
  };
  for (const Case& expected : {Case{1, 9, 8}, Case{1, 15, 8}, Case{1, 1000, 8}, Case{2, 16, 15}, Case{2, 21, 15}}) {
    for (bool live : {true, false}) {
      MetricsReader reader = Reader(expected.from, {.kinds = {v1::EVALUATION, v1::WARNING}}, live, expected.epoch);
      EXPECT_EQ(reader.log_epoch(), 0u);
      google::protobuf::RepeatedPtrField<v1::MetricRecord> out;
      EXPECT_EQ(reader.Read(1 << 20, &out).value(), live ? Place::kNewest : Place::kMore);
      EXPECT_EQ(reader.log_epoch(), 3u);
      ASSERT_EQ(out.size(), 1 + 21 - static_cast<int>(expected.cut));
      ASSERT_TRUE(out[0].has_rewound());
      EXPECT_EQ(out[0].sequence(), expected.cut - 1);
      EXPECT_EQ(out[0].rewound().log_epoch(), 3u);
      EXPECT_EQ(out[0].rewound().first_sequence(), expected.cut);
      EXPECT_TRUE(out[0].has_time());
      for (int i = 1; i < out.size(); ++i) {
        EXPECT_EQ(out[i].sequence(), expected.cut + static_cast<uint64_t>(i) - 1);
      }
    }
  }
}

TEST_F(RewoundReaderTest, AReaderThatHasNothingOfWhatWasLostIsToldNothing) {
  struct Case {
    uint32_t epoch;
    uint64_t from;
  };
  // Not beyond the cut; of the newest epoch; of none.
  for (const Case& quiet : {Case{1, 0}, Case{1, 8}, Case{2, 15}, Case{3, 18}, Case{3, 21}, Case{0, 18}, Case{0, 21}}) {
    MetricsReader reader = Reader(quiet.from, {}, true, quiet.epoch);
    std::vector<uint64_t> sequences;
    EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
    EXPECT_EQ(sequences, Range(std::max<uint64_t>(quiet.from, 1), 20)) << quiet.epoch << " " << quiet.from;
    EXPECT_EQ(reader.log_epoch(), 3u);
  }
}

// As that of a store which an older copy has replaced.
TEST_F(RewoundReaderTest, AReaderThatIsAheadOfTheLogBeginsAnew) {
  struct Case {
    uint32_t epoch;
    uint64_t from;
  };
  for (const Case& ahead : {Case{4, 18}, Case{4, 21}, Case{3, 22}, Case{3, UINT64_MAX}, Case{UINT32_MAX, 1000}}) {
    for (bool live : {true, false}) {
      MetricsReader reader = Reader(ahead.from, {}, live, ahead.epoch);
      google::protobuf::RepeatedPtrField<v1::MetricRecord> out;
      ASSERT_TRUE(reader.Read(1 << 20, &out).ok());
      ASSERT_EQ(out.size(), 21) << ahead.epoch << " " << ahead.from;
      EXPECT_EQ(out[0].sequence(), 0u);
      EXPECT_EQ(out[0].rewound().first_sequence(), 1u);
      EXPECT_EQ(out[0].rewound().log_epoch(), 3u);
      EXPECT_EQ(out[20].sequence(), 20u);
    }
  }
  // It has read nothing.
  MetricsReader reader = Reader(1, {}, true, 4);
  std::vector<uint64_t> sequences;
  EXPECT_EQ(ReadUp(&reader, &sequences), Place::kNewest);
  EXPECT_EQ(sequences, Range(1, 20));
}

TEST_F(RewoundReaderTest, ALogThatWasLostWholeBeginsAnew) {
  store_.epoch_starts = {1};
  MetricsReader reader = Reader(30, {}, true, 1);
  google::protobuf::RepeatedPtrField<v1::MetricRecord> out;
  EXPECT_EQ(reader.Read(1 << 20, &out).value(), Place::kNewest);
  ASSERT_EQ(out.size(), 21);
  EXPECT_EQ(out[0].sequence(), 0u);
  EXPECT_EQ(out[0].rewound().first_sequence(), 1u);
  EXPECT_EQ(out[1].sequence(), 1u);
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
  // Nothing but the newest record is in memory.
  TruncatedReaderTest() : MetricsReaderTest({.max_log_bytes = 20000}, {.recent_records = 1}) {}

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
