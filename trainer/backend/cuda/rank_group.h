// Ranks on GPUs with their communicator.
#ifndef LENET_TRAINER_BACKEND_CUDA_RANK_GROUP_H_
#define LENET_TRAINER_BACKEND_CUDA_RANK_GROUP_H_

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/cuda/rank_context.h"
#include "trainer/base/mutex.h"
#include "trainer/comm/local.h"

namespace lenet::cuda {

class CudaRankGroup : public RankGroup {
 public:
  // ids[r] and ordinals[r]: rank r's device, as the backend and as CUDA counts them. Restores the current device.
  static absl::StatusOr<std::unique_ptr<CudaRankGroup>> Create(std::span<const int> ids, std::span<const int> ordinals,
                                                               const Tuning& tuning);
  ~CudaRankGroup() override;

  std::span<const int> device_ids() const override { return ids_; }
  absl::StatusOr<std::unique_ptr<Engine>> NewEngine(int rank, const EngineOptions& options) override;
  void Abort(absl::string_view reason) override ABSL_LOCKS_EXCLUDED(mutex_);
  bool aborted() const override { return aborted_.load(std::memory_order_acquire); }

  // For the engines. ABORTED with the reason after Abort, else OK.
  absl::Status Status() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits on the host for every rank. ABORTED after Abort.
  absl::Status Barrier() { return host_.Barrier(); }
  // The engine of `rank` is gone.
  void EngineDestroyed(int rank) { has_engine_[rank].store(false, std::memory_order_release); }
  // After an abort: the engine of `rank` has torn its communicator down; whether all that there are have.
  void TornDown(int rank) { torn_down_[rank].store(true, std::memory_order_release); }
  bool AllTornDown() const;

 private:
  explicit CudaRankGroup(std::span<const int> ids);

  absl::Status ConnectPeers(std::span<const int> ordinals, std::span<const Place> places);

  const std::vector<int> ids_;
  std::unique_ptr<PeerMemory> peer_memory_;  // or null
  std::vector<std::unique_ptr<RankContext>> ranks_;
  std::vector<std::atomic<bool>> has_engine_;
  std::vector<std::atomic<bool>> torn_down_;
  LocalGroup host_;
  std::atomic<bool> aborted_{false};
  mutable Mutex mutex_;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_RANK_GROUP_H_
