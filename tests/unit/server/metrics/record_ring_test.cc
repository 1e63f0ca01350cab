#include "server/metrics/record_ring.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace lenet {
namespace {

constexpr int64_t kAll = int64_t{1} << 40;

std::vector<RecordPtr> Records(uint64_t first, uint64_t last, size_t bytes = 10) {
  std::vector<RecordPtr> records;
  for (uint64_t sequence = first; sequence <= last; ++sequence) {
    auto record = std::make_shared<v1::MetricRecord>();
    record->set_sequence(sequence);
    record->mutable_warning()->set_message(std::string(bytes, 'x'));
    records.push_back(std::move(record));
  }
  return records;
}

// First and last sequence, between which there is no gap; {0, 0} if there are none.
std::pair<uint64_t, uint64_t> Span(const std::vector<RecordPtr>& records) {
  if (records.empty()) return {0, 0};
  for (size_t i = 1; i < records.size(); ++i) EXPECT_EQ(records[i]->sequence(), records[i - 1]->sequence() + 1);
  return {records.front()->sequence(), records.back()->sequence()};
}

using Pair = std::pair<uint64_t, uint64_t>;

TEST(RecordRingTest, GivesTheVeryRecordsFromASequenceOn) {
  RecordRing ring(100, kAll);
  EXPECT_TRUE(ring.Read(1, kAll).empty());
  const std::vector<RecordPtr> records = Records(5, 9);
  ring.Add(records);
  EXPECT_EQ(ring.Read(5, kAll), records);
  EXPECT_EQ(Span(ring.Read(9, kAll)), Pair(9, 9));
  for (uint64_t outside : {uint64_t{0}, uint64_t{4}, uint64_t{10}, ~uint64_t{0}}) {
    EXPECT_TRUE(ring.Read(outside, kAll).empty()) << outside;
  }
  ring.Clear();
  EXPECT_TRUE(ring.Read(5, kAll).empty());
  ring.Add(Records(30, 31));
  EXPECT_EQ(Span(ring.Read(30, kAll)), Pair(30, 31));
}

TEST(RecordRingTest, ReadingIsBoundedInBytesButAlwaysGetsOn) {
  RecordRing ring(100, kAll);
  ring.Add(Records(1, 20, 1000));
  EXPECT_EQ(Span(ring.Read(3, 1)), Pair(3, 3));
  const auto [first, last] = Span(ring.Read(3, 5000));
  EXPECT_EQ(first, 3u);
  EXPECT_GE(last, 5u);
  EXPECT_LE(last, 7u);
}

TEST(RecordRingTest, KeepsTheNewestWithinItsBounds) {
  RecordRing few(3, kAll);
  few.Add(Records(1, 2));
  few.Add(Records(3, 5));
  EXPECT_TRUE(few.Read(2, kAll).empty());
  EXPECT_EQ(Span(few.Read(3, kAll)), Pair(3, 5));

  RecordRing small(100, 5000);
  small.Add(Records(1, 20, 1000));
  EXPECT_TRUE(small.Read(15, kAll).empty());
  EXPECT_EQ(Span(small.Read(18, kAll)), Pair(18, 20));
  small.Add(Records(21, 21, 100000));  // the newest stays, however large
  EXPECT_TRUE(small.Read(20, kAll).empty());
  EXPECT_EQ(Span(small.Read(21, kAll)), Pair(21, 21));
  small.Add(Records(22, 23, 1000));
  EXPECT_EQ(Span(small.Read(22, kAll)), Pair(22, 23));
}

TEST(RecordRingTest, AGapDropsWhatLiesBeforeIt) {
  RecordRing ring(100, kAll);
  ring.Add(Records(1, 5));
  ring.Add(Records(8, 9));
  EXPECT_TRUE(ring.Read(5, kAll).empty());
  EXPECT_TRUE(ring.Read(7, kAll).empty());
  EXPECT_EQ(Span(ring.Read(8, kAll)), Pair(8, 9));
}

TEST(RecordRingTest, ManyReadWhileOneAdds) {
  constexpr uint64_t kLast = 5000;
  RecordRing ring(16, kAll);
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  readers.reserve(4);
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      uint64_t next = 1;
      while (!done) {
        const std::vector<RecordPtr> records = ring.Read(next, 500);
        if (records.empty()) {
          next += 5;
        } else {
          EXPECT_EQ(Span(records).first, next);
          next = Span(records).second + 1;
        }
        if (next > kLast) next = 1;
      }
    });
  }
  for (uint64_t i = 1; i <= kLast; i += 2) ring.Add(Records(i, i + 1));
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(Span(ring.Read(kLast - 15, kAll)), Pair(kLast - 15, kLast));
}

}  // namespace
}  // namespace lenet
