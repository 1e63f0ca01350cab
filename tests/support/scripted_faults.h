// Faults at the places that a list names.
#ifndef LENET_TESTS_SUPPORT_SCRIPTED_FAULTS_H_
#define LENET_TESTS_SUPPORT_SCRIPTED_FAULTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "trainer/base/mutex.h"
#include "trainer/train/fault_injector.h"

namespace lenet {

struct ScriptedFault {
  enum class Action {
    kFail,               // with `status`
    kThrow,              // a std::runtime_error of the status's message
    kHang,               // until the run is aborted
    kHangUntilReleased,  // whatever happens to the run
  };
  FaultPoint point = FaultPoint::kChunk;
  int rank = 0;
  int64_t step = 0;  // kChunk: from 1; kSave: of the state, 0 for each
  Action action = Action::kFail;
  absl::Status status = absl::InternalError("a fault on purpose");
};

class ScriptedFaults : public FaultInjector {
 public:
  explicit ScriptedFaults(std::vector<ScriptedFault> faults);

  absl::Status At(const FaultSite& site, const std::function<bool()>& aborted) override ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t NextStep(int64_t done) const override;

  // Ends every kHangUntilReleased, those to come included.
  void Release() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ranks that have begun to hang so far.
  int hung() const { return hung_.load(); }

 private:
  const std::vector<ScriptedFault> faults_;
  std::atomic<int> hung_{0};
  Mutex mutex_;
  CondVar released_changed_;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_SCRIPTED_FAULTS_H_
