// What a kind of device offers to the trainer. The CPU and CUDA backends are plug-ins behind these interfaces; nothing
// above them includes a device library.
//
//   Backend    a plug-in: its devices. One a process.
//   RankGroup  rank r on the r-th of a list of devices, with their communicator, handles and streams; made once and
//              used by one job after the other.
//   Engine     one rank's network, optimiser and data for one job.
#ifndef LENET_TRAINER_BACKEND_BACKEND_H_
#define LENET_TRAINER_BACKEND_BACKEND_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/base/log.h"
#include "trainer/data/dataset.h"
#include "trainer/nn/net.h"
#include "trainer/optim/optimizer.h"

namespace lenet {

struct DeviceInfo {
  int id = 0;                // 0 .. devices - 1
  std::string name;          // "NVIDIA H200", or the processor's model
  std::string kind;          // what results depend on bit for bit: "cuda sm_90 x132", "cpu avx512"
  int64_t memory_bytes = 0;  // of the device; 0 on the CPU
};

// A device as it is now.
struct DeviceStatus {
  int64_t free_bytes = 0;    // of its memory; 0 on the CPU
  std::vector<int> reaches;  // ids of the other devices whose memory it can use
};

enum class Precision {
  kFp32,  // IEEE float32 products and sums
  kTf32,  // CUDA: products of 10-bit mantissas on the matrix units
};

enum class EngineKind {
  kAuto,     // fused where the backend can and is known to gain by it, else layered
  kLayered,  // a kernel or more for each layer; every net
  kFused,    // a step in a few kernels made for one family of nets
};

struct EngineOptions {
  const Net* net = nullptr;                // outlives the engine
  std::shared_ptr<const Dataset> dataset;  // shape and classes as the net's input
  int batch_size = 0;                      // of this rank; 1 .. dataset->train.count
  OptimizerSpec optimizer;
  float clip_norm = 0;  // 2-norm of the gradient over the global batch; 0: off
  Precision precision = Precision::kFp32;
  EngineKind engine = EngineKind::kAuto;
};

// A run of consecutive training steps of one rank.
struct StepChunk {
  int64_t first_step = 0;                 // counted from 0 over the whole job
  std::span<const uint32_t> indices;      // [steps, batch_size], into the training set
  std::span<const float> learning_rates;  // [steps], 1 <= steps <= Engine::kMaxChunkSteps
};

struct EvalResult {
  int64_t count = 0;    // images
  int64_t correct = 0;  // whose largest logit (the first of equals) is the label's
  double loss_sum = 0;  // of the per-image losses, added in the order of the images
};

enum class SplitKind { kTrain, kTest };

// All calls come from the rank's one thread. The buffers are those of Net: [flat_size] floats, gaps zero. "Collective"
// marks calls that every rank must make, in the same order. While chunks are in flight, all calls but Enqueue and Wait
// fail with FAILED_PRECONDITION. An error ends the engine's use, except that one and INVALID_ARGUMENT.
// With the same group size, inputs and device kind, all results have the same bits.
class Engine {
 public:
  static constexpr int kMaxChunkSteps = 256;
  static constexpr int kMaxChunksInFlight = 2;

  virtual ~Engine() = default;

  // How this engine trains, for the job's record: "simd-avx512", "cuda-fused".
  virtual absl::string_view name() const = 0;

  virtual absl::Status WriteParameters(std::span<const float> flat) = 0;
  virtual absl::Status ReadParameters(std::span<float> flat) = 0;
  // [StateSlots(optimizer), flat_size]; zeros at first.
  virtual absl::Status WriteState(std::span<const float> state) = 0;
  virtual absl::Status ReadState(std::span<float> state) = 0;

  // Collective. Rank 0's parameters and state to all ranks.
  virtual absl::Status Broadcast() = 0;

  // Collective. Values become their sums over the ranks, by the communicator, as a test of it. At most flat_size.
  virtual absl::Status AllReduceSum(std::span<float> values) = 0;

  // Collective. Loads modules, picks algorithms, runs one step's work on scratch values, with what the sum over the
  // ranks needs to be set up, and captures graphs, so that nothing allocates or loads once steps run. Parameters and
  // state are as before it.
  virtual absl::Status WarmUp() = 0;

  // Collective. Queues the steps: for each, gather, forward, backward, all-reduce of the gradient, clip, update. The
  // loss of a sample is softmax cross-entropy; the gradient applied is its mean over the global batch (batch_size *
  // ranks). Copies the chunk before it returns. FAILED_PRECONDITION
  // if kMaxChunksInFlight chunks are in flight, that is queued and not yet waited for.
  virtual absl::Status Enqueue(const StepChunk& chunk) = 0;

  // Waits for the oldest queued chunk and gives each step's loss, the mean over this rank's batch, before its update.
  // losses: [steps of that chunk]. ABORTED if the group was aborted meanwhile.
  virtual absl::Status Wait(std::span<float> losses) = 0;

  // Images begin .. end - 1 of a split, each once.
  virtual absl::StatusOr<EvalResult> Evaluate(SplitKind split, int64_t begin, int64_t end) = 0;

  // This rank alone, without all-reduce or update. indices: [batch_size] into the training set. Any output may be
  // empty: logits [batch_size, classes], losses [batch_size], gradient [flat_size] of the mean loss over this batch.
  virtual absl::Status Gradient(std::span<const uint32_t> indices, std::span<float> logits, std::span<float> losses,
                                std::span<float> gradient) = 0;
};

class RankGroup {
 public:
  virtual ~RankGroup() = default;

  virtual std::span<const int> device_ids() const = 0;  // device of each rank
  int size() const { return static_cast<int>(device_ids().size()); }

  // On the rank's own thread, which it then stays on until the engine is destroyed. The group outlives it. One engine a
  // rank at a time.
  virtual absl::StatusOr<std::unique_ptr<Engine>> NewEngine(int rank, const EngineOptions& options) = 0;

  // Safe from any thread, more than once. Every pending and later collective or wait of each rank fails with ABORTED
  // and `reason`; a communicator is torn down by its own rank's thread. The group cannot be used again.
  virtual void Abort(absl::string_view reason) = 0;
  virtual bool aborted() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual absl::string_view name() const = 0;  // "cpu", "cuda"
  virtual std::span<const DeviceInfo> devices() const = 0;
  // Libraries and their versions as found at run time: {"cudnn", "9.14.0"}.
  virtual std::vector<std::pair<std::string, std::string>> versions() const = 0;
  // Those that it was built with, by the same names.
  virtual std::vector<std::pair<std::string, std::string>> built_with() const = 0;
  // INVALID_ARGUMENT for an id that does not exist; else the error of the device.
  virtual absl::StatusOr<DeviceStatus> Inspect(int id) const = 0;
  virtual bool supports(Precision precision) const = 0;
  // INVALID_ARGUMENT with the reason if its engines of that kind do not serve this net at this precision.
  virtual absl::Status CheckEngine(EngineKind engine, const Net& net, Precision precision) const = 0;
  // Whether more ranks than devices may be asked for: then an id may stand in a group more than once.
  virtual bool oversubscribable() const = 0;

  // Whether a device that fails does so until the process ends, as with CUDA, where an error may spoil the context.
  virtual bool failures_last() const = 0;

  // INVALID_ARGUMENT for an id that does not exist or, unless oversubscribable, stands twice. Safe from any thread.
  virtual absl::StatusOr<std::unique_ptr<RankGroup>> NewGroup(std::span<const int> device_ids) = 0;
};

}  // namespace lenet

#endif  // LENET_TRAINER_BACKEND_BACKEND_H_
