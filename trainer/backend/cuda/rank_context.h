// What a rank keeps from job to job: its device's streams, library handles, workspaces and images.
#ifndef LENET_TRAINER_BACKEND_CUDA_RANK_CONTEXT_H_
#define LENET_TRAINER_BACKEND_CUDA_RANK_CONTEXT_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "trainer/backend/cuda/handles.h"
#include "trainer/backend/cuda/kernels.h"
#include "trainer/comm/nccl.h"
#include "trainer/comm/peer_memory.h"
#include "trainer/data/dataset.h"

namespace lenet::cuda {

// Choices that change speed alone, or bits without changing accuracy; for measuring one against the other.
struct Tuning {
  bool fused = true;               // what EngineKind::kAuto may take
  bool direct_convolution = true;  // else every convolution goes to cuDNN
  bool two_streams = true;         // weight gradients beside the chain of the others
  bool peer_sums = true;           // several ranks' sums inside kernels where that is possible, else through NCCL
  int steps_per_graph = 16;
};

// A data set in device memory, as bytes.
class ResidentDataset {
 public:
  // Uploads `dataset` unless it is there already; it is known again by its object, for as long as that lives. Queues on
  // `stream`; the host's data must stay until that is done.
  absl::Status Hold(const Place& place, const std::shared_ptr<const Dataset>& dataset, cudaStream_t stream);

  const ImageSet& train() const { return train_.set; }
  const ImageSet& test() const { return test_.set; }

 private:
  struct ResidentSplit {
    DeviceArray<uint8_t> images;
    DeviceArray<uint8_t> labels;
    ImageSet set;

    absl::Status Upload(const Place& place, const Split& split, cudaStream_t stream);
  };

  std::weak_ptr<const Dataset> held_;
  ResidentSplit train_;
  ResidentSplit test_;
};

// Compute capability, major * 10 + minor, from which on there is TF32.
inline constexpr int kTf32Capability = 80;

struct RankContext {
  // Makes everything but the communicator. `ordinal` as CUDA counts the devices. Makes the device current.
  static absl::StatusOr<std::unique_ptr<RankContext>> Create(const Place& place, int ordinal, const Tuning& tuning);

  // The number of the first of so many sums over the ranks, the same on all of them. Numbers grow, and come round after
  // 2^32, without 0, which is in inboxes that nobody has written to, and without two odd or even ones in a row.
  uint32_t TakePeerSums(int count);

  // At least this much for cuDNN; what it held before may move.
  absl::Status ReserveCudnnWorkspace(size_t bytes);

  Place place;
  int ordinal = 0;
  bool has_tf32 = false;
  Tuning tuning;
  Stream main;
  Stream side;        // null without two_streams
  CudnnHandle cudnn;  // on main
  BlasHandle blas;
  DeviceArray<std::byte> blas_workspace;
  DeviceArray<std::byte> side_blas_workspace;
  DeviceArray<std::byte> cudnn_workspace;
  ResidentDataset dataset;
  std::unique_ptr<NcclCommunicator> communicator;  // null for a group of one
  Peers peers;                                     // this rank alone where sums go through the communicator

 private:
  uint32_t next_peer_sum_ = 1;
};

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_RANK_CONTEXT_H_
