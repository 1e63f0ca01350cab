#include <optional>

#include "trainer/backend/cuda/cudnn_tensors.h"
#include "trainer/backend/cuda/gemm.h"
#include "trainer/backend/cuda/stage.h"

namespace lenet::cuda {
namespace {

class LinearStage : public Stage {
 public:
  LinearStage(NetworkContext* context, const Layer& layer, Activation activation, const Tensor& in, const Tensor& out)
      : context_(context),
        layer_(layer),
        activation_(activation),
        in_(in),
        out_(out),
        inputs_(static_cast<int>(in.shape.size())),
        outputs_(static_cast<int>(out.shape.size())) {}

  absl::Status Init() {
    const int batch = context_->batch;
    const GemmEpilogue epilogue = activation_ == Activation::kRelu ? GemmEpilogue::kBiasRelu : GemmEpilogue::kBias;
    LENET_RETURN_IF_ERROR(Make({.m = batch, .n = outputs_, .k = inputs_, .transpose_b = true}, epilogue, forward_));
    if (activation_ == Activation::kTanh) {
      LENET_RETURN_IF_ERROR(MakeTensorDescriptor(context_->rank->place, batch, out_.shape, out_descriptor_));
      LENET_RETURN_IF_ERROR(MakeActivationDescriptor(context_->rank->place, activation_, activation_descriptor_));
    }
    if (!context_->training) return absl::OkStatus();
    LENET_RETURN_IF_ERROR(
        Make({.m = outputs_, .n = inputs_, .k = batch, .transpose_a = true}, GemmEpilogue::kNone, weight_gradient_));
    if (in_.gradient != nullptr) {
      LENET_RETURN_IF_ERROR(Make({.m = batch, .n = inputs_, .k = outputs_}, GemmEpilogue::kNone, data_gradient_));
    }
    const int rows = BiasPartialRows(batch);
    LENET_RETURN_IF_ERROR(partials_.Allocate(context_->rank->place, int64_t{rows} * outputs_));
    context_->reductions.push_back({.partials = partials_.get(),
                                    .out = context_->gradient(layer_.bias),
                                    .stride = outputs_,
                                    .rows = rows,
                                    .size = outputs_});
    return absl::OkStatus();
  }

  absl::Status Forward() override {
    const RankContext& rank = *context_->rank;
    LENET_RETURN_IF_ERROR(forward_->Run(in_.value, context_->parameter(layer_.weight), out_.value,
                                        rank.blas_workspace.get(), rank.main.get()));
    if (activation_ == Activation::kTanh) {
      const float one = 1;
      const float zero = 0;
      LENET_CUDA_RETURN_IF_ERROR(rank.place, cudnnActivationForward(rank.cudnn.get(), activation_descriptor_.get(),
                                                                    &one, out_descriptor_.get(), out_.value, &zero,
                                                                    out_descriptor_.get(), out_.value));
    }
    return absl::OkStatus();
  }

  absl::Status Backward() override {
    const RankContext& rank = *context_->rank;
    LENET_CUDA_RETURN_IF_ERROR(rank.place, LaunchColumnGradient(out_.gradient, out_.value, context_->batch, outputs_,
                                                                activation_, partials_.get(), rank.main.get()));
    SideBranch* side = context_->side;
    LENET_RETURN_IF_ERROR(side->Fork());
    LENET_RETURN_IF_ERROR(weight_gradient_->Run(out_.gradient, in_.value, context_->gradient(layer_.weight),
                                                side->blas_workspace(), side->stream()));
    if (data_gradient_.has_value()) {
      LENET_RETURN_IF_ERROR(data_gradient_->Run(out_.gradient, context_->parameter(layer_.weight), in_.gradient,
                                                rank.blas_workspace.get(), rank.main.get()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Make(const GemmShape& shape, GemmEpilogue epilogue, std::optional<Gemm>& gemm) {
    LENET_ASSIGN_OR_RETURN(gemm, Gemm::Create(context_->rank->place, context_->rank->blas.get(), shape, epilogue,
                                              context_->parameter(layer_.bias), context_->precision));
    return absl::OkStatus();
  }

  NetworkContext* const context_;
  const Layer layer_;
  const Activation activation_;
  const Tensor in_;
  const Tensor out_;
  const int inputs_;
  const int outputs_;
  std::optional<Gemm> forward_;
  std::optional<Gemm> weight_gradient_;
  std::optional<Gemm> data_gradient_;
  TensorDescriptor out_descriptor_;
  ActivationDescriptor activation_descriptor_;
  DeviceArray<float> partials_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> NewLinearStage(NetworkContext* context, const Layer& layer,
                                                      Activation activation, const Tensor& in, const Tensor& out) {
  auto stage = std::make_unique<LinearStage>(context, layer, activation, in, out);
  LENET_RETURN_IF_ERROR(stage->Init());
  return stage;
}

}  // namespace lenet::cuda
