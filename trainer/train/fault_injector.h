// Faults on purpose, for tests alone.
#ifndef LENET_TRAINER_TRAIN_FAULT_INJECTOR_H_
#define LENET_TRAINER_TRAIN_FAULT_INJECTOR_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace lenet {

enum class FaultPoint {
  kEngine,  // the rank is about to make its engine
  kChunk,   // it is about to queue steps; all that it queued before are finished if NextStep gave the first of them
  kSave,    // rank 0 is about to save the state after a step
};

struct FaultSite {
  FaultPoint point = FaultPoint::kEngine;
  int rank = 0;
  int64_t step = 0;  // kChunk: the first to be queued; kSave: the last done. From 1
  int count = 0;     // kChunk: steps to be queued
};

// Asked by the rank's own thread, so calls come from several threads at once.
class FaultInjector {
 public:
  virtual ~FaultInjector() = default;

  // What happens at `site`: nothing (OK), an error of the rank (of the save, at kSave), an exception, or time passing,
  // at the most until `aborted` gives true.
  virtual absl::Status At(const FaultSite& site, const std::function<bool()>& aborted) = 0;

  // The lowest step, from 1, above `done` with which a chunk must begin; kMaxSteps + 1 or more if there is none. Always
  // the same answer.
  virtual int64_t NextStep(int64_t done) const = 0;
};

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_FAULT_INJECTOR_H_
