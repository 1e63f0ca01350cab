// What the server's parts count with: cheap where it is counted, read by whoever exports it.
#ifndef LENET_SERVER_TELEMETRY_INSTRUMENTS_H_
#define LENET_SERVER_TELEMETRY_INSTRUMENTS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace lenet {

// Only grows. Safe from any thread.
class Counter {
 public:
  void Add(uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// How often durations, in seconds, lay within which bounds. Safe from any thread.
class DurationHistogram {
 public:
  struct Snapshot {
    std::vector<uint64_t> counts;  // counts[i]: above bounds[i - 1], up to bounds[i]; one more than there are bounds
    double sum = 0;                // seconds
  };

  // Upper bounds in rising order, which outlive it.
  explicit DurationHistogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}

  // Counts the duration `times` times; two additions. A negative one, from a clock that was set back, counts as 0.
  void Observe(double seconds, uint64_t times = 1) {
    seconds = std::max(seconds, 0.0);
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), seconds) - bounds_.begin();
    counts_[static_cast<size_t>(bucket)].fetch_add(times, std::memory_order_relaxed);
    nanoseconds_.fetch_add(static_cast<int64_t>(seconds * 1e9 * static_cast<double>(times)), std::memory_order_relaxed);
  }

  std::span<const double> bounds() const { return bounds_; }
  // What is counted meanwhile may be in one part of it and not in another.
  Snapshot Get() const {
    Snapshot snapshot;
    for (const std::atomic<uint64_t>& count : counts_) {
      snapshot.counts.push_back(count.load(std::memory_order_relaxed));
    }
    snapshot.sum = static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) / 1e9;
    return snapshot;
  }

 private:
  const std::span<const double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace lenet

#endif  // LENET_SERVER_TELEMETRY_INSTRUMENTS_H_
