// The arithmetic of the CPU backend, compiled once for each instruction set; the best one is chosen at run time.
//
// The vector dimension is the batch: activations lie in blocks of kBlock images, and the values of one channel and
// pixel of a block's images are neighbours, a "cell". So every layer runs on full vectors for any number of channels,
// any kernel, stride and size. Where cells lie is told by tables of offsets, which are made once for a network; all
// offsets and strides count floats. Cells start at multiples of 64 bytes. Each result is summed in an order that
// depends on nothing but the tables and the instruction set.
#ifndef LENET_TRAINER_BACKEND_CPU_KERNELS_H_
#define LENET_TRAINER_BACKEND_CPU_KERNELS_H_

#include <cstdint>
#include <span>

namespace lenet::cpu {

inline constexpr int kBlock = 16;  // images of a block, and floats of a cell

// out[q, cell] = bias[q] + sum over channels c and taps t of weights[q, c, t] * in[cell, c, t], for `outputs` values of
// q; a convolution, or a matrix product. Without a bias the sum starts at 0, or, with `accumulate`, at out's value.
struct Product {
  const int32_t* in_cells = nullptr;   // [cells]
  const int32_t* out_cells = nullptr;  // [cells]
  int64_t cells = 0;
  const int32_t* in_taps = nullptr;      // [taps], relative to the cell
  const int32_t* weight_taps = nullptr;  // [taps], relative to q's and c's weights
  int64_t taps = 0;
  int64_t channels = 1;
  int64_t in_stride = 0;  // from c to c + 1
  int64_t weight_channel_stride = 0;
  int64_t outputs = 0;
  int64_t weight_stride = 0;  // from q to q + 1
  int64_t out_stride = 0;
  bool relu = false;  // max(0, .) of the result
  bool accumulate = false;
};

// weights[q * taps + t] = sum over cells and images of gradient[q, cell] * in[cell + t], the weights' gradient of a
// convolution; with `accumulate`, added to what is there.
struct Correlation {
  const int32_t* in_cells = nullptr;        // [cells]
  const int32_t* gradient_cells = nullptr;  // [cells]
  int64_t cells = 0;
  const int32_t* in_taps = nullptr;  // [taps]
  int64_t taps = 0;
  int64_t outputs = 0;
  int64_t gradient_stride = 0;  // from q to q + 1
  bool accumulate = false;
};

// Windows of one block of images.
struct Pooling {
  int channels = 0;
  int out_height = 0;
  int out_width = 0;
  int kernel = 0;
  int stride = 0;
  int64_t in_row = 0;  // from a pixel to the one below
  int64_t in_plane = 0;
  int64_t out_row = 0;
  int64_t out_plane = 0;
  int64_t in_gradient_row = 0;
  int64_t in_gradient_plane = 0;
  int64_t out_gradient_row = 0;
  int64_t out_gradient_plane = 0;
  // The values pooled went through a ReLU: no gradient passes to those that are not above 0.
  bool relu = false;
};

struct Kernels {
  const char* instruction_set;  // "avx512", "avx2", "baseline"

  void (*product)(const Product& shape, const float* in, const float* weights, const float* bias, float* out);
  void (*correlate)(const Correlation& shape, const float* in, const float* gradient, float* weights);
  // sums[q] (+)= sum over cells and images of gradient[q, cell].
  void (*sum_cells)(const Correlation& shape, const float* gradient, float* sums);

  void (*max_pool)(const Pooling& shape, const float* in, float* out);
  void (*average_pool)(const Pooling& shape, const float* in, float* out);
  // Write the gradient of every value that lies in a window; the others' must be 0 already. The first of equal maxima
  // takes the gradient, as in PyTorch.
  void (*max_pool_backward)(const Pooling& shape, const float* in, const float* out_gradient, float* in_gradient);
  void (*average_pool_backward)(const Pooling& shape, const float* out_gradient, float* in_gradient);

  // Over n floats, a multiple of kBlock; in place if the pointers are equal. The backward pass takes the layer's
  // output.
  void (*relu)(int64_t n, const float* in, float* out);
  void (*relu_backward)(int64_t n, const float* out, const float* out_gradient, float* in_gradient);
  void (*tanh)(int64_t n, const float* in, float* out);
  void (*tanh_backward)(int64_t n, const float* out, const float* out_gradient, float* in_gradient);

  // rows[image * row + f] = cells[f * kBlock + image] for f < features; both features and row are multiples of kBlock.
  void (*transpose)(int64_t features, const float* cells, int64_t row, float* rows);
  // cells[p * kBlock + image] = images[image][first + p] / 255 for p < pixels; 0 for the images from `count` on.
  void (*unpack)(const uint8_t* const* images, int count, int64_t first, int64_t pixels, float* cells);
};

// For the instructions that this processor has, the fastest first.
std::span<const Kernels* const> SupportedKernels();

}  // namespace lenet::cpu

#endif  // LENET_TRAINER_BACKEND_CPU_KERNELS_H_
