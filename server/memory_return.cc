#include "server/memory_return.h"

#include <malloc.h>

#include <algorithm>

#include "absl/status/statusor.h"
#include "server/monitoring/process_stats.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr int64_t kGrowth = 32 << 20;

// Resident memory that no allocation uses: what the allocator keeps, and what is not the allocator's.
absl::StatusOr<int64_t> UnusedBytes() {
  LENET_ASSIGN_OR_RETURN(const ProcessStats stats, ReadProcessStats());
  const struct mallinfo2 info = ::mallinfo2();
  return stats.resident_bytes - static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace

void MemoryReturn::Tick() {
  absl::StatusOr<int64_t> unused = UnusedBytes();
  if (!unused.ok()) return;
  if (*unused < unused_bytes_ + kGrowth) {
    unused_bytes_ = std::min(unused_bytes_, *unused);
    return;
  }
  ::malloc_trim(0);
  unused = UnusedBytes();
  if (unused.ok()) unused_bytes_ = *unused;
}

}  // namespace lenet
