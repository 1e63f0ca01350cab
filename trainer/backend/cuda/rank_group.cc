#include "trainer/backend/cuda/rank_group.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/backend/cuda/engine.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet::cuda {

CudaRankGroup::CudaRankGroup(std::span<const int> ids)
    : ids_(ids.begin(), ids.end()),
      has_engine_(ids.size()),
      torn_down_(ids.size()),
      host_(static_cast<int>(ids.size())) {}

absl::StatusOr<std::unique_ptr<CudaRankGroup>> CudaRankGroup::Create(std::span<const int> ids,
                                                                     std::span<const int> ordinals,
                                                                     const Tuning& tuning) {
  const DeviceGuard guard;
  std::unique_ptr<CudaRankGroup> group(new CudaRankGroup(ids));
  std::vector<Place> places;
  std::vector<cudaStream_t> streams;
  for (int rank = 0; rank < static_cast<int>(ids.size()); ++rank) {
    places.push_back({.device = ids[rank], .rank = rank});
    LENET_ASSIGN_OR_RETURN(auto context, RankContext::Create(places[rank], ordinals[rank], tuning));
    streams.push_back(context->main.get());
    group->ranks_.push_back(std::move(context));
  }
  if (ids.size() > 1) {
    LENET_ASSIGN_OR_RETURN(auto communicators, NcclCommunicator::CreateAll(ordinals, places, streams));
    for (size_t rank = 0; rank < ids.size(); ++rank) group->ranks_[rank]->communicator = std::move(communicators[rank]);
    if (tuning.peer_sums) LENET_RETURN_IF_ERROR(group->ConnectPeers(ordinals, places));
  }
  return group;
}

absl::Status CudaRankGroup::ConnectPeers(std::span<const int> ordinals, std::span<const Place> places) {
  LENET_ASSIGN_OR_RETURN(const std::string why_not, PeerMemory::WhyNot(ordinals));
  if (!why_not.empty()) {
    Log(LogLevel::kInfo, absl::StrCat("sums over ranks go through NCCL: ", why_not));
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PeerMemory>> memory = PeerMemory::Create(ordinals, places);
  if (!memory.ok()) {
    // As in a container that does not let devices map each other's memory.
    Log(LogLevel::kWarning, absl::StrCat("sums over ranks go through NCCL: ", memory.status().message()));
    return absl::OkStatus();
  }
  peer_memory_ = *std::move(memory);
  for (const auto& rank : ranks_) rank->peers = peer_memory_->peers(rank->place.rank);
  return absl::OkStatus();
}

CudaRankGroup::~CudaRankGroup() {
  const DeviceGuard guard;
  for (const auto& rank : ranks_) {
    LENET_CUDA_LOG_IF_ERROR(cudaSetDevice(rank->ordinal));
    if (aborted() && rank->communicator != nullptr) rank->communicator->Abort([] {});
    rank->communicator.reset();
  }
  // Memory that a kernel may still write, as after an abort that it did not heed, is not unmapped.
  for (const auto& rank : ranks_) {
    if (peer_memory_ != nullptr && cudaStreamQuery(rank->main.get()) == cudaErrorNotReady) {
      Log(LogLevel::kError, absl::StrCat("rank ", rank->place.rank, " has not ended: what the ranks share stays"));
      (void)peer_memory_.release();
    }
  }
  // A handle goes with its device current.
  for (auto& rank : ranks_) {
    LENET_CUDA_LOG_IF_ERROR(cudaSetDevice(rank->ordinal));
    rank.reset();
  }
}

absl::StatusOr<std::unique_ptr<Engine>> CudaRankGroup::NewEngine(int rank, const EngineOptions& options) {
  if (rank < 0 || rank >= size()) {
    return BadValue("rank", rank, absl::StrCat("0 to ", size() - 1));
  }
  LENET_RETURN_IF_ERROR(Status());
  if (has_engine_[rank].exchange(true, std::memory_order_acq_rel)) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " has an engine already"));
  }
  absl::StatusOr<std::unique_ptr<Engine>> engine = CudaEngine::Create(this, ranks_[rank].get(), options);
  if (!engine.ok()) EngineDestroyed(rank);
  return engine;
}

void CudaRankGroup::Abort(absl::string_view reason) {
  {
    MutexLock lock(&mutex_);
    if (aborted()) return;
    reason_ = std::string(reason);
    aborted_.store(true, std::memory_order_release);
  }
  if (peer_memory_ != nullptr) peer_memory_->Abort();
  host_.Abort(reason);
}

bool CudaRankGroup::AllTornDown() const {
  for (size_t rank = 0; rank < has_engine_.size(); ++rank) {
    if (has_engine_[rank].load(std::memory_order_acquire) && !torn_down_[rank].load(std::memory_order_acquire)) {
      return false;
    }
  }
  return true;
}

absl::Status CudaRankGroup::Status() const {
  if (!aborted()) return absl::OkStatus();
  MutexLock lock(&mutex_);
  return absl::AbortedError(reason_);
}

}  // namespace lenet::cuda
