#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/backend/cuda/cudnn_tensors.h"
#include "trainer/backend/cuda/stage.h"

namespace lenet::cuda {
namespace {

constexpr float kOne = 1;
constexpr float kZero = 0;

// In order of preference. All are deterministic and add up plain products; the transforms (FFT, Winograd) round more.
constexpr cudnnConvolutionFwdAlgo_t kForward[] = {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_GEMM};
constexpr cudnnConvolutionBwdDataAlgo_t kBackwardData[] = {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1};
constexpr cudnnConvolutionBwdFilterAlgo_t kBackwardFilter[] = {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1};

constexpr size_t kMaxWorkspaceBytes = size_t{1} << 30;

class CudnnConvStage : public Stage {
 public:
  CudnnConvStage(NetworkContext* context, const Layer& layer, Activation activation, const Tensor& in,
                 const Tensor& out)
      : context_(context), layer_(layer), activation_(activation), in_(in), out_(out) {}

  absl::Status Init() {
    RankContext* rank = context_->rank;
    const Place& place = rank->place;
    const LayerSpec& spec = layer_.spec;
    LENET_RETURN_IF_ERROR(MakeTensorDescriptor(place, context_->batch, in_.shape, in_descriptor_));
    LENET_RETURN_IF_ERROR(MakeTensorDescriptor(place, context_->batch, out_.shape, out_descriptor_));
    LENET_CUDA_RETURN_IF_ERROR(place, cudnnCreateFilterDescriptor(filter_.receive()));
    LENET_CUDA_RETURN_IF_ERROR(
        place, cudnnSetFilter4dDescriptor(filter_.get(), CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, spec.outputs,
                                          in_.shape.channels, spec.kernel, spec.kernel));
    LENET_CUDA_RETURN_IF_ERROR(place, cudnnCreateConvolutionDescriptor(convolution_.receive()));
    LENET_CUDA_RETURN_IF_ERROR(
        place, cudnnSetConvolution2dDescriptor(convolution_.get(), spec.padding, spec.padding, spec.stride, spec.stride,
                                               1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    LENET_CUDA_RETURN_IF_ERROR(
        place, cudnnSetConvolutionMathType(
                   convolution_.get(), context_->precision == Precision::kTf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH));
    const cudnnHandle_t cudnn = rank->cudnn.get();
    size_t workspace = 0;
    LENET_RETURN_IF_ERROR(Choose("forward", kForward, forward_, workspace, [&](auto algorithm, size_t* bytes) {
      return cudnnGetConvolutionForwardWorkspaceSize(cudnn, in_descriptor_.get(), filter_.get(), convolution_.get(),
                                                     out_descriptor_.get(), algorithm, bytes);
    }));
    if (context_->training) {
      LENET_RETURN_IF_ERROR(
          Choose("backward filter", kBackwardFilter, backward_filter_, workspace, [&](auto algorithm, size_t* bytes) {
            return cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnn, in_descriptor_.get(), out_descriptor_.get(),
                                                                  convolution_.get(), filter_.get(), algorithm, bytes);
          }));
      if (in_.gradient != nullptr) {
        LENET_RETURN_IF_ERROR(
            Choose("backward data", kBackwardData, backward_data_, workspace, [&](auto algorithm, size_t* bytes) {
              return cudnnGetConvolutionBackwardDataWorkspaceSize(cudnn, filter_.get(), out_descriptor_.get(),
                                                                  convolution_.get(), in_descriptor_.get(), algorithm,
                                                                  bytes);
            }));
      }
      const int rows = BiasPartialRows(context_->batch);
      LENET_RETURN_IF_ERROR(partials_.Allocate(place, int64_t{rows} * spec.outputs));
      context_->reductions.push_back({.partials = partials_.get(),
                                      .out = context_->gradient(layer_.bias),
                                      .stride = spec.outputs,
                                      .rows = rows,
                                      .size = spec.outputs});
    }
    return rank->ReserveCudnnWorkspace(workspace);
  }

  absl::Status Forward() override {
    const RankContext& rank = *context_->rank;
    const DeviceArray<std::byte>& workspace = rank.cudnn_workspace;
    LENET_CUDA_RETURN_IF_ERROR(
        rank.place,
        cudnnConvolutionForward(rank.cudnn.get(), &kOne, in_descriptor_.get(), in_.value, filter_.get(),
                                context_->parameter(layer_.weight), convolution_.get(), forward_, workspace.get(),
                                workspace.bytes(), &kZero, out_descriptor_.get(), out_.value));
    LENET_CUDA_RETURN_IF_ERROR(rank.place,
                               LaunchBiasActivation(out_.value, context_->parameter(layer_.bias), context_->batch,
                                                    out_.shape.channels, Area(), activation_, rank.main.get()));
    return absl::OkStatus();
  }

  absl::Status Backward() override {
    const RankContext& rank = *context_->rank;
    const DeviceArray<std::byte>& workspace = rank.cudnn_workspace;
    LENET_CUDA_RETURN_IF_ERROR(
        rank.place, LaunchChannelGradient(out_.gradient, out_.value, context_->batch, out_.shape.channels, Area(),
                                          activation_, partials_.get(), rank.main.get()));
    LENET_CUDA_RETURN_IF_ERROR(
        rank.place,
        cudnnConvolutionBackwardFilter(rank.cudnn.get(), &kOne, in_descriptor_.get(), in_.value, out_descriptor_.get(),
                                       out_.gradient, convolution_.get(), backward_filter_, workspace.get(),
                                       workspace.bytes(), &kZero, filter_.get(), context_->gradient(layer_.weight)));
    if (in_.gradient != nullptr) {
      LENET_CUDA_RETURN_IF_ERROR(
          rank.place,
          cudnnConvolutionBackwardData(rank.cudnn.get(), &kOne, filter_.get(), context_->parameter(layer_.weight),
                                       out_descriptor_.get(), out_.gradient, convolution_.get(), backward_data_,
                                       workspace.get(), workspace.bytes(), &kZero, in_descriptor_.get(), in_.gradient));
    }
    return absl::OkStatus();
  }

 private:
  int Area() const { return out_.shape.height * out_.shape.width; }

  // The first algorithm that cuDNN offers for these shapes within the bound; `workspace` grows to what it needs.
  template <typename Algorithm, size_t kCount, typename WorkspaceSize>
  absl::Status Choose(absl::string_view what, const Algorithm (&list)[kCount], Algorithm& chosen, size_t& workspace,
                      const WorkspaceSize& workspace_size) {
    for (const Algorithm algorithm : list) {
      size_t bytes = 0;
      if (workspace_size(algorithm, &bytes) == CUDNN_STATUS_SUCCESS && bytes <= kMaxWorkspaceBytes) {
        chosen = algorithm;
        workspace = std::max(workspace, bytes);
        return absl::OkStatus();
      }
    }
    return absl::UnimplementedError(absl::StrCat(
        "cuDNN has no deterministic ", what, " algorithm for layer ", layer_.spec.name, " at batch ", context_->batch,
        " within ", kMaxWorkspaceBytes, " bytes, on device ", context_->rank->place.device));
  }

  NetworkContext* const context_;
  const Layer layer_;
  const Activation activation_;
  const Tensor in_;
  const Tensor out_;
  TensorDescriptor in_descriptor_;
  TensorDescriptor out_descriptor_;
  FilterDescriptor filter_;
  ConvolutionDescriptor convolution_;
  cudnnConvolutionFwdAlgo_t forward_ = kForward[0];
  cudnnConvolutionBwdDataAlgo_t backward_data_ = kBackwardData[0];
  cudnnConvolutionBwdFilterAlgo_t backward_filter_ = kBackwardFilter[0];
  DeviceArray<float> partials_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> NewCudnnConvStage(NetworkContext* context, const Layer& layer,
                                                         Activation activation, const Tensor& in, const Tensor& out) {
  auto stage = std::make_unique<CudnnConvStage>(context, layer, activation, in, out);
  LENET_RETURN_IF_ERROR(stage->Init());
  return stage;
}

}  // namespace lenet::cuda
