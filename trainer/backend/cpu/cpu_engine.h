// One rank's training on the CPU: the calling thread does all the work, on one core.
#ifndef LENET_TRAINER_BACKEND_CPU_CPU_ENGINE_H_
#define LENET_TRAINER_BACKEND_CPU_CPU_ENGINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/cpu/aligned_floats.h"
#include "trainer/backend/cpu/network.h"
#include "trainer/comm/local.h"

namespace lenet::cpu {

// Chunks run when they are waited for.
class CpuEngine final : public Engine {
 public:
  // `group` and `options.net` outlive the engine. INVALID_ARGUMENT for options that do not fit together,
  // RESOURCE_EXHAUSTED if there is not enough memory.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(LocalGroup* group, int rank, const Kernels& kernels,
                                                        const EngineOptions& options);

  absl::string_view name() const override { return name_; }
  absl::Status WriteParameters(std::span<const float> flat) override;
  absl::Status ReadParameters(std::span<float> flat) override;
  absl::Status WriteState(std::span<const float> state) override;
  absl::Status ReadState(std::span<float> state) override;
  absl::Status Broadcast() override;
  absl::Status AllReduceSum(std::span<float> values) override;
  absl::Status WarmUp() override;
  absl::Status Enqueue(const StepChunk& chunk) override;
  absl::Status Wait(std::span<float> losses) override;
  absl::StatusOr<EvalResult> Evaluate(SplitKind split, int64_t begin, int64_t end) override;
  absl::Status Gradient(std::span<const uint32_t> indices, std::span<float> logits, std::span<float> losses,
                        std::span<float> gradient) override;

 private:
  struct Chunk {
    int64_t first_step = 0;
    int steps = 0;
    std::vector<uint32_t> indices;
    std::array<float, kMaxChunkSteps> learning_rates = {};
    std::array<float, kMaxChunkSteps> losses = {};
  };

  CpuEngine(LocalGroup* group, int rank, const Kernels& kernels, const EngineOptions& options);

  // That the group is not aborted and no chunk is in flight.
  absl::Status CheckReady();
  absl::Status RunChunk(Chunk* chunk);
  // The gradient of the mean loss of these images over `divisor` times their count, into gradient_; gives the sum of
  // the losses. Fails only after an abort.
  absl::StatusOr<double> ComputeGradient(std::span<const uint32_t> indices, int divisor);
  absl::Status CheckAborted();

  LocalGroup* const group_;
  Communicator* const communicator_;
  const EngineOptions options_;
  const std::string name_;
  std::unique_ptr<Network> network_;
  AlignedFloats parameters_;
  AlignedFloats gradient_;
  AlignedFloats state_;
  std::array<Chunk, kMaxChunksInFlight> chunks_;
  int64_t enqueued_ = 0;  // chunks; the next goes to chunks_[enqueued_ % kMaxChunksInFlight]
  int64_t waited_ = 0;
};

}  // namespace lenet::cpu

#endif  // LENET_TRAINER_BACKEND_CPU_CPU_ENGINE_H_
