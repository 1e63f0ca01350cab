#include "tests/support/scripted_faults.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "trainer/train/train_spec.h"

namespace lenet {
namespace {

bool Matches(const ScriptedFault& fault, const FaultSite& site) {
  if (fault.point != site.point || fault.rank != site.rank) return false;
  switch (fault.point) {
    case FaultPoint::kEngine:
      return true;
    case FaultPoint::kChunk:
      return fault.step == site.step;
    case FaultPoint::kSave:
      return fault.step == 0 || fault.step == site.step;
  }
  return false;
}

}  // namespace

ScriptedFaults::ScriptedFaults(std::vector<ScriptedFault> faults) : faults_(std::move(faults)) {}

absl::Status ScriptedFaults::At(const FaultSite& site, const std::function<bool()>& aborted) {
  for (const ScriptedFault& fault : faults_) {
    if (!Matches(fault, site)) continue;
    switch (fault.action) {
      case ScriptedFault::Action::kFail:
        return fault.status;
      case ScriptedFault::Action::kThrow:
        throw std::runtime_error(std::string(fault.status.message()));
      case ScriptedFault::Action::kHang:
        ++hung_;
        while (!aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return absl::AbortedError("a hang on purpose was aborted");
      case ScriptedFault::Action::kHangUntilReleased: {
        ++hung_;
        MutexLock lock(&mutex_);
        while (!released_) released_changed_.Wait(&mutex_);
        return absl::AbortedError("a hang on purpose was released");
      }
    }
  }
  return absl::OkStatus();
}

int64_t ScriptedFaults::NextStep(int64_t done) const {
  int64_t next = kMaxSteps + 1;
  for (const ScriptedFault& fault : faults_) {
    if (fault.point == FaultPoint::kChunk && fault.step > done) next = std::min(next, fault.step);
  }
  return next;
}

void ScriptedFaults::Release() {
  MutexLock lock(&mutex_);
  released_ = true;
  released_changed_.SignalAll();
}

}  // namespace lenet
