// Pooling and activation through cuDNN.
#include "trainer/backend/cuda/cudnn_tensors.h"
#include "trainer/backend/cuda/stage.h"

namespace lenet::cuda {
namespace {

constexpr float kOne = 1;
constexpr float kZero = 0;

class PoolStage : public Stage {
 public:
  PoolStage(NetworkContext* context, const Tensor& in, const Tensor& out) : context_(context), in_(in), out_(out) {}

  absl::Status Init(const Layer& layer) {
    const Place& place = context_->rank->place;
    const int kernel = layer.spec.kernel;
    const int stride = layer.spec.stride;
    LENET_RETURN_IF_ERROR(MakeTensorDescriptor(place, context_->batch, in_.shape, in_descriptor_));
    LENET_RETURN_IF_ERROR(MakeTensorDescriptor(place, context_->batch, out_.shape, out_descriptor_));
    LENET_CUDA_RETURN_IF_ERROR(place, cudnnCreatePoolingDescriptor(pooling_.receive()));
    LENET_CUDA_RETURN_IF_ERROR(place,
                               cudnnSetPooling2dDescriptor(pooling_.get(),
                                                           layer.spec.kind == LayerKind::kMaxPool2D
                                                               ? CUDNN_POOLING_MAX_DETERMINISTIC
                                                               : CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
                                                           CUDNN_PROPAGATE_NAN, kernel, kernel, 0, 0, stride, stride));
    return absl::OkStatus();
  }

  absl::Status Forward() override {
    const RankContext& rank = *context_->rank;
    LENET_CUDA_RETURN_IF_ERROR(
        rank.place, cudnnPoolingForward(rank.cudnn.get(), pooling_.get(), &kOne, in_descriptor_.get(), in_.value,
                                        &kZero, out_descriptor_.get(), out_.value));
    return absl::OkStatus();
  }

  absl::Status Backward() override {
    if (in_.gradient == nullptr) return absl::OkStatus();
    const RankContext& rank = *context_->rank;
    LENET_CUDA_RETURN_IF_ERROR(
        rank.place, cudnnPoolingBackward(rank.cudnn.get(), pooling_.get(), &kOne, out_descriptor_.get(), out_.value,
                                         out_descriptor_.get(), out_.gradient, in_descriptor_.get(), in_.value, &kZero,
                                         in_descriptor_.get(), in_.gradient));
    return absl::OkStatus();
  }

 private:
  NetworkContext* const context_;
  const Tensor in_;
  const Tensor out_;
  TensorDescriptor in_descriptor_;
  TensorDescriptor out_descriptor_;
  PoolingDescriptor pooling_;
};

class ActivationStage : public Stage {
 public:
  ActivationStage(NetworkContext* context, const Tensor& in, const Tensor& out)
      : context_(context), in_(in), out_(out) {}

  absl::Status Init(Activation activation) {
    LENET_RETURN_IF_ERROR(MakeTensorDescriptor(context_->rank->place, context_->batch, in_.shape, tensor_));
    return MakeActivationDescriptor(context_->rank->place, activation, activation_);
  }

  absl::Status Forward() override {
    const RankContext& rank = *context_->rank;
    LENET_CUDA_RETURN_IF_ERROR(
        rank.place, cudnnActivationForward(rank.cudnn.get(), activation_.get(), &kOne, tensor_.get(), in_.value, &kZero,
                                           tensor_.get(), out_.value));
    return absl::OkStatus();
  }

  absl::Status Backward() override {
    if (in_.gradient == nullptr) return absl::OkStatus();
    const RankContext& rank = *context_->rank;
    LENET_CUDA_RETURN_IF_ERROR(
        rank.place,
        cudnnActivationBackward(rank.cudnn.get(), activation_.get(), &kOne, tensor_.get(), out_.value, tensor_.get(),
                                out_.gradient, tensor_.get(), in_.value, &kZero, tensor_.get(), in_.gradient));
    return absl::OkStatus();
  }

 private:
  NetworkContext* const context_;
  const Tensor in_;
  const Tensor out_;
  TensorDescriptor tensor_;
  ActivationDescriptor activation_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> NewPoolStage(NetworkContext* context, const Layer& layer, const Tensor& in,
                                                    const Tensor& out) {
  auto stage = std::make_unique<PoolStage>(context, in, out);
  LENET_RETURN_IF_ERROR(stage->Init(layer));
  return stage;
}

absl::StatusOr<std::unique_ptr<Stage>> NewActivationStage(NetworkContext* context, Activation activation,
                                                          const Tensor& in, const Tensor& out) {
  auto stage = std::make_unique<ActivationStage>(context, in, out);
  LENET_RETURN_IF_ERROR(stage->Init(activation));
  return stage;
}

}  // namespace lenet::cuda
