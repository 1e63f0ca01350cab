// Finds ranks that stand still.
#ifndef LENET_TRAINER_TRAIN_WATCHDOG_H_
#define LENET_TRAINER_TRAIN_WATCHDOG_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "trainer/train/trainer.h"

namespace lenet {

// Of a rank, in the order in which it comes through them; from kCheckpoint and kEvaluation it may go back to kStep.
enum class Phase { kInit, kBroadcast, kWarmUp, kStep, kEvaluation, kCheckpoint, kEnded };
absl::string_view PhaseName(Phase phase);  // as in RankFailure

struct RankPosition {
  Phase phase = Phase::kInit;
  int64_t queued = 0;    // steps of the job
  int64_t finished = 0;  // and reported
  bool operator==(const RankPosition&) const = default;
};

// Ranks wait for each other in the phases broadcast, warm-up and step; one that takes its time in another phase makes
// the others wait, which is no fault.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Watchdog(std::chrono::milliseconds timeout);

  // Where the ranks are now. If none of them has moved for `timeout` in those phases, the failure: DEADLINE_EXCEEDED of
  // the rank that is furthest behind, the lowest of equals.
  std::optional<RankFailure> Look(const std::vector<RankPosition>& ranks, Clock::time_point now);

 private:
  const std::chrono::milliseconds timeout_;
  std::vector<RankPosition> last_;
  Clock::time_point moved_;
};

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_WATCHDOG_H_
