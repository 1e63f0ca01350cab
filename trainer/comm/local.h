// Collectives among threads through memory that they share.
#ifndef LENET_TRAINER_COMM_LOCAL_H_
#define LENET_TRAINER_COMM_LOCAL_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/comm/communicator.h"

namespace lenet {

// The ends of all ranks of one local communicator. Threads that wait for a slower rank spin briefly when each can have
// a core to itself, then block, so ranks may outnumber cores. The steady state allocates nothing.
class LocalGroup {
 public:
  // size >= 1.
  explicit LocalGroup(int size);
  ~LocalGroup();

  int size() const;
  // Owned by the group.
  Communicator* communicator(int rank);

  // Safe from any thread, more than once; the first reason is kept in the ABORTED statuses. Blocked ranks wake.
  void Abort(absl::string_view reason);
  bool aborted() const;

  // A barrier on the host over all ranks. ABORTED after an abort.
  absl::Status Barrier();

 private:
  class State;
  class End;
  std::unique_ptr<State> state_;
};

}  // namespace lenet

#endif  // LENET_TRAINER_COMM_LOCAL_H_
