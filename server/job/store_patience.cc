#include "server/job/store_patience.h"

#include <algorithm>

namespace lenet {
namespace {

constexpr std::chrono::milliseconds kFirst(100);
constexpr std::chrono::milliseconds kLongest(5000);
constexpr int kDoublings = 6;  // kLongest is reached by then

}  // namespace

void StorePatience::EndAt(Clock::time_point deadline) {
  MutexLock lock(&mutex_);
  deadline_ = std::min(deadline_, deadline);
  changed_.SignalAll();
}

bool StorePatience::Pause(int failures) {
  const Clock::time_point now = Clock::now();
  const Clock::time_point end = now + std::min(kFirst * (1 << std::clamp(failures - 1, 0, kDoublings)), kLongest);
  MutexLock lock(&mutex_);
  if (now >= deadline_) return false;
  const Clock::time_point known = deadline_;
  while (deadline_ == known && changed_.WaitUntil(&mutex_, std::min(end, deadline_))) {
  }
  return true;
}

}  // namespace lenet
