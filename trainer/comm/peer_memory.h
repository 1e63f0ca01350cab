// Memory of GPUs of one host in which they leave each other values, for sums over the ranks inside a kernel. Built into
// the CUDA plug-in alone.
#ifndef LENET_TRAINER_COMM_PEER_MEMORY_H_
#define LENET_TRAINER_COMM_PEER_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/cuda/handles.h"

namespace lenet::cuda {

inline constexpr int kMaxPeers = 8;
inline constexpr int64_t kMaxPeerValues = int64_t{1} << 16;

// What a kernel of one rank needs for a sum over the ranks; see peer_sum.cuh. The default is that of a rank alone.
struct Peers {
  int ranks = 1;
  int rank = 0;
  uint64_t* inboxes[kMaxPeers] = {};  // of each rank, on its device: [2, ranks, kMaxPeerValues]
  const int32_t* aborted = nullptr;   // in the host's memory: not zero once no kernel shall wait any more
};

// A group's inboxes. They are mapped by CUDA, not by NCCL's windows: the structs of NCCL's device interface differ even
// between patch releases, so that one binary would serve one of them.
class PeerMemory {
 public:
  // Why sums of these devices cannot go this way; empty if they can.
  static absl::StatusOr<std::string> WhyNot(std::span<const int> devices);

  // Ranks 0, 1, … on these CUDA devices, all different, for which WhyNot is empty. Leaves another device current than
  // before.
  static absl::StatusOr<std::unique_ptr<PeerMemory>> Create(std::span<const int> devices,
                                                            std::span<const Place> places);

  // From any thread: sums that wait for another rank end with any value, and so do later ones.
  void Abort();

  Peers peers(int rank) const;

 private:
  struct Inbox {
    MemoryPool pool;
    DeviceArray<uint64_t> values;  // in the pool
  };

  std::vector<Inbox> inboxes_;
  PinnedArray<int32_t> aborted_;
};

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_COMM_PEER_MEMORY_H_
