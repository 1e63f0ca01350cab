// One rank's training on a GPU: the whole step is captured in a CUDA graph and replayed.
#ifndef LENET_TRAINER_BACKEND_CUDA_ENGINE_H_
#define LENET_TRAINER_BACKEND_CUDA_ENGINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/cuda/fused_network.h"
#include "trainer/backend/cuda/network.h"
#include "trainer/backend/cuda/rank_group.h"

namespace lenet::cuda {

// No call blocks in the driver on work that waits for another rank: each wait polls, and gives up when the group is
// aborted, when this rank's thread tears its communicator down. The stages hold pointers into the buffers here, so an
// engine does not move.
class CudaEngine : public Engine {
 public:
  // On the rank's thread. `group` and `rank` outlive it.
  static absl::StatusOr<std::unique_ptr<CudaEngine>> Create(CudaRankGroup* group, RankContext* rank,
                                                            const EngineOptions& options);
  ~CudaEngine() override;

  absl::string_view name() const override { return name_; }
  absl::Status WriteParameters(std::span<const float> flat) override { return Keep(DoWriteParameters(flat)); }
  absl::Status ReadParameters(std::span<float> flat) override { return Keep(DoReadParameters(flat)); }
  absl::Status WriteState(std::span<const float> state) override { return Keep(DoWriteState(state)); }
  absl::Status ReadState(std::span<float> state) override { return Keep(DoReadState(state)); }
  absl::Status Broadcast() override { return Keep(DoBroadcast()); }
  absl::Status AllReduceSum(std::span<float> values) override { return Keep(DoAllReduceSum(values)); }
  absl::Status WarmUp() override { return Keep(DoWarmUp()); }
  absl::Status Enqueue(const StepChunk& chunk) override { return Keep(DoEnqueue(chunk)); }
  absl::Status Wait(std::span<float> losses) override { return Keep(DoWait(losses)); }
  absl::StatusOr<EvalResult> Evaluate(SplitKind split, int64_t begin, int64_t end) override {
    absl::StatusOr<EvalResult> result = DoEvaluate(split, begin, end);
    Keep(result.status()).IgnoreError();
    return result;
  }
  absl::Status Gradient(std::span<const uint32_t> indices, std::span<float> logits, std::span<float> losses,
                        std::span<float> gradient) override {
    return Keep(DoGradient(indices, logits, losses, gradient));
  }

 private:
  // A launch is one graph, or one step. More are not queued ahead, because a full queue would block the thread.
  static constexpr int kMaxLaunchesInFlight = 16;

  // Host memory of a chunk that is queued or free.
  struct Slot {
    PinnedArray<std::byte> upload;  // Chunk and the indices behind it
    PinnedArray<float> losses;      // [kMaxChunkSteps]
    Event done;
    int steps = 0;

    Chunk* chunk() const { return reinterpret_cast<Chunk*>(upload.get()); }
    uint32_t* indices() const { return reinterpret_cast<uint32_t*>(chunk() + 1); }
  };

  CudaEngine(CudaRankGroup* group, RankContext* rank, const EngineOptions& options);

  absl::Status DoWriteParameters(std::span<const float> flat);
  absl::Status DoReadParameters(std::span<float> flat);
  absl::Status DoWriteState(std::span<const float> values);
  absl::Status DoReadState(std::span<float> values);
  absl::Status DoBroadcast();
  absl::Status DoAllReduceSum(std::span<float> values);
  absl::Status DoWarmUp();
  absl::Status DoEnqueue(const StepChunk& chunk);
  absl::Status DoWait(std::span<float> losses);
  absl::StatusOr<EvalResult> DoEvaluate(SplitKind split, int64_t begin, int64_t end);
  absl::Status DoGradient(std::span<const uint32_t> indices, std::span<float> logits, std::span<float> losses,
                          std::span<float> gradient);

  // Keeps the first error that ends the engine's use.
  absl::Status Keep(absl::Status status);

  absl::Status Init();
  // Whether sums over the ranks are made by the update's kernels; else through the communicator.
  bool peer_sums() const { return rank_->peers.ranks > 1 && flat_ <= kMaxPeerValues; }
  // The norm comes with the gradient; that of several ranks' sum does not.
  bool fused_norm() const { return fused_ != nullptr && clip_norm_ > 0 && rank_->communicator == nullptr; }
  int64_t in_flight() const { return enqueued_ - waited_; }

  absl::Status InitLayers(int evaluation_batch);

  // The parts of a step; all only queue.
  absl::Status ForwardBackward(float loss_scale, bool by_step);
  absl::Status StepGradient(float loss_scale);
  absl::Status AllReduce();
  absl::Status Update(const Peers& peers);
  absl::Status Step();
  absl::Status EvaluateBatch(const ImageSet& set, int64_t begin, int64_t end);

  absl::Status WarmUpKernels();
  absl::Status Capture(int steps, GraphExec& made);
  // Without a graph, before WarmUp, one step is queued call by call.
  absl::Status Launch(const GraphExec& graph);

  // ABORTED, and the communicator torn down, if the group is aborted.
  absl::Status CheckGroup();
  // That, and that no chunk is in flight.
  absl::Status CheckReady();
  void TearDown();
  // Until all that is queued on the main stream now is done.
  absl::Status Drain();
  absl::Status Await(cudaEvent_t event);
  absl::Status CopyIn(float* device, std::span<const float> values);
  absl::Status CopyOut(std::span<float> values, const float* device);

  cudaStream_t stream() const { return rank_->main.get(); }
  float* parameters() const { return parameters_and_state_.get(); }
  float* state() const { return parameters_and_state_.get() + flat_; }
  Chunk* chunk() const { return reinterpret_cast<Chunk*>(chunk_.get()); }
  uint32_t* chunk_indices() const { return reinterpret_cast<uint32_t*>(chunk() + 1); }

  CudaRankGroup* const group_;
  RankContext* const rank_;
  const Place place_;
  const Net& net_;
  const std::shared_ptr<const Dataset> dataset_;
  const int batch_;
  const OptimizerSpec optimizer_;
  const float clip_norm_;
  const Precision precision_;
  const EngineKind engine_;
  const int64_t flat_;
  const int slots_;  // of optimiser state

  DeviceArray<float> parameters_and_state_;  // [1 + slots_, flat_]
  DeviceArray<float> gradients_;
  DeviceArray<double> norm_partials_;
  DeviceArray<std::byte> chunk_;  // Chunk and the indices behind it; the next chunk's copy waits for this one's steps
  DeviceArray<float> step_losses_;
  DeviceArray<uint8_t> labels_;
  DeviceArray<float> losses_;  // of one batch, for training or evaluation
  DeviceArray<uint8_t> correct_;
  DeviceArray<Reduction> reductions_;  // of the network's gradients, then of the step's loss
  int reduction_count_ = 0;
  int max_reduction_ = 0;
  DeviceArray<float> fused_logits_;      // [batch, classes]
  std::unique_ptr<FusedNetwork> fused_;  // or null, and then the next two
  std::unique_ptr<Network> train_;
  std::unique_ptr<Network> evaluation_;

  PinnedArray<float> staging_;  // [max(1 + slots_, …) * flat_], for parameters in and out
  PinnedArray<float> evaluation_losses_;
  PinnedArray<uint8_t> evaluation_correct_;
  std::array<Slot, kMaxChunksInFlight> chunks_;
  int64_t enqueued_ = 0;  // chunks, ever
  int64_t waited_ = 0;

  GraphExec step_graph_;
  GraphExec steps_graph_;  // of rank_->tuning.steps_per_graph; null if that is 1
  std::array<Event, kMaxLaunchesInFlight> launched_;
  int64_t launches_ = 0;
  Event drained_;
  std::string name_;
  absl::Status error_;
};

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_ENGINE_H_
