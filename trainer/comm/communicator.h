// Collectives among the ranks of one process.
#ifndef LENET_TRAINER_COMM_COMMUNICATOR_H_
#define LENET_TRAINER_COMM_COMMUNICATOR_H_

#include <cstdint>

#include "absl/status/status.h"

namespace lenet {

// One rank's end. Every rank calls the same collectives in the same order, each from its own thread. After an abort
// each pending and later collective fails with ABORTED on its rank, and the communicator is of no more use.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // In place: data[i] becomes the sum over ranks, added in an order that depends on nothing but the number of ranks, so
  // that every rank and every run gets the same bits. `data` lies on the rank's device; `stream` is the device's
  // queue (cudaStream_t), null on the CPU, where the call returns with the sum.
  virtual absl::Status AllReduceSum(float* data, int64_t count, void* stream) = 0;

  // Rank 0's data to all.
  virtual absl::Status Broadcast(float* data, int64_t count, void* stream) = 0;
};

}  // namespace lenet

#endif  // LENET_TRAINER_COMM_COMMUNICATOR_H_
