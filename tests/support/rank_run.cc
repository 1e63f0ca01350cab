#include "tests/support/rank_run.h"

#include <algorithm>

#include "tests/support/rank_threads.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

absl::Status RunRank(RankGroup* group, const RankRun& run, int rank, RankRunResult* result) {
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, group->NewEngine(rank, {.net = run.net,
                                                                                       .dataset = run.dataset,
                                                                                       .batch_size = run.batch_size,
                                                                                       .optimizer = run.optimizer,
                                                                                       .clip_norm = run.clip_norm}));
  if (rank == 0) LENET_RETURN_IF_ERROR(engine->WriteParameters(run.parameters));
  LENET_RETURN_IF_ERROR(engine->Broadcast());
  LENET_RETURN_IF_ERROR(engine->WarmUp());

  const int steps = static_cast<int>(run.learning_rates.size());
  std::vector<float>& losses = result->losses[rank];
  losses.resize(steps);
  const auto chunk_size = [&](int first) { return std::min(run.chunk, steps - first); };
  int waited = 0;
  for (int first = 0; first < steps; first += run.chunk) {
    std::vector<uint32_t> indices;
    for (int s = first; s < first + chunk_size(first); ++s) {
      const std::vector<uint32_t> batch = run.images(s);
      const auto begin = batch.begin() + int64_t{rank} * run.batch_size;
      indices.insert(indices.end(), begin, begin + run.batch_size);
    }
    LENET_RETURN_IF_ERROR(
        engine->Enqueue({.first_step = first,
                         .indices = indices,
                         .learning_rates = std::span(run.learning_rates).subspan(first, chunk_size(first))}));
    if (first == 0) continue;  // two chunks in flight
    LENET_RETURN_IF_ERROR(engine->Wait(std::span(losses).subspan(waited, chunk_size(waited))));
    waited += run.chunk;
  }
  if (waited < steps) LENET_RETURN_IF_ERROR(engine->Wait(std::span(losses).subspan(waited, chunk_size(waited))));

  result->parameters[rank].resize(run.net->flat_size());
  LENET_RETURN_IF_ERROR(engine->ReadParameters(result->parameters[rank]));
  result->state[rank].resize(StateSlots(run.optimizer) * run.net->flat_size());
  return engine->ReadState(result->state[rank]);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> NewGroupOf(Backend* backend, int ranks) {
  const int devices = static_cast<int>(backend->devices().size());
  std::vector<int> ids(ranks);
  for (int rank = 0; rank < ranks; ++rank) ids[rank] = backend->oversubscribable() ? rank % devices : rank;
  return backend->NewGroup(ids);
}

absl::StatusOr<RankRunResult> RunOnRanks(Backend* backend, const RankRun& run) {
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> group, NewGroupOf(backend, run.ranks));
  RankRunResult result;
  result.losses.resize(run.ranks);
  result.parameters.resize(run.ranks);
  result.state.resize(run.ranks);
  LENET_RETURN_IF_ERROR(RunRanks(run.ranks, [&](int rank) {
    absl::Status status = RunRank(group.get(), run, rank, &result);
    if (!status.ok()) group->Abort(status.message());
    return status;
  }));
  return result;
}

}  // namespace lenet
