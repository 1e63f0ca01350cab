#include "trainer/backend/cuda/network.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace lenet::cuda {
namespace {

std::optional<Activation> ActivationOf(LayerKind kind) {
  if (kind == LayerKind::kRelu) return Activation::kRelu;
  if (kind == LayerKind::kTanh) return Activation::kTanh;
  return std::nullopt;
}

bool IsPairwiseMaximum(const LayerSpec& spec) {
  return spec.kind == LayerKind::kMaxPool2D && spec.kernel == 2 && spec.stride == 2;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(RankContext* rank, const Net& net, int batch,
                                                         Precision precision, const float* parameters,
                                                         float* gradients) {
  std::unique_ptr<Network> network(new Network);
  LENET_ASSIGN_OR_RETURN(network->side_, SideBranch::Create(rank));
  NetworkContext& context = network->context_;
  context.rank = rank;
  context.side = network->side_.get();
  context.batch = batch;
  context.training = gradients != nullptr;
  context.precision = precision;
  context.net = &net;
  context.parameters = parameters;
  context.gradients = gradients;
  LENET_RETURN_IF_ERROR(network->Build(net));
  return network;
}

absl::Status Network::AddTensor(const ImageShape& shape, bool has_gradient) {
  Tensor tensor = {.shape = shape};
  for (float** pointer : {&tensor.value, has_gradient ? &tensor.gradient : nullptr}) {
    if (pointer == nullptr) continue;
    DeviceArray<float>& buffer = buffers_.emplace_back();
    LENET_RETURN_IF_ERROR(Annotate(buffer.Allocate(context_.rank->place, shape.size() * context_.batch),
                                   absl::StrCat("values of layers at batch ", context_.batch)));
    *pointer = buffer.get();
  }
  tensors_.push_back(tensor);
  return absl::OkStatus();
}

absl::Status Network::Build(const Net& net) {
  LENET_RETURN_IF_ERROR(AddTensor(net.spec().input, false));
  const std::span<const Layer> layers = net.layers();
  bool behind_parameters = false;  // so that gradients must pass
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const LayerKind kind = layer.spec.kind;
    // [C, H, W] and [C * H * W, 1, 1] lie alike.
    if (kind == LayerKind::kFlatten) continue;
    Tensor in = tensors_.back();
    in.shape = layer.in;
    const bool is_convolution = kind == LayerKind::kConv2D;
    const bool has_parameters = is_convolution || kind == LayerKind::kLinear;

    // What the layer's own stage takes over of those that follow it.
    const Layer* last = &layer;
    Activation activation = ActivationOf(kind).value_or(Activation::kNone);
    bool pooled = false;
    const bool direct = is_convolution && context_.rank->tuning.direct_convolution &&
                        DirectConvolutionFits(ConvShapeOf(layer, context_.batch), behind_parameters);
    if (has_parameters && i + 1 < layers.size() && ActivationOf(layers[i + 1].spec.kind).has_value()) {
      last = &layers[++i];
      activation = *ActivationOf(last->spec.kind);
    }
    if (direct && i + 1 < layers.size() && IsPairwiseMaximum(layers[i + 1].spec)) {
      last = &layers[++i];
      pooled = true;
    }
    behind_parameters = behind_parameters || has_parameters;
    LENET_RETURN_IF_ERROR(AddTensor(last->out, context_.training && behind_parameters));
    const Tensor& out = tensors_.back();

    absl::StatusOr<std::unique_ptr<Stage>> stage;
    switch (kind) {
      case LayerKind::kConv2D:
        stage = direct ? NewDirectConvStage(&context_, layer, activation, pooled, in, out)
                       : NewCudnnConvStage(&context_, layer, activation, in, out);
        break;
      case LayerKind::kLinear:
        stage = NewLinearStage(&context_, layer, activation, in, out);
        break;
      case LayerKind::kMaxPool2D:
      case LayerKind::kAvgPool2D:
        stage = NewPoolStage(&context_, layer, in, out);
        break;
      case LayerKind::kRelu:
      case LayerKind::kTanh:
        stage = NewActivationStage(&context_, activation, in, out);
        break;
      case LayerKind::kFlatten:
        break;
    }
    if (!stage.ok()) {
      return Annotate(stage.status(), absl::StrCat("layer ", layer.spec.name, " (", LayerKindName(kind), ")"));
    }
    stages_.push_back(*std::move(stage));
  }
  return absl::OkStatus();
}

absl::Status Network::Forward() {
  for (const auto& stage : stages_) LENET_RETURN_IF_ERROR(stage->Forward());
  return absl::OkStatus();
}

absl::Status Network::Backward() {
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) LENET_RETURN_IF_ERROR((*stage)->Backward());
  return side_->Join();
}

}  // namespace lenet::cuda
