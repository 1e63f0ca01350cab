#include "trainer/backend/cuda/rank_context.h"

#include <utility>

#include "trainer/backend/cuda/gemm.h"
#include "trainer/base/status.h"

namespace lenet::cuda {

absl::Status ResidentDataset::ResidentSplit::Upload(const Place& place, const Split& split, cudaStream_t stream) {
  LENET_RETURN_IF_ERROR(images.Allocate(place, static_cast<int64_t>(split.images.size())));
  LENET_RETURN_IF_ERROR(labels.Allocate(place, static_cast<int64_t>(split.labels.size())));
  set = {images.get(), labels.get(), static_cast<int>(split.shape.size())};
  if (split.count == 0) return absl::OkStatus();
  LENET_CUDA_RETURN_IF_ERROR(
      place, cudaMemcpyAsync(images.get(), split.images.data(), images.bytes(), cudaMemcpyHostToDevice, stream));
  LENET_CUDA_RETURN_IF_ERROR(
      place, cudaMemcpyAsync(labels.get(), split.labels.data(), labels.bytes(), cudaMemcpyHostToDevice, stream));
  return absl::OkStatus();
}

absl::Status ResidentDataset::Hold(const Place& place, const std::shared_ptr<const Dataset>& dataset,
                                   cudaStream_t stream) {
  if (held_.lock() == dataset) return absl::OkStatus();
  held_.reset();
  LENET_RETURN_IF_ERROR(Annotate(train_.Upload(place, dataset->train, stream), "training images"));
  LENET_RETURN_IF_ERROR(Annotate(test_.Upload(place, dataset->test, stream), "test images"));
  held_ = dataset;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RankContext>> RankContext::Create(const Place& place, int ordinal,
                                                                 const Tuning& tuning) {
  auto context = std::make_unique<RankContext>();
  context->place = place;
  context->ordinal = ordinal;
  context->tuning = tuning;
  LENET_CUDA_RETURN_IF_ERROR(place, cudaSetDevice(ordinal));
  int major = 0;
  LENET_CUDA_RETURN_IF_ERROR(place, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  context->has_tf32 = 10 * major >= kTf32Capability;
  LENET_CUDA_RETURN_IF_ERROR(place, cudaStreamCreateWithFlags(context->main.receive(), cudaStreamNonBlocking));
  if (tuning.two_streams) {
    LENET_CUDA_RETURN_IF_ERROR(place, cudaStreamCreateWithFlags(context->side.receive(), cudaStreamNonBlocking));
    LENET_RETURN_IF_ERROR(context->side_blas_workspace.Allocate(place, Gemm::kWorkspaceBytes));
  }
  LENET_RETURN_IF_ERROR(context->blas_workspace.Allocate(place, Gemm::kWorkspaceBytes));
  LENET_CUDA_RETURN_IF_ERROR(place, cudnnCreate(context->cudnn.receive()));
  LENET_CUDA_RETURN_IF_ERROR(place, cudnnSetStream(context->cudnn.get(), context->main.get()));
  LENET_CUDA_RETURN_IF_ERROR(place, cublasLtCreate(context->blas.receive()));
  return context;
}

uint32_t RankContext::TakePeerSums(int count) {
  const uint32_t wanted = static_cast<uint32_t>(count);
  if (next_peer_sum_ + wanted < next_peer_sum_) next_peer_sum_ = 2 + next_peer_sum_ % 2;
  return std::exchange(next_peer_sum_, next_peer_sum_ + wanted);
}

absl::Status RankContext::ReserveCudnnWorkspace(size_t bytes) {
  if (bytes <= cudnn_workspace.bytes()) return absl::OkStatus();
  return Annotate(cudnn_workspace.Allocate(place, static_cast<int64_t>(bytes)), "cuDNN workspace");
}

}  // namespace lenet::cuda
