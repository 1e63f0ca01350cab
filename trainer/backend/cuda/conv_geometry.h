// How the direct convolution kernels cut their work: pure arithmetic on shapes, the same on every device, so that the
// order of every sum depends on nothing but the shape.
#ifndef LENET_TRAINER_BACKEND_CUDA_CONV_GEOMETRY_H_
#define LENET_TRAINER_BACKEND_CUDA_CONV_GEOMETRY_H_

#include <cstdint>

namespace lenet::cuda {

struct ConvShape {
  int batch = 0;
  int in_channels = 0;
  int in_height = 0;
  int in_width = 0;
  int out_channels = 0;
  int out_height = 0;
  int out_width = 0;
  int kernel = 0;
  int stride = 1;
  int padding = 0;

  constexpr int64_t in_size() const { return int64_t{in_channels} * in_height * in_width; }
  constexpr int64_t out_size() const { return int64_t{out_channels} * out_height * out_width; }
  constexpr int64_t weights() const { return int64_t{out_channels} * in_channels * kernel * kernel; }
};

// Every block gets this much shared memory without asking, on every device.
inline constexpr int kSharedBytes = 48 * 1024;

// A thread computes 2x2 neighbouring outputs of `vector` channels; a block, `groups` such vectors of channels for one
// image after the other, with the padded input planes and its weights in shared memory.
struct TilePlan {
  int channels = 0;  // summed over
  int outputs = 0;   // computed
  int tiles_y = 0;
  int tiles_x = 0;
  int vector = 0;        // 2 or 4
  int groups = 0;        // of a block; 0: does not fit
  int chunks = 0;        // blocks that share an image
  int pitch = 0;         // floats from row to row in shared memory, even
  int plane = 0;         // floats from channel to channel, even
  int input_floats = 0;  // a multiple of 4
  int threads = 0;
  int images_per_block = 0;
  int shared_bytes = 0;
  bool zero_fill = false;  // whether the planes have a border
};

// The convolution itself; `pooled`: a 2x2 pooling of stride 2 follows, and outputs that it leaves out are not computed.
TilePlan PlanForward(const ConvShape& shape, bool pooled);
// The gradient with respect to its input: the same work with the roles of input and output exchanged.
TilePlan PlanDataGradient(const ConvShape& shape);

// A thread sums `vector` x kernel weights (one row of the filter of one input channel) over some rows of some images;
// a "slot" is such a set of weights, and the last slot of each group of channels is their bias. Row groups within a
// block and the blocks' results are added up in fixed order.
struct FilterPlan {
  int vector = 0;
  int groups = 0;  // vectors of output channels of a block; 0: does not fit
  int chunks = 0;
  int slots = 0;           // groups * (in_channels * kernel + 1)
  int row_groups = 0;      // threads = slots * row_groups, rounded up to whole warps
  int rows_per_group = 0;  // of the output
  int threads = 0;
  int blocks = 0;  // along the batch: rows of partial results
  int x_pitch = 0;
  int x_plane = 0;
  int x_floats = 0;  // a multiple of 4
  int g_pitch = 0;   // floats from pixel to pixel of the output's gradient, channels innermost
  int shared_bytes = 0;
};

FilterPlan PlanFilterGradient(const ConvShape& shape);

// Whether the direct kernels take this convolution: stride 1, a 3x3 or 5x5 kernel, and planes that fit. The gradient
// with respect to its input counts only if it is needed.
bool DirectConvolutionFits(const ConvShape& shape, bool data_gradient);

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_CONV_GEOMETRY_H_
