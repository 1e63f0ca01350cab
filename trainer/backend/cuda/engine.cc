#include "trainer/backend/cuda/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/backend/engine_checks.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet::cuda {
namespace {

static_assert(kMaxSteps == Engine::kMaxChunkSteps);

constexpr int kEvaluationBatch = 1024;
constexpr int64_t kMaxFusedEvaluation = 1 << 14;            // images in one launch
constexpr int64_t kMaxEvaluationFloats = int64_t{1} << 26;  // in one tensor

// A wait first yields, then sleeps: steps take tens of microseconds, chunks milliseconds.
constexpr int kYields = 200;
constexpr std::chrono::microseconds kPollInterval(20);
constexpr int kPollsPerCommunicatorCheck = 64;

// How long the destructor gives queued work before it takes the group for broken.
constexpr std::chrono::seconds kDrainTimeout(20);

void Pause(int polls) {
  if (polls < kYields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kPollInterval);
  }
}

int EvaluationBatch(const Net& net, const Dataset& dataset, bool fused) {
  const int64_t images = std::max(dataset.train.count, dataset.test.count);
  if (fused) return static_cast<int>(std::min(images, kMaxFusedEvaluation));
  int64_t floats = net.spec().input.size();
  for (const Layer& layer : net.layers()) floats = std::max(floats, layer.out.size());
  return static_cast<int>(std::clamp<int64_t>(std::min(images, kMaxEvaluationFloats / floats), 1, kEvaluationBatch));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaEngine>> CudaEngine::Create(CudaRankGroup* group, RankContext* rank,
                                                               const EngineOptions& options) {
  LENET_RETURN_IF_ERROR(CheckEngineOptions(options));
  if (options.precision == Precision::kTf32 && !rank->has_tf32) {
    return BadValue("precision", "tf32", absl::StrCat("fp32: device ", rank->place.device, " has no TF32 arithmetic"));
  }
  LENET_CUDA_RETURN_IF_ERROR(rank->place, cudaSetDevice(rank->ordinal));
  std::unique_ptr<CudaEngine> engine(new CudaEngine(group, rank, options));
  LENET_RETURN_IF_ERROR(engine->Init());
  return engine;
}

CudaEngine::CudaEngine(CudaRankGroup* group, RankContext* rank, const EngineOptions& options)
    : group_(group),
      rank_(rank),
      place_(rank->place),
      net_(*options.net),
      dataset_(options.dataset),
      batch_(options.batch_size),
      optimizer_(options.optimizer),
      clip_norm_(options.clip_norm),
      precision_(options.precision),
      engine_(options.engine),
      flat_(options.net->flat_size()),
      slots_(StateSlots(options.optimizer)) {}

absl::Status CudaEngine::Init() {
  LENET_RETURN_IF_ERROR(rank_->dataset.Hold(place_, dataset_, stream()));
  bool fused = false;
  if (engine_ == EngineKind::kFused || (engine_ == EngineKind::kAuto && rank_->tuning.fused)) {
    LENET_ASSIGN_OR_RETURN(const std::string why_not, FusedNetwork::WhyNot(place_, rank_->ordinal, net_, precision_));
    fused = why_not.empty();
    if (!fused && engine_ == EngineKind::kFused) return NotFused(why_not);
  }
  name_ = fused ? "cuda-fused" : rank_->tuning.direct_convolution ? "cuda-graph" : "cuda-graph convolution=cudnn";
  if (rank_->communicator != nullptr && !peer_sums()) name_ += " sums=nccl";
  const int evaluation_batch = EvaluationBatch(net_, *dataset_, fused);
  const int largest_batch = std::max(batch_, evaluation_batch);
  const int classes = net_.spec().classes;

  LENET_RETURN_IF_ERROR(parameters_and_state_.Allocate(place_, (1 + slots_) * flat_));
  LENET_RETURN_IF_ERROR(gradients_.Allocate(place_, flat_));
  const int64_t chunk_bytes = static_cast<int64_t>(sizeof(Chunk) + sizeof(uint32_t) * kMaxChunkSteps * batch_);
  LENET_RETURN_IF_ERROR(chunk_.Allocate(place_, chunk_bytes));
  LENET_RETURN_IF_ERROR(step_losses_.Allocate(place_, kMaxChunkSteps));
  LENET_RETURN_IF_ERROR(losses_.Allocate(place_, largest_batch));
  LENET_RETURN_IF_ERROR(correct_.Allocate(place_, largest_batch));
  LENET_RETURN_IF_ERROR(staging_.Allocate(place_, std::max((1 + slots_) * flat_, int64_t{batch_} * classes)));
  LENET_RETURN_IF_ERROR(evaluation_losses_.Allocate(place_, evaluation_batch));
  LENET_RETURN_IF_ERROR(evaluation_correct_.Allocate(place_, evaluation_batch));
  for (Slot& slot : chunks_) {
    LENET_RETURN_IF_ERROR(slot.upload.Allocate(place_, chunk_bytes));
    LENET_RETURN_IF_ERROR(slot.losses.Allocate(place_, kMaxChunkSteps));
    LENET_CUDA_RETURN_IF_ERROR(place_, cudaEventCreateWithFlags(slot.done.receive(), cudaEventDisableTiming));
  }
  for (Event& event : launched_) {
    LENET_CUDA_RETURN_IF_ERROR(place_, cudaEventCreateWithFlags(event.receive(), cudaEventDisableTiming));
  }
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaEventCreateWithFlags(drained_.receive(), cudaEventDisableTiming));
  // The gaps of the flat buffers are zero and stay so.
  LENET_CUDA_RETURN_IF_ERROR(place_,
                             cudaMemsetAsync(parameters_and_state_.get(), 0, parameters_and_state_.bytes(), stream()));
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaMemsetAsync(gradients_.get(), 0, gradients_.bytes(), stream()));

  if (fused) {
    LENET_ASSIGN_OR_RETURN(fused_,
                           FusedNetwork::Create(rank_, net_, batch_, evaluation_batch, parameters(), gradients_.get()));
    LENET_RETURN_IF_ERROR(fused_logits_.Allocate(place_, int64_t{batch_} * classes));
  } else {
    LENET_RETURN_IF_ERROR(InitLayers(evaluation_batch));
  }
  LENET_RETURN_IF_ERROR(norm_partials_.Allocate(place_, kMaxNormBlocks));
  return Drain();
}

absl::Status CudaEngine::InitLayers(int evaluation_batch) {
  LENET_RETURN_IF_ERROR(labels_.Allocate(place_, std::max(batch_, evaluation_batch)));
  LENET_ASSIGN_OR_RETURN(train_, Network::Create(rank_, net_, batch_, precision_, parameters(), gradients_.get()));
  LENET_ASSIGN_OR_RETURN(evaluation_,
                         Network::Create(rank_, net_, evaluation_batch, precision_, parameters(), nullptr));
  std::vector<Reduction> reductions(train_->reductions().begin(), train_->reductions().end());
  reduction_count_ = static_cast<int>(reductions.size());
  for (const Reduction& reduction : reductions) max_reduction_ = std::max(max_reduction_, reduction.size);
  reductions.push_back({.partials = losses_.get(),
                        .out = step_losses_.get(),
                        .stride = 1,
                        .rows = batch_,
                        .size = 1,
                        .scale = 1.0f / static_cast<float>(batch_),
                        .by_step = true});
  LENET_RETURN_IF_ERROR(reductions_.Allocate(place_, static_cast<int64_t>(reductions.size())));
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaMemcpyAsync(reductions_.get(), reductions.data(), reductions_.bytes(),
                                                     cudaMemcpyHostToDevice, stream()));
  return Drain();  // of what is on this function's stack
}

// Memory is freed only when no kernel waits for another rank any more, here or on the other devices: freeing may wait
// for all devices that can reach the memory, and hold what their threads need to call their communicators off.
CudaEngine::~CudaEngine() {
  LENET_CUDA_LOG_IF_ERROR(cudaSetDevice(rank_->ordinal));
  if (!error_.ok()) group_->Abort(error_.message());
  const auto start = std::chrono::steady_clock::now();
  for (int polls = 0;; ++polls) {
    if (group_->aborted()) TearDown();
    const cudaError_t result = cudaStreamQuery(stream());
    if (result == cudaErrorNotReady) {
      (void)cudaGetLastError();
    } else if (!group_->aborted() || group_->AllTornDown()) {
      LogIfError(result, "cudaStreamQuery", place_);
      break;
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kDrainTimeout) group_->Abort(absl::StrCat("rank ", place_.rank, " did not come to rest"));
    if (waited > 2 * kDrainTimeout) {
      Log(LogLevel::kError,
          absl::StrCat("device ", place_.device, ", rank ", place_.rank, ": a rank has not ended after an abort"));
      break;
    }
    Pause(polls);
  }
  step_graph_.reset();
  steps_graph_.reset();
  group_->EngineDestroyed(place_.rank);
}

absl::Status CudaEngine::Keep(absl::Status status) {
  if (error_.ok() && !absl::IsInvalidArgument(status) && !absl::IsFailedPrecondition(status)) error_ = status;
  return status;
}

absl::Status CudaEngine::CheckGroup() {
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaSetDevice(rank_->ordinal));
  absl::Status status = group_->Status();
  if (!status.ok()) TearDown();
  return status;
}

absl::Status CudaEngine::CheckReady() {
  LENET_RETURN_IF_ERROR(CheckGroup());
  return CheckIdle(in_flight());
}

void CudaEngine::TearDown() {
  if (rank_->communicator != nullptr) {
    rank_->communicator->Abort([this] {
      // To destroy a graph in flight waits for it too, but holds locks that NCCL may need to call its kernels off.
      for (int polls = 0; cudaStreamQuery(stream()) == cudaErrorNotReady; ++polls) Pause(polls);
      (void)cudaGetLastError();  // not an error, but kept as one
      step_graph_.reset();
      steps_graph_.reset();
    });
  }
  group_->TornDown(place_.rank);
}

absl::Status CudaEngine::Await(cudaEvent_t event) {
  for (int polls = 1;; ++polls) {
    const cudaError_t result = cudaEventQuery(event);
    if (result == cudaErrorNotReady) (void)cudaGetLastError();  // not an error, but kept as one
    // After the query: work that an abort has cut short ends too, with what it had by then.
    LENET_RETURN_IF_ERROR(CheckGroup());
    if (result == cudaSuccess) return absl::OkStatus();
    if (result != cudaErrorNotReady) return ToStatus(result, "cudaEventQuery", place_);
    if (rank_->communicator != nullptr && polls % kPollsPerCommunicatorCheck == 0) {
      LENET_RETURN_IF_ERROR(rank_->communicator->AsyncError());
    }
    Pause(polls);
  }
}

absl::Status CudaEngine::Drain() {
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaEventRecord(drained_.get(), stream()));
  return Await(drained_.get());
}

absl::Status CudaEngine::CopyIn(float* device, std::span<const float> values) {
  if (values.empty()) return absl::OkStatus();
  std::memcpy(staging_.get(), values.data(), values.size_bytes());
  LENET_CUDA_RETURN_IF_ERROR(
      place_, cudaMemcpyAsync(device, staging_.get(), values.size_bytes(), cudaMemcpyHostToDevice, stream()));
  return Drain();
}

absl::Status CudaEngine::CopyOut(std::span<float> values, const float* device) {
  if (values.empty()) return absl::OkStatus();
  LENET_CUDA_RETURN_IF_ERROR(
      place_, cudaMemcpyAsync(staging_.get(), device, values.size_bytes(), cudaMemcpyDeviceToHost, stream()));
  LENET_RETURN_IF_ERROR(Drain());
  std::memcpy(values.data(), staging_.get(), values.size_bytes());
  return absl::OkStatus();
}

absl::Status CudaEngine::DoWriteParameters(std::span<const float> flat) {
  LENET_RETURN_IF_ERROR(CheckReady());
  LENET_RETURN_IF_ERROR(CheckSize("parameters", flat.size(), flat_));
  return CopyIn(parameters(), flat);
}

absl::Status CudaEngine::DoReadParameters(std::span<float> flat) {
  LENET_RETURN_IF_ERROR(CheckReady());
  LENET_RETURN_IF_ERROR(CheckSize("parameters", flat.size(), flat_));
  return CopyOut(flat, parameters());
}

absl::Status CudaEngine::DoWriteState(std::span<const float> values) {
  LENET_RETURN_IF_ERROR(CheckReady());
  LENET_RETURN_IF_ERROR(CheckSize("optimiser state", values.size(), slots_ * flat_));
  return CopyIn(state(), values);
}

absl::Status CudaEngine::DoReadState(std::span<float> values) {
  LENET_RETURN_IF_ERROR(CheckReady());
  LENET_RETURN_IF_ERROR(CheckSize("optimiser state", values.size(), slots_ * flat_));
  return CopyOut(values, state());
}

absl::Status CudaEngine::DoBroadcast() {
  LENET_RETURN_IF_ERROR(CheckReady());
  if (rank_->communicator == nullptr) return absl::OkStatus();
  LENET_RETURN_IF_ERROR(group_->Barrier());
  LENET_RETURN_IF_ERROR(
      rank_->communicator->Broadcast(parameters_and_state_.get(), parameters_and_state_.count(), stream()));
  return Drain();
}

absl::Status CudaEngine::DoAllReduceSum(std::span<float> values) {
  LENET_RETURN_IF_ERROR(CheckReady());
  LENET_RETURN_IF_ERROR(CheckAllReduce(values, flat_));
  if (rank_->communicator == nullptr || values.empty()) return absl::OkStatus();
  LENET_RETURN_IF_ERROR(CopyIn(gradients_.get(), values));
  LENET_RETURN_IF_ERROR(group_->Barrier());
  LENET_RETURN_IF_ERROR(
      rank_->communicator->AllReduceSum(gradients_.get(), static_cast<int64_t>(values.size()), stream()));
  LENET_RETURN_IF_ERROR(CopyOut(values, gradients_.get()));
  // Its gaps are zero.
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaMemsetAsync(gradients_.get(), 0, gradients_.bytes(), stream()));
  return Drain();
}

absl::Status CudaEngine::ForwardBackward(float loss_scale, bool by_step) {
  Chunk* const step_chunk = by_step ? chunk() : nullptr;
  LENET_RETURN_IF_ERROR(train_->Forward());
  LENET_CUDA_RETURN_IF_ERROR(
      place_, LaunchSoftmaxLoss(train_->logits(), labels_.get(), batch_, net_.spec().classes, loss_scale, losses_.get(),
                                train_->logits_gradient(), nullptr, step_chunk, stream()));
  LENET_RETURN_IF_ERROR(train_->Backward());
  LENET_CUDA_RETURN_IF_ERROR(place_, LaunchReduce(reductions_.get(), reduction_count_ + (by_step ? 1 : 0),
                                                  max_reduction_, step_chunk, stream()));
  return absl::OkStatus();
}

absl::Status CudaEngine::StepGradient(float loss_scale) {
  if (fused_ == nullptr) {
    LENET_CUDA_RETURN_IF_ERROR(
        place_, LaunchGatherStep(rank_->dataset.train(), chunk(), batch_, train_->input(), labels_.get(), stream()));
    return ForwardBackward(loss_scale, /*by_step=*/true);
  }
  LENET_RETURN_IF_ERROR(fused_->ForwardBackward({.chunk = chunk()}, loss_scale, {.losses = losses_.get()}));
  return fused_->Gradient(losses_.get(), chunk(), step_losses_.get(), fused_norm() ? norm_partials_.get() : nullptr);
}

absl::Status CudaEngine::AllReduce() {
  if (rank_->communicator == nullptr || peer_sums()) return absl::OkStatus();
  return rank_->communicator->AllReduceSum(gradients_.get(), flat_, stream());
}

absl::Status CudaEngine::Update(const Peers& peers) {
  UpdateArguments arguments = {.parameters = parameters(),
                               .gradient = gradients_.get(),
                               .state = state(),
                               .count = flat_,
                               .chunk = chunk(),
                               .peers = peers};
  arguments.early = fused_ != nullptr && (rank_->communicator == nullptr || peer_sums());
  if (clip_norm_ > 0) {
    arguments.norm_partials = norm_partials_.get();
    arguments.clip_norm = clip_norm_;
    if (fused_norm()) {
      arguments.norm_blocks = fused_->norm_blocks();
    } else {
      LENET_CUDA_RETURN_IF_ERROR(place_, LaunchSquaredNorm(&arguments, stream()));
    }
  }
  if (optimizer_.kind == OptimizerKind::kSgd) {
    LENET_CUDA_RETURN_IF_ERROR(place_, LaunchSgd(arguments, optimizer_.momentum > 0, optimizer_.nesterov, stream()));
  } else {
    LENET_CUDA_RETURN_IF_ERROR(place_, LaunchAdam(arguments, optimizer_.kind == OptimizerKind::kAdamW, stream()));
  }
  return absl::OkStatus();
}

absl::Status CudaEngine::Step() {
  LENET_RETURN_IF_ERROR(StepGradient(1.0f / (static_cast<float>(batch_) * static_cast<float>(group_->size()))));
  LENET_RETURN_IF_ERROR(AllReduce());
  return Update(peer_sums() ? rank_->peers : Peers());
}

absl::Status CudaEngine::EvaluateBatch(const ImageSet& set, int64_t begin, int64_t end) {
  if (fused_ != nullptr) {
    return fused_->Forward(set, begin, static_cast<int>(end - begin),
                           {.losses = losses_.get(), .correct = correct_.get()});
  }
  const int batch = evaluation_->batch();
  LENET_CUDA_RETURN_IF_ERROR(place_,
                             LaunchGatherRange(set, begin, end, batch, evaluation_->input(), labels_.get(), stream()));
  LENET_RETURN_IF_ERROR(evaluation_->Forward());
  LENET_CUDA_RETURN_IF_ERROR(place_, LaunchSoftmaxLoss(evaluation_->logits(), labels_.get(), batch, net_.spec().classes,
                                                       1, losses_.get(), nullptr, correct_.get(), nullptr, stream()));
  return absl::OkStatus();
}

// Runs each kernel of a step once, on image 0, at a learning rate of zero and without other ranks.
absl::Status CudaEngine::WarmUpKernels() {
  Chunk* const header = chunks_[0].chunk();
  header->next_step = 0;
  header->scalars[0] = ScalarsAt(optimizer_, 0, 0);
  std::memset(chunks_[0].indices(), 0, sizeof(uint32_t) * batch_);
  LENET_CUDA_RETURN_IF_ERROR(
      place_, cudaMemcpyAsync(chunk_.get(), chunks_[0].upload.get(), sizeof(Chunk) + sizeof(uint32_t) * batch_,
                              cudaMemcpyHostToDevice, stream()));
  LENET_RETURN_IF_ERROR(StepGradient(1));
  LENET_RETURN_IF_ERROR(Update(Peers()));
  LENET_RETURN_IF_ERROR(EvaluateBatch(rank_->dataset.train(), 0, 1));
  return Drain();
}

absl::Status CudaEngine::Capture(int steps, GraphExec& made) {
  made.reset();
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  absl::Status status;
  for (int step = 0; step < steps && status.ok(); ++step) status = Step();
  // Capture ends in any case; the first error is the one that counts.
  Graph graph;
  const cudaError_t ended = cudaStreamEndCapture(stream(), graph.receive());
  LENET_RETURN_IF_ERROR(status);
  LENET_CUDA_RETURN_IF_ERROR(place_, ended);
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaGraphInstantiate(made.receive(), graph.get(), 0));
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaGraphUpload(made.get(), stream()));
  return absl::OkStatus();
}

absl::Status CudaEngine::DoWarmUp() {
  LENET_RETURN_IF_ERROR(CheckReady());
  {
    DeviceArray<float> saved;
    LENET_RETURN_IF_ERROR(saved.Allocate(place_, parameters_and_state_.count()));
    const auto copy = [&](float* to, const float* from) {
      return cudaMemcpyAsync(to, from, saved.bytes(), cudaMemcpyDeviceToDevice, stream());
    };
    LENET_CUDA_RETURN_IF_ERROR(place_, copy(saved.get(), parameters_and_state_.get()));
    LENET_RETURN_IF_ERROR(WarmUpKernels());
    LENET_CUDA_RETURN_IF_ERROR(place_, copy(parameters_and_state_.get(), saved.get()));
    LENET_RETURN_IF_ERROR(Drain());
  }
  // Loading a module or freeing memory may wait for whole devices, so no rank's kernel may wait for a rank that has not
  // done with that.
  LENET_RETURN_IF_ERROR(group_->Barrier());
  LENET_RETURN_IF_ERROR(AllReduce());
  LENET_RETURN_IF_ERROR(Drain());
  LENET_RETURN_IF_ERROR(Capture(1, step_graph_));
  if (rank_->tuning.steps_per_graph > 1) LENET_RETURN_IF_ERROR(Capture(rank_->tuning.steps_per_graph, steps_graph_));
  LENET_RETURN_IF_ERROR(Drain());
  return group_->Barrier();
}

absl::Status CudaEngine::Launch(const GraphExec& graph) {
  const Event& launched = launched_[launches_ % kMaxLaunchesInFlight];
  if (launches_ >= kMaxLaunchesInFlight) LENET_RETURN_IF_ERROR(Await(launched.get()));
  if (graph) {
    LENET_CUDA_RETURN_IF_ERROR(place_, cudaGraphLaunch(graph.get(), stream()));
  } else {
    LENET_RETURN_IF_ERROR(Step());
  }
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaEventRecord(launched.get(), stream()));
  ++launches_;
  return absl::OkStatus();
}

absl::Status CudaEngine::DoEnqueue(const StepChunk& chunk) {
  LENET_RETURN_IF_ERROR(CheckGroup());
  LENET_RETURN_IF_ERROR(CheckChunk(chunk, dataset_->train, batch_));
  LENET_RETURN_IF_ERROR(CheckRoom(in_flight()));
  const int steps = static_cast<int>(chunk.learning_rates.size());
  Slot& slot = chunks_[enqueued_ % kMaxChunksInFlight];
  Chunk* const header = slot.chunk();
  header->next_step = 0;
  header->first_peer_sum = rank_->TakePeerSums(steps);
  for (int step = 0; step < steps; ++step) {
    header->scalars[step] = ScalarsAt(optimizer_, chunk.first_step + step, chunk.learning_rates[step]);
  }
  std::memcpy(slot.indices(), chunk.indices.data(), chunk.indices.size_bytes());
  LENET_CUDA_RETURN_IF_ERROR(
      place_, cudaMemcpyAsync(chunk_.get(), slot.upload.get(), sizeof(Chunk) + chunk.indices.size_bytes(),
                              cudaMemcpyHostToDevice, stream()));
  int left = steps;
  const int at_once = rank_->tuning.steps_per_graph;
  for (; steps_graph_ && left >= at_once; left -= at_once) LENET_RETURN_IF_ERROR(Launch(steps_graph_));
  for (; left > 0; --left) LENET_RETURN_IF_ERROR(Launch(step_graph_));
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaMemcpyAsync(slot.losses.get(), step_losses_.get(), sizeof(float) * steps,
                                                     cudaMemcpyDeviceToHost, stream()));
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaEventRecord(slot.done.get(), stream()));
  slot.steps = steps;
  ++enqueued_;
  return absl::OkStatus();
}

absl::Status CudaEngine::DoWait(std::span<float> losses) {
  LENET_RETURN_IF_ERROR(CheckGroup());
  LENET_RETURN_IF_ERROR(CheckQueued(in_flight()));
  const Slot& slot = chunks_[waited_ % kMaxChunksInFlight];
  LENET_RETURN_IF_ERROR(CheckSize("losses", losses.size(), slot.steps));
  LENET_RETURN_IF_ERROR(Await(slot.done.get()));
  std::memcpy(losses.data(), slot.losses.get(), losses.size_bytes());
  ++waited_;
  return absl::OkStatus();
}

absl::StatusOr<EvalResult> CudaEngine::DoEvaluate(SplitKind split, int64_t begin, int64_t end) {
  LENET_RETURN_IF_ERROR(CheckReady());
  const bool train = split == SplitKind::kTrain;
  LENET_RETURN_IF_ERROR(CheckEvaluation(train ? dataset_->train : dataset_->test, begin, end));
  EvalResult result;
  for (int64_t first = begin; first < end; first += evaluation_losses_.count()) {
    const int64_t images = std::min(evaluation_losses_.count(), end - first);
    LENET_RETURN_IF_ERROR(EvaluateBatch(train ? rank_->dataset.train() : rank_->dataset.test(), first, first + images));
    LENET_CUDA_RETURN_IF_ERROR(
        place_, cudaMemcpyAsync(evaluation_losses_.get(), losses_.get(), sizeof(float) * static_cast<size_t>(images),
                                cudaMemcpyDeviceToHost, stream()));
    LENET_CUDA_RETURN_IF_ERROR(place_, cudaMemcpyAsync(evaluation_correct_.get(), correct_.get(),
                                                       static_cast<size_t>(images), cudaMemcpyDeviceToHost, stream()));
    LENET_RETURN_IF_ERROR(Drain());
    for (int64_t i = 0; i < images; ++i) {
      result.loss_sum += evaluation_losses_.get()[i];
      result.correct += evaluation_correct_.get()[i];
    }
    result.count += images;
  }
  return result;
}

absl::Status CudaEngine::DoGradient(std::span<const uint32_t> indices, std::span<float> logits, std::span<float> losses,
                                    std::span<float> gradient) {
  LENET_RETURN_IF_ERROR(CheckReady());
  LENET_RETURN_IF_ERROR(CheckGradient(net_, dataset_->train, batch_, indices, logits, losses, gradient));
  std::memcpy(chunks_[0].indices(), indices.data(), indices.size_bytes());
  LENET_CUDA_RETURN_IF_ERROR(place_, cudaMemcpyAsync(chunk_indices(), chunks_[0].indices(), indices.size_bytes(),
                                                     cudaMemcpyHostToDevice, stream()));
  const float scale = 1.0f / static_cast<float>(batch_);
  if (fused_ != nullptr) {
    LENET_RETURN_IF_ERROR(fused_->ForwardBackward({.indices = chunk_indices()}, scale,
                                                  {.losses = losses_.get(), .logits = fused_logits_.get()}));
    LENET_RETURN_IF_ERROR(fused_->Gradient(losses_.get(), nullptr, nullptr, nullptr));
  } else {
    LENET_CUDA_RETURN_IF_ERROR(place_, LaunchGatherIndices(rank_->dataset.train(), chunk_indices(), batch_,
                                                           train_->input(), labels_.get(), stream()));
    LENET_RETURN_IF_ERROR(ForwardBackward(scale, /*by_step=*/false));
  }
  LENET_RETURN_IF_ERROR(CopyOut(logits, fused_ != nullptr ? fused_logits_.get() : train_->logits()));
  LENET_RETURN_IF_ERROR(CopyOut(losses, losses_.get()));
  return CopyOut(gradient, gradients_.get());
}

}  // namespace lenet::cuda
