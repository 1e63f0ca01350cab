// Collectives among the GPUs of one host through NCCL. Built into the CUDA plug-in alone.
#ifndef LENET_TRAINER_COMM_NCCL_H_
#define LENET_TRAINER_COMM_NCCL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/cuda/handles.h"
#include "trainer/comm/communicator.h"

namespace lenet::cuda {

// Sets what this program needs of NCCL's environment where the user has not set it. To be called before other threads
// run, since it changes the environment:
//   NCCL_NVLS_ENABLE=0      no NVLink multicast: its sums are added up in the switch, and it takes a resource of the
//                           whole host
//   NCCL_RUNTIME_CONNECT=0  peers are connected when the communicator is made, so that no later call waits for a peer
//   NCCL_GRAPH_REGISTER=0   no registration of buffers during capture, which would wait for peers too
void SetNcclDefaults();

// One rank's end. For a given number of ranks, size and topology NCCL chooses one algorithm, ring or tree, each of
// which adds an element up on one path and passes the sum on: all ranks and all runs get the same bits.
//
// After an error on any rank, Abort must be called on every end, each from its rank's thread; where no kernel can wait
// for a peer, one thread may do it for all. NCCL frees what the ends share at the last of them.
class NcclCommunicator : public Communicator {
 public:
  // The ends of ranks 0, 1, … on these CUDA devices, all different. Blocks until they are connected and have run
  // their first collectives. streams: one a device. Leaves another device current than before.
  static absl::StatusOr<std::vector<std::unique_ptr<NcclCommunicator>>> CreateAll(
      std::span<const int> devices, std::span<const Place> places, std::span<const cudaStream_t> streams);

  // Graphs that captured a collective must have been destroyed: NCCL waits for that.
  ~NcclCommunicator() override;

  // Asynchronous on `stream`; may be captured. ABORTED after Abort.
  absl::Status AllReduceSum(float* data, int64_t count, void* stream) override;
  absl::Status Broadcast(float* data, int64_t count, void* stream) override;

  // An error that NCCL met since, such as a peer that has gone.
  absl::Status AsyncError() const;

  // Makes kernels of this end that wait for a peer give up, and frees the end. NCCL waits for the destruction of graphs
  // that captured a collective, and CUDA destroys none in flight: `destroy_graphs` is called once the kernels have been
  // told. Calls after the first do nothing.
  void Abort(absl::FunctionRef<void()> destroy_graphs);

 private:
  NcclCommunicator(ncclComm_t communicator, const Place& place) : communicator_(communicator), place_(place) {}

  static absl::Status FirstCollectives(std::span<const int> devices, std::span<const Place> places,
                                       std::span<const cudaStream_t> streams,
                                       std::span<const std::unique_ptr<NcclCommunicator>> ends,
                                       std::span<DeviceArray<float>> buffers);

  ncclComm_t communicator_;  // null after Abort
  const Place place_;
};

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_COMM_NCCL_H_
