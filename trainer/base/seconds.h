// Durations as numbers.
#ifndef LENET_TRAINER_BASE_SECONDS_H_
#define LENET_TRAINER_BASE_SECONDS_H_

#include <chrono>

namespace lenet {

inline double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_SECONDS_H_
