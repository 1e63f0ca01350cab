#include "trainer/backend/cpu/network.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"

namespace lenet::cpu {
namespace {

constexpr int kMaxBlocks = 4;                      // of a pass: 64 images
constexpr int64_t kPassFloats = int64_t{1} << 28;  // 1 GiB; a network that needs more gets passes of fewer blocks
constexpr int64_t kMaxFloats = std::numeric_limits<int32_t>::max();  // offsets are 32 bits

bool IsActivation(LayerKind kind) { return kind == LayerKind::kRelu || kind == LayerKind::kTanh; }

struct TensorPlan {
  ImageShape shape;
  bool has_gradient = false;
  int border = 0;  // the padding of the convolution that reads the values
};

// Which tensors lie between the layers, and what the layers do for one another.
struct Plan {
  std::vector<TensorPlan> tensors;
  std::vector<int> in;   // of each layer: index into tensors
  std::vector<int> out;  // of each layer
  std::vector<FusedRelu> relu;
};

Plan MakePlan(const Net& net) {
  const std::span<const Layer> layers = net.layers();
  Plan plan;
  plan.tensors.push_back({.shape = net.spec().input});
  plan.relu.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& spec = layers[i].spec;
    TensorPlan& in = plan.tensors.back();
    const bool has_gradient = in.has_gradient;
    if (spec.kind == LayerKind::kConv2D) in.border = spec.padding;
    plan.in.push_back(static_cast<int>(plan.tensors.size()) - 1);
    // An activation overwrites its input, which no other kind of layer needs for its backward pass once it gave it.
    const bool in_place = IsActivation(spec.kind) && i > 0 && !IsActivation(layers[i - 1].spec.kind);
    if (!in_place) {
      plan.tensors.push_back({.shape = layers[i].out, .has_gradient = has_gradient || layers[i].weight >= 0});
    } else if (spec.kind == LayerKind::kRelu) {
      if (layers[i - 1].weight >= 0) plan.relu[i - 1].forward = plan.relu[i].forward = true;
      if (i + 1 < layers.size() && layers[i + 1].spec.kind == LayerKind::kMaxPool2D) {
        plan.relu[i].backward = plan.relu[i + 1].backward = true;
      }
    }
    plan.out.push_back(static_cast<int>(plan.tensors.size()) - 1);
  }
  return plan;
}

int64_t FloatsNeeded(const Net& net, const std::vector<Tensor>& tensors, const std::vector<TensorPlan>& plans,
                     int blocks) {
  int64_t floats = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    floats += blocks * tensors[i].layout.block;
    if (plans[i].has_gradient) floats += blocks * tensors[i].gradient_layout.block;
  }
  for (const Layer& layer : net.layers()) {
    if (layer.spec.kind == LayerKind::kLinear) floats += LinearScratch(layer, blocks);
  }
  return floats;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const Net& net, const Kernels& kernels) {
  std::unique_ptr<Network> network(new Network(net, kernels));
  LENET_RETURN_IF_ERROR(network->Build());
  return network;
}

absl::Status Network::Build() {
  const Plan plan = MakePlan(net_);
  tensors_.reserve(plan.tensors.size());
  for (const TensorPlan& tensor : plan.tensors) {
    tensors_.push_back({.layout = Layout(tensor.shape, tensor.border), .gradient_layout = Layout(tensor.shape, 0)});
  }
  max_blocks_ = kMaxBlocks;
  int64_t floats = FloatsNeeded(net_, tensors_, plan.tensors, max_blocks_);
  while (floats > kPassFloats && max_blocks_ > 1) {
    max_blocks_ /= 2;
    floats = FloatsNeeded(net_, tensors_, plan.tensors, max_blocks_);
  }
  if (floats > kMaxFloats || !memory_.Allocate(floats)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "network \"", net_.spec().name, "\" needs ", floats * int64_t{sizeof(float)}, " bytes for ", pass_size(),
        " images on a CPU rank; the bound is ", kMaxFloats * int64_t{sizeof(float)}, " or what memory is free"));
  }

  float* next = memory_.data();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].value = next;
    next += max_blocks_ * tensors_[i].layout.block;
    if (!plan.tensors[i].has_gradient) continue;
    tensors_[i].gradient = next;
    next += max_blocks_ * tensors_[i].gradient_layout.block;
  }
  for (size_t i = 0; i < net_.layers().size(); ++i) {
    const Layer& layer = net_.layers()[i];
    layers_.push_back(
        NewLayer(kernels_, net_, layer, tensors_[plan.in[i]], tensors_[plan.out[i]], plan.relu[i], max_blocks_, next));
    if (layer.spec.kind == LayerKind::kLinear) next += LinearScratch(layer, max_blocks_);
  }
  labels_.resize(pass_size());
  losses_.resize(pass_size());
  probabilities_.resize(static_cast<size_t>(pass_size()) * net_.spec().classes);
  return absl::OkStatus();
}

void Network::Forward(const Split& split, std::span<const uint32_t> indices, const float* parameters) {
  count_ = static_cast<int>(indices.size());
  Unpack(split, indices);
  for (const auto& layer : layers_) layer->Forward(blocks(), parameters);
  ComputeLosses();
}

void Network::Unpack(const Split& split, std::span<const uint32_t> indices) {
  const Tensor& input = tensors_.front();
  const ImageShape& shape = input.layout.shape;
  // The images lie anywhere in the set: ask for all of them before the first is needed.
  constexpr int64_t kLine = 64;
  for (const uint32_t index : indices) {
    const uint8_t* image = split.images.data() + index * shape.size();
    for (int64_t i = 0; i < shape.size(); i += kLine) __builtin_prefetch(image + i);
  }
  for (int b = 0; b < blocks(); ++b) {
    const int count = std::min(kBlock, count_ - b * kBlock);
    std::array<const uint8_t*, kBlock> images;
    for (int i = 0; i < count; ++i) {
      const uint32_t index = indices[b * kBlock + i];
      images[i] = split.images.data() + index * shape.size();
      labels_[b * kBlock + i] = split.labels[index];
    }
    if (input.layout.dense()) {
      kernels_.unpack(images.data(), count, 0, shape.size(), input.value + input.layout.At(b, 0, 0, 0));
      continue;
    }
    for (int c = 0; c < shape.channels; ++c) {
      for (int y = 0; y < shape.height; ++y) {
        kernels_.unpack(images.data(), count, (int64_t{c} * shape.height + y) * shape.width, shape.width,
                        input.value + input.layout.At(b, c, y, 0));
      }
    }
  }
}

// Softmax cross-entropy, loss = log(sum of exp(logit - max)) - (logit of the label - max).
void Network::ComputeLosses() {
  const Tensor& output = tensors_.back();
  const int classes = net_.spec().classes;
  correct_ = 0;
  for (int n = 0; n < count_; ++n) {
    const float* logits = output.value + output.layout.At(n / kBlock, 0, 0, 0) + n % kBlock;
    int best = 0;
    for (int k = 1; k < classes; ++k) {
      if (logits[k * kBlock] > logits[best * kBlock]) best = k;
    }
    const float max = logits[best * kBlock];
    float* probabilities = probabilities_.data() + static_cast<int64_t>(n) * classes;
    double sum = 0;
    for (int k = 0; k < classes; ++k) {
      probabilities[k] = std::exp(logits[k * kBlock] - max);
      sum += probabilities[k];
    }
    const float factor = static_cast<float>(1 / sum);
    for (int k = 0; k < classes; ++k) probabilities[k] *= factor;
    const int label = labels_[n];
    losses_[n] = std::log(sum) - (double{logits[label * kBlock]} - max);
    correct_ += best == label;
  }
}

void Network::CopyLogits(std::span<float> logits) const {
  const Tensor& output = tensors_.back();
  const int classes = net_.spec().classes;
  for (int n = 0; n < count_; ++n) {
    for (int k = 0; k < classes; ++k) {
      logits[static_cast<size_t>(n) * classes + k] = output.value[output.layout.At(n / kBlock, k, 0, 0) + n % kBlock];
    }
  }
}

void Network::Backward(float scale, const float* parameters, bool accumulate, float* gradient) {
  const Tensor& output = tensors_.back();
  const int classes = net_.spec().classes;
  for (int n = 0; n < blocks() * kBlock; ++n) {
    float* to = output.gradient + output.gradient_layout.At(n / kBlock, 0, 0, 0) + n % kBlock;
    const float* probabilities = probabilities_.data() + static_cast<int64_t>(n) * classes;
    for (int k = 0; k < classes; ++k) {
      to[k * kBlock] = n < count_ ? (probabilities[k] - (labels_[n] == k ? 1.0f : 0.0f)) * scale : 0.0f;
    }
  }
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    (*layer)->Backward(blocks(), parameters, accumulate, gradient);
  }
}

}  // namespace lenet::cpu
