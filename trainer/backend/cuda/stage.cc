#include "trainer/backend/cuda/stage.h"

namespace lenet::cuda {

absl::StatusOr<std::unique_ptr<SideBranch>> SideBranch::Create(const RankContext* context) {
  std::unique_ptr<SideBranch> branch(new SideBranch(context));
  if (context->side) {
    for (Event* event : {&branch->forked_, &branch->joined_}) {
      LENET_CUDA_RETURN_IF_ERROR(context->place, cudaEventCreateWithFlags(event->receive(), cudaEventDisableTiming));
    }
  }
  return branch;
}

absl::Status SideBranch::Fork() {
  if (!context_->side) return absl::OkStatus();
  LENET_CUDA_RETURN_IF_ERROR(context_->place, cudaEventRecord(forked_.get(), context_->main.get()));
  LENET_CUDA_RETURN_IF_ERROR(context_->place, cudaStreamWaitEvent(context_->side.get(), forked_.get(), 0));
  is_forked_ = true;
  return absl::OkStatus();
}

absl::Status SideBranch::Join() {
  if (!is_forked_) return absl::OkStatus();
  is_forked_ = false;
  LENET_CUDA_RETURN_IF_ERROR(context_->place, cudaEventRecord(joined_.get(), context_->side.get()));
  LENET_CUDA_RETURN_IF_ERROR(context_->place, cudaStreamWaitEvent(context_->main.get(), joined_.get(), 0));
  return absl::OkStatus();
}

cudaStream_t SideBranch::stream() const { return context_->side ? context_->side.get() : context_->main.get(); }

void* SideBranch::blas_workspace() const {
  return context_->side ? context_->side_blas_workspace.get() : context_->blas_workspace.get();
}

ConvShape ConvShapeOf(const Layer& layer, int batch) {
  return {.batch = batch,
          .in_channels = layer.in.channels,
          .in_height = layer.in.height,
          .in_width = layer.in.width,
          .out_channels = layer.out.channels,
          .out_height = layer.out.height,
          .out_width = layer.out.width,
          .kernel = layer.spec.kernel,
          .stride = layer.spec.stride,
          .padding = layer.spec.padding};
}

}  // namespace lenet::cuda
