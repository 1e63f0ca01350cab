#include "trainer/backend/cuda/conv_geometry.h"

#include <algorithm>

namespace lenet::cuda {
namespace {

constexpr int kMaxTileThreads = 512;
constexpr int kMaxFilterThreads = 256;
constexpr int kMaxFilterBlocks = 512;
constexpr int64_t kMaxPartialFloats = int64_t{1} << 21;

int DivideUp(int a, int b) { return (a + b - 1) / b; }
int RoundUp(int a, int b) { return DivideUp(a, b) * b; }

// Four channels a thread keep the arithmetic ahead of shared memory; two waste less where four do not divide.
int VectorFor(int outputs) { return outputs % 4 == 0 ? 4 : 2; }

TilePlan PlanTiles(int batch, int channels, int outputs, int kernel, int rows, int columns, int tiles_y, int tiles_x) {
  TilePlan plan;
  plan.channels = channels;
  plan.outputs = outputs;
  plan.tiles_y = tiles_y;
  plan.tiles_x = tiles_x;
  plan.vector = VectorFor(outputs);
  const int plane_rows = std::max(rows, 2 * tiles_y + kernel - 1);
  plan.pitch = RoundUp(std::max(columns, 2 * tiles_x + kernel - 1), 2);
  const int64_t plane = int64_t{plan.pitch} * plane_rows;
  const int64_t group_floats = int64_t{channels} * kernel * kernel * plan.vector;
  const int64_t room = kSharedBytes / static_cast<int>(sizeof(float)) - (channels * plane + 3) / 4 * 4;
  const int all_groups = DivideUp(outputs, plan.vector);
  const int groups = static_cast<int>(std::min<int64_t>(all_groups, std::max<int64_t>(0, room) / group_floats));
  if (groups == 0) return plan;
  plan.plane = static_cast<int>(plane);
  plan.input_floats = RoundUp(channels * plan.plane, 4);
  plan.chunks = DivideUp(all_groups, groups);
  plan.groups = DivideUp(all_groups, plan.chunks);
  const int items = tiles_y * tiles_x * plan.groups;
  // At least four warps, to load planes and weights; then as even a share of the items as whole warps allow.
  plan.threads = std::max(128, RoundUp(DivideUp(items, DivideUp(items, kMaxTileThreads)), 32));
  plan.images_per_block = std::clamp(batch / 1024, 1, 4);
  plan.shared_bytes = static_cast<int>((plan.input_floats + plan.groups * group_floats) * sizeof(float));
  return plan;
}

}  // namespace

TilePlan PlanForward(const ConvShape& shape, bool pooled) {
  const int extra = pooled ? 0 : 1;
  TilePlan plan =
      PlanTiles(shape.batch, shape.in_channels, shape.out_channels, shape.kernel, shape.in_height + 2 * shape.padding,
                shape.in_width + 2 * shape.padding, (shape.out_height + extra) / 2, (shape.out_width + extra) / 2);
  plan.zero_fill = plan.plane != shape.in_height * shape.in_width;
  return plan;
}

TilePlan PlanDataGradient(const ConvShape& shape) {
  TilePlan plan =
      PlanTiles(shape.batch, shape.out_channels, shape.in_channels, shape.kernel, shape.in_height + shape.kernel - 1,
                shape.in_width + shape.kernel - 1, (shape.in_height + 1) / 2, (shape.in_width + 1) / 2);
  plan.zero_fill = true;
  return plan;
}

FilterPlan PlanFilterGradient(const ConvShape& shape) {
  FilterPlan plan;
  plan.vector = VectorFor(shape.out_channels);
  const int taps = shape.in_channels * shape.kernel + 1;
  // An odd pitch and a plane of 1 modulo 32 spread the threads' different rows and channels over the memory banks.
  plan.x_pitch = (shape.in_width + 2 * shape.padding) | 1;
  const int64_t rows = shape.in_height + 2 * shape.padding;
  const int64_t plane = (plan.x_pitch * rows + 30) / 32 * 32 + 1;
  const int64_t x_floats = (plane * shape.in_channels + 3) / 4 * 4;
  const int64_t room = kSharedBytes / static_cast<int>(sizeof(float)) - x_floats - 4;
  const int64_t pixels = int64_t{shape.out_height} * shape.out_width;
  const int all_groups = DivideUp(shape.out_channels, plan.vector);
  // The pitch of the gradient is an odd number of vectors, for the banks' sake.
  int64_t groups = std::min<int64_t>({all_groups, kMaxFilterThreads / taps, room / (pixels * plan.vector)});
  while (groups > 0 && (groups | 1) * plan.vector * pixels > room) --groups;
  if (groups <= 0) return plan;
  plan.chunks = DivideUp(all_groups, static_cast<int>(groups));
  plan.groups = DivideUp(all_groups, plan.chunks);
  plan.slots = plan.groups * taps;
  plan.rows_per_group = DivideUp(shape.out_height, std::min(kMaxFilterThreads / plan.slots, shape.out_height));
  plan.row_groups = DivideUp(shape.out_height, plan.rows_per_group);
  plan.threads = RoundUp(plan.slots * plan.row_groups, 32);
  plan.x_plane = static_cast<int>(plane);
  plan.x_floats = static_cast<int>(x_floats);
  plan.g_pitch = (plan.groups | 1) * plan.vector;
  const int64_t partial_floats = shape.weights() + shape.out_channels;
  const int64_t blocks = std::clamp<int64_t>(kMaxPartialFloats / partial_floats, 32, kMaxFilterBlocks);
  plan.blocks = static_cast<int>(std::min<int64_t>(shape.batch, blocks));
  const int64_t input_floats = x_floats + pixels * plan.g_pitch;
  const int64_t sum_floats = int64_t{plan.row_groups} * plan.slots * plan.vector * shape.kernel;
  plan.shared_bytes = static_cast<int>((std::max(input_floats, sum_floats) + 4) * sizeof(float));
  return plan;
}

bool DirectConvolutionFits(const ConvShape& shape, bool data_gradient) {
  if (shape.stride != 1 || (shape.kernel != 3 && shape.kernel != 5) || shape.padding >= shape.kernel) return false;
  return PlanForward(shape, false).groups > 0 && PlanFilterGradient(shape).groups > 0 &&
         (!data_gradient || PlanDataGradient(shape).groups > 0);
}

}  // namespace lenet::cuda
