// One thread a rank, as the trainer runs them.
#ifndef LENET_TESTS_SUPPORT_RANK_THREADS_H_
#define LENET_TESTS_SUPPORT_RANK_THREADS_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace lenet {

// Runs body(rank) on a thread of its own for each rank, and gives the error of the lowest rank that has one.
inline absl::Status RunRanks(int ranks, const std::function<absl::Status(int rank)>& body) {
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(statuses.size());
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_RANK_THREADS_H_
