// What every engine refuses, so that all refuse the same in the same words.
#ifndef LENET_TRAINER_BACKEND_ENGINE_CHECKS_H_
#define LENET_TRAINER_BACKEND_ENGINE_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/backend/backend.h"

namespace lenet {

// INVALID_ARGUMENT, all of these. Of the options, all but the precision, which depends on the device.
absl::Status CheckEngineOptions(const EngineOptions& options);
// For Backend::CheckEngine where there is no fused engine.
absl::Status NoFusedEngine(EngineKind engine, absl::string_view backend);
// The fused engine was asked for, and does not serve.
absl::Status NotFused(absl::string_view why);
absl::Status CheckSize(absl::string_view what, size_t size, int64_t wanted);
absl::Status CheckChunk(const StepChunk& chunk, const Split& train, int batch_size);
absl::Status CheckEvaluation(const Split& split, int64_t begin, int64_t end);
absl::Status CheckAllReduce(std::span<const float> values, int64_t flat_size);
absl::Status CheckGradient(const Net& net, const Split& train, int batch_size, std::span<const uint32_t> indices,
                           std::span<const float> logits, std::span<const float> losses,
                           std::span<const float> gradient);

// FAILED_PRECONDITION, all of these; for calls that need room for a chunk, a chunk to wait for, and none in flight.
absl::Status CheckRoom(int64_t chunks_in_flight);
absl::Status CheckQueued(int64_t chunks_in_flight);
absl::Status CheckIdle(int64_t chunks_in_flight);

}  // namespace lenet

#endif  // LENET_TRAINER_BACKEND_ENGINE_CHECKS_H_
