// A store that can be told to refuse records.
#ifndef LENET_TESTS_UNIT_SERVER_METRICS_FAILING_STORE_H_
#define LENET_TESTS_UNIT_SERVER_METRICS_FAILING_STORE_H_

#include <atomic>

#include "server/store/memory_store.h"

namespace lenet {

class FailingStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;

  absl::StatusOr<uint64_t> AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) override {
    if (full) return absl::ResourceExhaustedError("disk full");
    return MemoryStore::AppendRecords(id, records);
  }

  std::atomic<bool> full{false};
};

}  // namespace lenet

#endif  // LENET_TESTS_UNIT_SERVER_METRICS_FAILING_STORE_H_
