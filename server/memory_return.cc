#include "server/memory_return.h"

#include <malloc.h>

#include <algorithm>

#include "absl/status/statusor.h"
#include "server/monitoring/process_stats.h"

namespace lenet {
namespace {

constexpr int64_t kGrowth = 32 << 20;

}  // namespace

void MemoryReturn::Tick() {
  absl::StatusOr<ProcessStats> stats = ReadProcessStats();
  if (!stats.ok()) return;
  if (stats->resident_bytes < resident_bytes_ + kGrowth) {
    resident_bytes_ = std::min(resident_bytes_, stats->resident_bytes);
    return;
  }
  ::malloc_trim(0);
  stats = ReadProcessStats();
  if (stats.ok()) resident_bytes_ = stats->resident_bytes;
}

}  // namespace lenet
