// A request to end a training early, made from any thread.
#ifndef LENET_TRAINER_TRAIN_STOP_REQUEST_H_
#define LENET_TRAINER_TRAIN_STOP_REQUEST_H_

#include <atomic>

namespace lenet {

enum class StopMode {
  kNone,
  kPause,       // as kCheckpoint; the training goes on later
  kCheckpoint,  // finish the steps under way, all ranks at the same step, save the state
  kAbort,       // now, and save nothing
};

// Rises, until it is reset: a later, weaker request changes nothing.
class StopRequest {
 public:
  void Request(StopMode mode) {
    StopMode held = mode_.load(std::memory_order_relaxed);
    while (held < mode && !mode_.compare_exchange_weak(held, mode)) {
    }
  }
  // To serve another training. Only while none listens.
  void Reset() { mode_.store(StopMode::kNone, std::memory_order_release); }
  StopMode mode() const { return mode_.load(std::memory_order_acquire); }

 private:
  std::atomic<StopMode> mode_{StopMode::kNone};
};

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_STOP_REQUEST_H_
