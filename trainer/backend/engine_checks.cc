#include "trainer/backend/engine_checks.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

absl::Status CheckIndices(std::span<const uint32_t> indices, const Split& train) {
  const auto bad = std::find_if(indices.begin(), indices.end(), [&](uint32_t index) { return index >= train.count; });
  if (bad == indices.end()) return absl::OkStatus();
  return BadValue(absl::StrCat("indices[", bad - indices.begin(), "]"), *bad,
                  absl::StrCat("below ", train.count, ", the training images"));
}

}  // namespace

absl::Status CheckEngineOptions(const EngineOptions& options) {
  if (options.net == nullptr || options.dataset == nullptr) {
    return absl::InvalidArgumentError("an engine needs a net and a data set");
  }
  const NetSpec& net = options.net->spec();
  const Dataset& dataset = *options.dataset;
  for (const Split* split : {&dataset.train, &dataset.test}) {
    if (split->count > 0 && split->shape != net.input) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data set \"", dataset.name, "\" has images of ", split->shape.channels, "x", split->shape.height, "x",
          split->shape.width, ": the net takes ", net.input.channels, "x", net.input.height, "x", net.input.width));
    }
  }
  if (dataset.classes > net.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("data set \"", dataset.name, "\" has ", dataset.classes, " classes: the net has ", net.classes));
  }
  if (options.batch_size < 1 || options.batch_size > dataset.train.count) {
    return BadValue("batch_size", options.batch_size,
                    absl::StrCat("1 to ", dataset.train.count, ", the training images"));
  }
  if (!(options.clip_norm >= 0) || !std::isfinite(options.clip_norm)) {
    return BadValue("clip_norm", options.clip_norm, "finite and at least 0");
  }
  return ValidateOptimizer(options.optimizer);
}

absl::Status NoFusedEngine(EngineKind engine, absl::string_view backend) {
  if (engine != EngineKind::kFused) return absl::OkStatus();
  return NotFused(absl::StrCat("the ", backend, " backend has no other"));
}

absl::Status NotFused(absl::string_view why) { return BadValue("engine", "fused", absl::StrCat("layered: ", why)); }

absl::Status CheckSize(absl::string_view what, size_t size, int64_t wanted) {
  if (size == static_cast<size_t>(wanted)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " has ", size, " values: must have ", wanted));
}

absl::Status CheckChunk(const StepChunk& chunk, const Split& train, int batch_size) {
  const size_t steps = chunk.learning_rates.size();
  if (steps < 1 || steps > Engine::kMaxChunkSteps) {
    return BadValue("the steps of a chunk", steps, absl::StrCat("1 to ", int{Engine::kMaxChunkSteps}));
  }
  LENET_RETURN_IF_ERROR(CheckSize("indices", chunk.indices.size(), static_cast<int64_t>(steps) * batch_size));
  return CheckIndices(chunk.indices, train);
}

absl::Status CheckEvaluation(const Split& split, int64_t begin, int64_t end) {
  if (begin >= 0 && begin <= end && end <= split.count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("images ", begin, " to ", end, ": must be a range of the ", split.count, " images"));
}

absl::Status CheckAllReduce(std::span<const float> values, int64_t flat_size) {
  if (static_cast<int64_t>(values.size()) <= flat_size) return absl::OkStatus();
  return BadValue("values", values.size(), absl::StrCat("at most ", flat_size));
}

absl::Status CheckGradient(const Net& net, const Split& train, int batch_size, std::span<const uint32_t> indices,
                           std::span<const float> logits, std::span<const float> losses,
                           std::span<const float> gradient) {
  LENET_RETURN_IF_ERROR(CheckSize("indices", indices.size(), batch_size));
  LENET_RETURN_IF_ERROR(CheckIndices(indices, train));
  if (!logits.empty()) {
    LENET_RETURN_IF_ERROR(CheckSize("logits", logits.size(), int64_t{batch_size} * net.spec().classes));
  }
  if (!losses.empty()) LENET_RETURN_IF_ERROR(CheckSize("losses", losses.size(), batch_size));
  return gradient.empty() ? absl::OkStatus() : CheckSize("gradient", gradient.size(), net.flat_size());
}

absl::Status CheckRoom(int64_t chunks_in_flight) {
  if (chunks_in_flight < Engine::kMaxChunksInFlight) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(chunks_in_flight, " chunks are in flight already"));
}

absl::Status CheckQueued(int64_t chunks_in_flight) {
  return chunks_in_flight > 0 ? absl::OkStatus() : absl::FailedPreconditionError("no chunk is in flight");
}

absl::Status CheckIdle(int64_t chunks_in_flight) {
  if (chunks_in_flight == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(chunks_in_flight, " chunks are in flight"));
}

}  // namespace lenet
