#include "trainer/backend/cpu/cpu_engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/backend/cpu/flush_denormals.h"
#include "trainer/backend/engine_checks.h"
#include "trainer/base/status.h"

namespace lenet::cpu {
namespace {

// In double and in a fixed order; several sums at once hide the latency of an addition.
float Norm(std::span<const float> values) {
  constexpr size_t kSums = 8;
  static_assert(Net::kAlignment % kSums == 0, "a flat buffer has no remainder");
  std::array<double, kSums> sums = {};
  for (size_t i = 0; i < values.size(); i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += double{values[i + j]} * values[i + j];
  }
  return static_cast<float>(std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CpuEngine::Create(LocalGroup* group, int rank, const Kernels& kernels,
                                                          const EngineOptions& options) {
  LENET_RETURN_IF_ERROR(CheckEngineOptions(options));
  LENET_RETURN_IF_ERROR(NoFusedEngine(options.engine, "cpu"));
  if (options.precision != Precision::kFp32) {
    return BadValue("precision", "tf32", "fp32: the CPU computes in nothing else");
  }
  std::unique_ptr<CpuEngine> engine(new CpuEngine(group, rank, kernels, options));
  LENET_ASSIGN_OR_RETURN(engine->network_, Network::Create(*options.net, kernels));
  const int64_t flat = options.net->flat_size();
  const int64_t state = StateSlots(options.optimizer) * flat;
  if (!engine->parameters_.Allocate(flat) || !engine->gradient_.Allocate(flat) || !engine->state_.Allocate(state)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", 2 * flat + state, " floats of parameters, gradient and optimiser state"));
  }
  for (Chunk& chunk : engine->chunks_) {
    chunk.indices.reserve(static_cast<size_t>(kMaxChunkSteps) * options.batch_size);
  }
  return engine;
}

CpuEngine::CpuEngine(LocalGroup* group, int rank, const Kernels& kernels, const EngineOptions& options)
    : group_(group),
      communicator_(group->communicator(rank)),
      options_(options),
      name_(absl::StrCat("simd-", kernels.instruction_set)) {}

absl::Status CpuEngine::WriteParameters(std::span<const float> flat) {
  LENET_RETURN_IF_ERROR(CheckSize("parameters", flat.size(), parameters_.span().size()));
  LENET_RETURN_IF_ERROR(CheckReady());
  std::copy(flat.begin(), flat.end(), parameters_.data());
  return absl::OkStatus();
}

absl::Status CpuEngine::ReadParameters(std::span<float> flat) {
  LENET_RETURN_IF_ERROR(CheckSize("parameters", flat.size(), parameters_.span().size()));
  LENET_RETURN_IF_ERROR(CheckReady());
  std::copy_n(parameters_.data(), flat.size(), flat.data());
  return absl::OkStatus();
}

absl::Status CpuEngine::WriteState(std::span<const float> state) {
  LENET_RETURN_IF_ERROR(CheckSize("state", state.size(), state_.span().size()));
  LENET_RETURN_IF_ERROR(CheckReady());
  std::copy(state.begin(), state.end(), state_.data());
  return absl::OkStatus();
}

absl::Status CpuEngine::ReadState(std::span<float> state) {
  LENET_RETURN_IF_ERROR(CheckSize("state", state.size(), state_.span().size()));
  LENET_RETURN_IF_ERROR(CheckReady());
  std::copy_n(state_.data(), state.size(), state.data());
  return absl::OkStatus();
}

absl::Status CpuEngine::Broadcast() {
  LENET_RETURN_IF_ERROR(CheckReady());
  LENET_RETURN_IF_ERROR(
      communicator_->Broadcast(parameters_.data(), static_cast<int64_t>(parameters_.span().size()), nullptr));
  return communicator_->Broadcast(state_.data(), static_cast<int64_t>(state_.span().size()), nullptr);
}

absl::Status CpuEngine::AllReduceSum(std::span<float> values) {
  LENET_RETURN_IF_ERROR(CheckReady());
  LENET_RETURN_IF_ERROR(CheckAllReduce(values, options_.net->flat_size()));
  return communicator_->AllReduceSum(values.data(), static_cast<int64_t>(values.size()), nullptr);
}

absl::Status CpuEngine::WarmUp() {
  LENET_RETURN_IF_ERROR(CheckReady());
  // The gradient is scratch, and all else that a step writes is overwritten by the next one.
  std::vector<uint32_t>& indices = chunks_[0].indices;
  indices.resize(options_.batch_size);
  std::iota(indices.begin(), indices.end(), 0u);
  const FlushDenormals flush;
  LENET_RETURN_IF_ERROR(ComputeGradient(indices, group_->size()).status());
  return communicator_->AllReduceSum(gradient_.data(), options_.net->flat_size(), nullptr);
}

absl::Status CpuEngine::Enqueue(const StepChunk& chunk) {
  LENET_RETURN_IF_ERROR(CheckChunk(chunk, options_.dataset->train, options_.batch_size));
  LENET_RETURN_IF_ERROR(CheckRoom(enqueued_ - waited_));
  const size_t steps = chunk.learning_rates.size();
  Chunk& slot = chunks_[enqueued_ % kMaxChunksInFlight];
  slot.first_step = chunk.first_step;
  slot.steps = static_cast<int>(steps);
  slot.indices.assign(chunk.indices.begin(), chunk.indices.end());
  std::copy(chunk.learning_rates.begin(), chunk.learning_rates.end(), slot.learning_rates.begin());
  ++enqueued_;
  return absl::OkStatus();
}

absl::Status CpuEngine::Wait(std::span<float> losses) {
  LENET_RETURN_IF_ERROR(CheckQueued(enqueued_ - waited_));
  Chunk& chunk = chunks_[waited_ % kMaxChunksInFlight];
  LENET_RETURN_IF_ERROR(CheckSize("losses", losses.size(), chunk.steps));
  LENET_RETURN_IF_ERROR(RunChunk(&chunk));
  ++waited_;
  std::copy_n(chunk.losses.begin(), chunk.steps, losses.begin());
  return absl::OkStatus();
}

absl::Status CpuEngine::RunChunk(Chunk* chunk) {
  const FlushDenormals flush;
  const int batch = options_.batch_size;
  for (int step = 0; step < chunk->steps; ++step) {
    const std::span<const uint32_t> indices(chunk->indices.data() + static_cast<int64_t>(step) * batch, batch);
    LENET_ASSIGN_OR_RETURN(const double loss_sum, ComputeGradient(indices, group_->size()));
    LENET_RETURN_IF_ERROR(communicator_->AllReduceSum(gradient_.data(), options_.net->flat_size(), nullptr));
    const float clip = options_.clip_norm > 0 ? ClipScale(options_.clip_norm, Norm(gradient_.span())) : 1.0f;
    const UpdateScalars scalars = ScalarsAt(options_.optimizer, chunk->first_step + step, chunk->learning_rates[step]);
    ApplyUpdate(options_.optimizer, scalars, clip, parameters_.span(), gradient_.span(), state_.span());
    chunk->losses[step] = static_cast<float>(loss_sum / batch);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> CpuEngine::ComputeGradient(std::span<const uint32_t> indices, int divisor) {
  const float scale = static_cast<float>(1 / (static_cast<double>(indices.size()) * divisor));
  const size_t pass_size = network_->pass_size();
  double loss_sum = 0;
  for (size_t begin = 0; begin < indices.size(); begin += pass_size) {
    LENET_RETURN_IF_ERROR(CheckAborted());
    network_->Forward(options_.dataset->train, indices.subspan(begin, std::min(pass_size, indices.size() - begin)),
                      parameters_.data());
    for (const double loss : network_->losses()) loss_sum += loss;
    network_->Backward(scale, parameters_.data(), /*accumulate=*/begin > 0, gradient_.data());
  }
  return loss_sum;
}

absl::StatusOr<EvalResult> CpuEngine::Evaluate(SplitKind kind, int64_t begin, int64_t end) {
  const Split& split = kind == SplitKind::kTrain ? options_.dataset->train : options_.dataset->test;
  LENET_RETURN_IF_ERROR(CheckEvaluation(split, begin, end));
  LENET_RETURN_IF_ERROR(CheckReady());
  const FlushDenormals flush;
  std::vector<uint32_t> indices(network_->pass_size());
  EvalResult result;
  while (begin < end) {
    LENET_RETURN_IF_ERROR(CheckAborted());
    const int64_t count = std::min<int64_t>(end - begin, network_->pass_size());
    std::iota(indices.begin(), indices.begin() + count, static_cast<uint32_t>(begin));
    network_->Forward(split, std::span(indices).first(count), parameters_.data());
    result.count += count;
    result.correct += network_->correct();
    for (const double loss : network_->losses()) result.loss_sum += loss;
    begin += count;
  }
  return result;
}

absl::Status CpuEngine::Gradient(std::span<const uint32_t> indices, std::span<float> logits, std::span<float> losses,
                                 std::span<float> gradient) {
  const size_t batch = options_.batch_size;
  const size_t classes = options_.net->spec().classes;
  LENET_RETURN_IF_ERROR(
      CheckGradient(*options_.net, options_.dataset->train, options_.batch_size, indices, logits, losses, gradient));
  LENET_RETURN_IF_ERROR(CheckReady());
  const FlushDenormals flush;
  const float scale = static_cast<float>(1 / static_cast<double>(batch));
  const size_t pass_size = network_->pass_size();
  for (size_t begin = 0; begin < batch; begin += pass_size) {
    LENET_RETURN_IF_ERROR(CheckAborted());
    const size_t count = std::min(pass_size, batch - begin);
    network_->Forward(options_.dataset->train, indices.subspan(begin, count), parameters_.data());
    if (!logits.empty()) network_->CopyLogits(logits.subspan(begin * classes, count * classes));
    if (!losses.empty()) std::ranges::copy(network_->losses(), losses.begin() + begin);
    if (!gradient.empty()) network_->Backward(scale, parameters_.data(), /*accumulate=*/begin > 0, gradient_.data());
  }
  std::copy_n(gradient_.data(), gradient.size(), gradient.data());
  return absl::OkStatus();
}

absl::Status CpuEngine::CheckReady() {
  LENET_RETURN_IF_ERROR(CheckAborted());
  return CheckIdle(enqueued_ - waited_);
}

absl::Status CpuEngine::CheckAborted() { return group_->aborted() ? group_->Barrier() : absl::OkStatus(); }

}  // namespace lenet::cpu
