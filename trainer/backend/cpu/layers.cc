#include "trainer/backend/cpu/layers.h"

#include <algorithm>
#include <vector>

namespace lenet::cpu {
namespace {

using Offsets = std::vector<int32_t>;

int64_t RoundUp(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

void Push(Offsets* offsets, int64_t offset) { offsets->push_back(static_cast<int32_t>(offset)); }

class ConvLayer final : public CpuLayer {
 public:
  ConvLayer(const Kernels& kernels, const Net& net, const Layer& layer, const Tensor& in, const Tensor& out,
            bool fused_relu, int max_blocks)
      : kernels_(kernels),
        in_(in),
        out_(out),
        weight_(net.parameters()[layer.weight].offset),
        bias_(net.parameters()[layer.bias].offset),
        cells_(int64_t{layer.out.height} * layer.out.width) {
    const LayerSpec& spec = layer.spec;
    for (int b = 0; b < max_blocks; ++b) {
      for (int y = 0; y < layer.out.height; ++y) {
        for (int x = 0; x < layer.out.width; ++x) {
          Push(&in_cells_, in.layout.At(b, 0, y * spec.stride - spec.padding, x * spec.stride - spec.padding));
          Push(&out_cells_, out.layout.At(b, 0, y, x));
          Push(&gradient_cells_, out.gradient_layout.At(b, 0, y, x));
        }
      }
    }
    for (int c = 0; c < layer.in.channels; ++c) {
      for (int ky = 0; ky < spec.kernel; ++ky) {
        for (int kx = 0; kx < spec.kernel; ++kx) {
          Push(&in_taps_, c * in.layout.plane + ky * in.layout.row + kx * kBlock);
        }
      }
    }
    const int64_t area = int64_t{spec.kernel} * spec.kernel;
    for (int64_t t = 0; t < area; ++t) Push(&weight_taps_, t);
    forward_ = {.in_cells = in_cells_.data(),
                .out_cells = out_cells_.data(),
                .in_taps = in_taps_.data(),
                .weight_taps = weight_taps_.data(),
                .taps = area,
                .channels = layer.in.channels,
                .in_stride = in.layout.plane,
                .weight_channel_stride = area,
                .outputs = layer.out.channels,
                .weight_stride = area * layer.in.channels,
                .out_stride = out.layout.plane,
                .relu = fused_relu};
    correlation_ = {.in_cells = in_cells_.data(),
                    .gradient_cells = gradient_cells_.data(),
                    .in_taps = in_taps_.data(),
                    .taps = area * layer.in.channels,
                    .outputs = layer.out.channels,
                    .gradient_stride = out.gradient_layout.plane};
    if (in.gradient != nullptr) PlanBackward(layer, max_blocks);
  }

  void Forward(int blocks, const float* parameters) override {
    Product product = forward_;
    product.cells = cells_ * blocks;
    kernels_.product(product, in_.value, parameters + weight_, parameters + bias_, out_.value);
  }

  void Backward(int blocks, const float* parameters, bool accumulate, float* gradient) override {
    Correlation correlation = correlation_;
    correlation.cells = cells_ * blocks;
    correlation.accumulate = accumulate;
    kernels_.correlate(correlation, in_.value, out_.gradient, gradient + weight_);
    kernels_.sum_cells(correlation, out_.gradient, gradient + bias_);
    for (const Part& part : parts_) {
      Product product = part.product;
      product.cells = part.cells * blocks;
      kernels_.product(product, out_.gradient, parameters + weight_, nullptr, in_.gradient);
    }
  }

 private:
  // Rows (or columns) of the input that lie under the same rows of the kernel.
  struct Band {
    std::vector<int> kernel;  // rows of the kernel, from the first
    std::vector<int> rows;
    std::vector<int> out_rows;  // of the output, that kernel.front() makes of rows
  };

  // Pixels of the input that lie under the same part of the kernel: their gradient is one product over it.
  struct Part {
    Offsets in_cells, out_cells, in_taps, weight_taps;
    int64_t cells = 0;  // of a block
    Product product;
  };

  // Row y of the input meets row k of the kernel in row (y + padding - k) / stride of the output. Rows that meet none
  // are left out: their gradient stays 0.
  static std::vector<Band> Bands(const LayerSpec& spec, int size, int out_size) {
    std::vector<Band> bands;
    for (int y = 0; y < size; ++y) {
      std::vector<int> kernel;
      for (int k = 0; k < spec.kernel; ++k) {
        const int at = y + spec.padding - k;
        if (at >= 0 && at % spec.stride == 0 && at / spec.stride < out_size) kernel.push_back(k);
      }
      if (kernel.empty()) continue;
      auto band = std::ranges::find(bands, kernel, &Band::kernel);
      if (band == bands.end()) band = bands.insert(bands.end(), {.kernel = kernel});
      band->rows.push_back(y);
      band->out_rows.push_back((y + spec.padding - kernel.front()) / spec.stride);
    }
    return bands;
  }

  void PlanBackward(const Layer& layer, int max_blocks) {
    const std::vector<Band> rows = Bands(layer.spec, layer.in.height, layer.out.height);
    const std::vector<Band> columns = Bands(layer.spec, layer.in.width, layer.out.width);
    for (const Band& y : rows) {
      for (const Band& x : columns) parts_.push_back(PlanPart(layer, y, x, max_blocks));
    }
  }

  Part PlanPart(const Layer& layer, const Band& y, const Band& x, int max_blocks) {
    const LayerSpec& spec = layer.spec;
    const Layout& from = out_.gradient_layout;
    Part part;
    for (int b = 0; b < max_blocks; ++b) {
      for (size_t i = 0; i < y.rows.size(); ++i) {
        for (size_t j = 0; j < x.rows.size(); ++j) {
          Push(&part.in_cells, from.At(b, 0, y.out_rows[i], x.out_rows[j]));
          Push(&part.out_cells, in_.gradient_layout.At(b, 0, y.rows[i], x.rows[j]));
        }
      }
    }
    for (const int ky : y.kernel) {
      for (const int kx : x.kernel) {
        Push(&part.in_taps,
             (y.kernel.front() - ky) / spec.stride * from.row + (x.kernel.front() - kx) / spec.stride * kBlock);
        Push(&part.weight_taps, ky * spec.kernel + kx);
      }
    }
    const int64_t area = int64_t{spec.kernel} * spec.kernel;
    part.cells = static_cast<int64_t>(part.in_cells.size()) / max_blocks;
    part.product = {.in_cells = part.in_cells.data(),
                    .out_cells = part.out_cells.data(),
                    .in_taps = part.in_taps.data(),
                    .weight_taps = part.weight_taps.data(),
                    .taps = static_cast<int64_t>(part.in_taps.size()),
                    .channels = layer.out.channels,
                    .in_stride = from.plane,
                    .weight_channel_stride = layer.in.channels * area,
                    .outputs = layer.in.channels,
                    .weight_stride = area,
                    .out_stride = in_.gradient_layout.plane};
    return part;
  }

  const Kernels& kernels_;
  const Tensor& in_;
  const Tensor& out_;
  const int64_t weight_;
  const int64_t bias_;
  const int64_t cells_;  // of a block's output
  Offsets in_cells_, out_cells_, gradient_cells_, in_taps_, weight_taps_;
  Product forward_;
  Correlation correlation_;
  std::vector<Part> parts_;
};

// Products of matrices. A feature of a block of images is a cell, so the values and the input's gradient come as from a
// convolution of 1x1 pixels. The weights' gradient has the features as its vectors instead, and the images as taps: it
// takes the input transposed.
class LinearLayer final : public CpuLayer {
 public:
  LinearLayer(const Kernels& kernels, const Net& net, const Layer& layer, const Tensor& in, const Tensor& out,
              bool fused_relu, int max_blocks, float* scratch)
      : kernels_(kernels),
        in_(in),
        out_(out),
        weight_(net.parameters()[layer.weight].offset),
        bias_(net.parameters()[layer.bias].offset),
        inputs_(layer.in.channels),
        outputs_(layer.out.channels),
        row_(RoundUp(inputs_)),
        transposed_(scratch),
        padded_weights_(scratch + max_blocks * kBlock * row_) {
    for (int b = 0; b < max_blocks; ++b) {
      Push(&in_blocks_, in.layout.At(b, 0, 0, 0));
      Push(&out_blocks_, out.layout.At(b, 0, 0, 0));
      for (int i = 0; i < kBlock; ++i) {
        Push(&image_taps_, (b * kBlock + i) * row_);
        Push(&image_weight_taps_, out.gradient_layout.At(b, 0, 0, 0) + i);
      }
    }
    for (int64_t i = 0; i < inputs_; ++i) {
      Push(&in_taps_, i * kBlock);
      Push(&weight_taps_, i);
    }
    for (int64_t o = 0; o < outputs_; ++o) {
      Push(&out_taps_, o * kBlock);
      Push(&out_weight_taps_, o * inputs_);
    }
    for (int64_t f = 0; f < row_; f += kBlock) Push(&feature_cells_, f);
    forward_ = {.in_cells = in_blocks_.data(),
                .out_cells = out_blocks_.data(),
                .in_taps = in_taps_.data(),
                .weight_taps = weight_taps_.data(),
                .taps = inputs_,
                .outputs = outputs_,
                .weight_stride = inputs_,
                .out_stride = kBlock,
                .relu = fused_relu};
    backward_ = {.in_cells = out_blocks_.data(),
                 .out_cells = in_blocks_.data(),
                 .in_taps = out_taps_.data(),
                 .weight_taps = out_weight_taps_.data(),
                 .taps = outputs_,
                 .outputs = inputs_,
                 .weight_stride = 1,
                 .out_stride = kBlock};
    weights_ = {.in_cells = feature_cells_.data(),
                .out_cells = feature_cells_.data(),
                .cells = static_cast<int64_t>(feature_cells_.size()),
                .in_taps = image_taps_.data(),
                .weight_taps = image_weight_taps_.data(),
                .outputs = outputs_,
                .weight_stride = kBlock,
                .out_stride = row_};
    biases_ = {.gradient_cells = out_blocks_.data(), .outputs = outputs_, .gradient_stride = kBlock};
  }

  void Forward(int blocks, const float* parameters) override {
    Product product = forward_;
    product.cells = blocks;
    kernels_.product(product, in_.value, parameters + weight_, parameters + bias_, out_.value);
  }

  void Backward(int blocks, const float* parameters, bool accumulate, float* gradient) override {
    WeightGradient(blocks, accumulate, gradient + weight_);
    Correlation biases = biases_;
    biases.cells = blocks;
    biases.accumulate = accumulate;
    kernels_.sum_cells(biases, out_.gradient, gradient + bias_);
    if (in_.gradient != nullptr) {
      Product product = backward_;
      product.cells = blocks;
      kernels_.product(product, out_.gradient, parameters + weight_, nullptr, in_.gradient);
    }
  }

 private:
  void WeightGradient(int blocks, bool accumulate, float* gradient) {
    for (int b = 0; b < blocks; ++b) {
      kernels_.transpose(row_, in_.value + in_blocks_[b], row_, transposed_ + b * kBlock * row_);
    }
    // Rows that are not whole vectors are made beside the gradient and copied.
    const bool direct = row_ == inputs_;
    Product product = weights_;
    product.taps = int64_t{blocks} * kBlock;
    product.accumulate = direct && accumulate;
    kernels_.product(product, transposed_, out_.gradient, nullptr, direct ? gradient : padded_weights_);
    if (direct) return;
    for (int64_t o = 0; o < outputs_; ++o) {
      const float* from = padded_weights_ + o * row_;
      float* to = gradient + o * inputs_;
      if (!accumulate) {
        std::copy_n(from, inputs_, to);
      } else {
        for (int64_t i = 0; i < inputs_; ++i) to[i] += from[i];
      }
    }
  }

  const Kernels& kernels_;
  const Tensor& in_;
  const Tensor& out_;
  const int64_t weight_;
  const int64_t bias_;
  const int64_t inputs_;
  const int64_t outputs_;
  const int64_t row_;  // inputs, in whole cells
  float* const transposed_;
  float* const padded_weights_;
  Offsets in_blocks_, out_blocks_, in_taps_, weight_taps_, out_taps_, out_weight_taps_;
  Offsets feature_cells_, image_taps_, image_weight_taps_;
  Product forward_, backward_, weights_;
  Correlation biases_;
};

class PoolLayer final : public CpuLayer {
 public:
  PoolLayer(const Kernels& kernels, const Layer& layer, const Tensor& in, const Tensor& out, bool fused_relu)
      : kernels_(kernels), max_(layer.spec.kind == LayerKind::kMaxPool2D), in_(in), out_(out) {
    pooling_ = {.channels = layer.out.channels,
                .out_height = layer.out.height,
                .out_width = layer.out.width,
                .kernel = layer.spec.kernel,
                .stride = layer.spec.stride,
                .in_row = in.layout.row,
                .in_plane = in.layout.plane,
                .out_row = out.layout.row,
                .out_plane = out.layout.plane,
                .in_gradient_row = in.gradient_layout.row,
                .in_gradient_plane = in.gradient_layout.plane,
                .out_gradient_row = out.gradient_layout.row,
                .out_gradient_plane = out.gradient_layout.plane,
                .relu = fused_relu};
  }

  void Forward(int blocks, const float* /*parameters*/) override {
    const auto pool = max_ ? kernels_.max_pool : kernels_.average_pool;
    for (int b = 0; b < blocks; ++b) {
      pool(pooling_, in_.value + in_.layout.At(b, 0, 0, 0), out_.value + out_.layout.At(b, 0, 0, 0));
    }
  }

  void Backward(int blocks, const float* /*parameters*/, bool /*accumulate*/, float* /*gradient*/) override {
    if (in_.gradient == nullptr) return;
    for (int b = 0; b < blocks; ++b) {
      const float* from = out_.gradient + out_.gradient_layout.At(b, 0, 0, 0);
      float* to = in_.gradient + in_.gradient_layout.At(b, 0, 0, 0);
      if (max_) {
        kernels_.max_pool_backward(pooling_, in_.value + in_.layout.At(b, 0, 0, 0), from, to);
      } else {
        kernels_.average_pool_backward(pooling_, from, to);
      }
    }
  }

 private:
  const Kernels& kernels_;
  const bool max_;
  const Tensor& in_;
  const Tensor& out_;
  Pooling pooling_;
};

// Calls body(floats, c, y) for each run of cells that lie side by side in all of the layouts.
template <typename Body>
void ForEachRun(const ImageShape& shape, bool dense, Body body) {
  if (dense) return body(shape.size() * kBlock, 0, 0);
  for (int c = 0; c < shape.channels; ++c) {
    for (int y = 0; y < shape.height; ++y) body(int64_t{shape.width} * kBlock, c, y);
  }
}

class ActivationLayer final : public CpuLayer {
 public:
  ActivationLayer(const Kernels& kernels, const Layer& layer, const Tensor& in, const Tensor& out, FusedRelu fused)
      : forward_(layer.spec.kind == LayerKind::kRelu ? kernels.relu : kernels.tanh),
        backward_(layer.spec.kind == LayerKind::kRelu ? kernels.relu_backward : kernels.tanh_backward),
        in_(in),
        out_(out),
        fused_(fused) {}

  void Forward(int blocks, const float* /*parameters*/) override {
    if (fused_.forward) return;
    const Layout& from = in_.layout;
    const Layout& to = out_.layout;
    for (int b = 0; b < blocks; ++b) {
      ForEachRun(from.shape, from.dense() && to.dense(), [&](int64_t n, int c, int y) {
        forward_(n, in_.value + from.At(b, c, y, 0), out_.value + to.At(b, c, y, 0));
      });
    }
  }

  void Backward(int blocks, const float* /*parameters*/, bool /*accumulate*/, float* /*gradient*/) override {
    if (fused_.backward || in_.gradient == nullptr) return;
    const Layout& from = out_.gradient_layout;
    const Layout& to = in_.gradient_layout;
    const Layout& value = out_.layout;
    for (int b = 0; b < blocks; ++b) {
      ForEachRun(from.shape, from.dense() && to.dense() && value.dense(), [&](int64_t n, int c, int y) {
        backward_(n, out_.value + value.At(b, c, y, 0), out_.gradient + from.At(b, c, y, 0),
                  in_.gradient + to.At(b, c, y, 0));
      });
    }
  }

 private:
  void (*const forward_)(int64_t, const float*, float*);
  void (*const backward_)(int64_t, const float*, const float*, float*);
  const Tensor& in_;
  const Tensor& out_;
  const FusedRelu fused_;
};

class FlattenLayer final : public CpuLayer {
 public:
  FlattenLayer(const Tensor& in, const Tensor& out) : in_(in), out_(out) {}

  void Forward(int blocks, const float* /*parameters*/) override {
    for (int b = 0; b < blocks; ++b) {
      float* to = out_.value + out_.layout.At(b, 0, 0, 0);
      ForEachRun(in_.layout.shape, in_.layout.dense(),
                 [&](int64_t n, int c, int y) { to = std::copy_n(in_.value + in_.layout.At(b, c, y, 0), n, to); });
    }
  }

  void Backward(int blocks, const float* /*parameters*/, bool /*accumulate*/, float* /*gradient*/) override {
    if (in_.gradient == nullptr) return;
    for (int b = 0; b < blocks; ++b) {
      const float* from = out_.gradient + out_.gradient_layout.At(b, 0, 0, 0);
      ForEachRun(in_.layout.shape, in_.gradient_layout.dense(), [&](int64_t n, int c, int y) {
        std::copy_n(from, n, in_.gradient + in_.gradient_layout.At(b, c, y, 0));
        from += n;
      });
    }
  }

 private:
  const Tensor& in_;
  const Tensor& out_;
};

}  // namespace

int64_t LinearScratch(const Layer& layer, int max_blocks) {
  const int64_t row = RoundUp(layer.in.channels);
  const int64_t padded_weights = row == layer.in.channels ? 0 : layer.out.channels * row;
  return int64_t{max_blocks} * kBlock * row + padded_weights;
}

std::unique_ptr<CpuLayer> NewLayer(const Kernels& kernels, const Net& net, const Layer& layer, const Tensor& in,
                                   const Tensor& out, FusedRelu relu, int max_blocks, float* scratch) {
  switch (layer.spec.kind) {
    case LayerKind::kConv2D:
      return std::make_unique<ConvLayer>(kernels, net, layer, in, out, relu.forward, max_blocks);
    case LayerKind::kLinear:
      return std::make_unique<LinearLayer>(kernels, net, layer, in, out, relu.forward, max_blocks, scratch);
    case LayerKind::kMaxPool2D:
    case LayerKind::kAvgPool2D:
      return std::make_unique<PoolLayer>(kernels, layer, in, out, relu.backward);
    case LayerKind::kRelu:
    case LayerKind::kTanh:
      return std::make_unique<ActivationLayer>(kernels, layer, in, out, relu);
    case LayerKind::kFlatten:
      return std::make_unique<FlattenLayer>(in, out);
  }
  return nullptr;
}

}  // namespace lenet::cpu
