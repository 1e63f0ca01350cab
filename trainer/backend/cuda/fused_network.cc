#include "trainer/backend/cuda/fused_network.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lenet::cuda {
namespace {

// The layers that the kernels are written for.
bool IsLenet(const Net& net) {
  const absl::StatusOr<NetSpec> preset = PresetNet("lenet", net.spec().input, net.spec().classes);
  if (!preset.ok() || preset->layers.size() != net.spec().layers.size()) return false;
  for (size_t i = 0; i < preset->layers.size(); ++i) {
    const LayerSpec& wanted = preset->layers[i];
    const LayerSpec& layer = net.spec().layers[i];
    if (layer.kind != wanted.kind || layer.outputs != wanted.outputs || layer.kernel != wanted.kernel ||
        layer.stride != wanted.stride || layer.padding != wanted.padding) {
      return false;
    }
  }
  return true;
}

fused::Offsets OffsetsOf(const Net& net) {
  const auto at = [&net](int parameter) { return static_cast<int>(net.parameters()[parameter].offset); };
  return {.conv1_weight = at(0),
          .conv1_bias = at(1),
          .conv2_weight = at(2),
          .conv2_bias = at(3),
          .fc1_weight = at(4),
          .fc1_bias = at(5),
          .fc2_weight = at(6),
          .fc2_bias = at(7),
          .fc3_weight = at(8),
          .fc3_bias = at(9),
          .end = static_cast<int>(net.flat_size())};
}

absl::StatusOr<int> Attribute(const Place& place, int ordinal, cudaDeviceAttr attribute) {
  int value = 0;
  LENET_CUDA_RETURN_IF_ERROR(place, cudaDeviceGetAttribute(&value, attribute, ordinal));
  return value;
}

}  // namespace

absl::StatusOr<std::string> FusedNetwork::WhyNot(const Place& place, int ordinal, const Net& net, Precision precision) {
  const ImageShape& input = net.spec().input;
  if (!IsLenet(net)) return std::string("the layers are not those of the preset \"lenet\"");
  if (input.channels != 1 || input.height != fused::kSide || input.width != fused::kSide) {
    return absl::StrCat("the images are ", input.channels, "x", input.height, "x", input.width, ", not 1x28x28");
  }
  if (net.spec().classes > fused::kMaxClasses) {
    return absl::StrCat("there are ", net.spec().classes, " classes, more than ", fused::kMaxClasses);
  }
  if (precision != Precision::kFp32) return std::string("the precision is not fp32");
  LENET_ASSIGN_OR_RETURN(const int shared, Attribute(place, ordinal, cudaDevAttrMaxSharedMemoryPerBlockOptin));
  const int needed = fused::SharedBytes(OffsetsOf(net), net.spec().classes);
  if (shared < needed) {
    return absl::StrCat("device ", place.device, " gives a block ", shared, " bytes of shared memory, ", needed,
                        " are needed");
  }
  return std::string();
}

FusedNetwork::FusedNetwork(RankContext* rank, const Net& net, int batch, const float* parameters, float* gradient)
    : rank_(rank),
      batch_(batch),
      classes_(net.spec().classes),
      offsets_(OffsetsOf(net)),
      parameters_(parameters),
      gradient_(gradient) {}

absl::StatusOr<std::unique_ptr<FusedNetwork>> FusedNetwork::Create(RankContext* rank, const Net& net, int batch,
                                                                   int evaluation_batch, const float* parameters,
                                                                   float* gradient) {
  std::unique_ptr<FusedNetwork> made(new FusedNetwork(rank, net, batch, parameters, gradient));
  const Place& place = rank->place;
  LENET_ASSIGN_OR_RETURN(made->multiprocessors_, Attribute(place, rank->ordinal, cudaDevAttrMultiProcessorCount));
  const int64_t rows = std::max(batch, evaluation_batch);
  LENET_RETURN_IF_ERROR(
      Annotate(made->inputs_.Allocate(place, rows * fused::kInputRow + fused::kBeyondInputs), "layers' inputs"));
  LENET_RETURN_IF_ERROR(
      Annotate(made->gradients_.Allocate(place, int64_t{batch} * fused::kGradientRow), "layers' gradients"));
  const int64_t partials = fused::ConvPartialRows(batch, made->multiprocessors_);
  LENET_RETURN_IF_ERROR(made->conv_partials_.Allocate(place, partials * fused::kConvPartials));
  if (fused::IsLarge(batch, made->multiprocessors_)) {
    LENET_RETURN_IF_ERROR(made->pool2_gradients_.Allocate(place, int64_t{batch} * fused::kFeatures0));
    LENET_RETURN_IF_ERROR(Annotate(made->conv_values_.Allocate(place, int64_t{batch} * fused::kConvValueBytes),
                                   "the convolutions' values"));
  }
  LENET_RETURN_IF_ERROR(made->gradient_partials_.Allocate(place, fused::GradientPartials(batch, made->classes_)));
  LENET_RETURN_IF_ERROR(made->arrivals_.Allocate(place, made->norm_blocks()));
  const auto clear = [&](auto& array) { return cudaMemsetAsync(array.get(), 0, array.bytes(), rank->main.get()); };
  LENET_CUDA_RETURN_IF_ERROR(place, clear(made->arrivals_));
  LENET_CUDA_RETURN_IF_ERROR(place, clear(made->inputs_));  // for what is behind the last row
  LENET_CUDA_RETURN_IF_ERROR(place, fused::PreparePass(made->offsets_, made->classes_));
  LENET_CUDA_RETURN_IF_ERROR(place, fused::PrepareGradient());
  return made;
}

fused::PassArguments FusedNetwork::Arguments(const ImageSet& set, const fused::ResultArguments& results) const {
  return {.set = set,
          .batch = batch_,
          .classes = classes_,
          .parameters = parameters_,
          .offsets = offsets_,
          .results = results,
          .inputs = inputs_.get()};
}

absl::Status FusedNetwork::ForwardBackward(const Source& source, float scale, const fused::ResultArguments& results) {
  fused::PassArguments arguments = Arguments(rank_->dataset.train(), results);
  arguments.source = source;
  arguments.scale = scale;
  arguments.gradients = gradients_.get();
  arguments.conv_partials = conv_partials_.get();
  arguments.pool2_gradients = pool2_gradients_.get();
  arguments.conv_values = conv_values_.get();
  LENET_CUDA_RETURN_IF_ERROR(rank_->place, fused::LaunchPass(arguments, multiprocessors_, rank_->main.get()));
  return absl::OkStatus();
}

absl::Status FusedNetwork::Gradient(const float* losses, Chunk* chunk, float* step_losses, double* norm_partials) {
  const fused::GradientArguments arguments = {.inputs = inputs_.get(),
                                              .gradients = gradients_.get(),
                                              .conv_partials = conv_partials_.get(),
                                              .losses = losses,
                                              .batch = batch_,
                                              .conv_partial_rows = fused::ConvPartialRows(batch_, multiprocessors_),
                                              .classes = classes_,
                                              .offsets = offsets_,
                                              .gradient = gradient_,
                                              .norm_partials = norm_partials,
                                              .chunk = chunk,
                                              .step_losses = step_losses,
                                              .partials = gradient_partials_.get(),
                                              .arrivals = arrivals_.get()};
  LENET_CUDA_RETURN_IF_ERROR(rank_->place, fused::LaunchGradient(arguments, rank_->main.get()));
  return absl::OkStatus();
}

absl::Status FusedNetwork::Forward(const ImageSet& set, int64_t begin, int count,
                                   const fused::ResultArguments& results) {
  fused::PassArguments arguments = Arguments(set, results);
  arguments.batch = count;
  arguments.source.begin = begin;
  arguments.backward = false;
  LENET_CUDA_RETURN_IF_ERROR(rank_->place, fused::LaunchPass(arguments, multiprocessors_, rank_->main.get()));
  return absl::OkStatus();
}

}  // namespace lenet::cuda
