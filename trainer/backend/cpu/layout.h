// Where the values of a batch lie in memory: see kernels.h for blocks and cells.
#ifndef LENET_TRAINER_BACKEND_CPU_LAYOUT_H_
#define LENET_TRAINER_BACKEND_CPU_LAYOUT_H_

#include <cstdint>

#include "trainer/backend/cpu/kernels.h"
#include "trainer/data/dataset.h"

namespace lenet::cpu {

// [blocks, channels, height, width, kBlock] with a border of cells around each plane, which holds zeros: a convolution
// reads its padding there. All strides count floats.
struct Layout {
  ImageShape shape;
  int border = 0;
  int64_t row = 0;
  int64_t plane = 0;
  int64_t block = 0;

  Layout() = default;
  Layout(const ImageShape& image, int border_cells) : shape(image), border(border_cells) {
    row = (int64_t{image.width} + 2 * border) * kBlock;
    plane = (int64_t{image.height} + 2 * border) * row;
    // Planes a multiple of 4 KiB apart would fight for the same few lines of the first-level cache.
    if (plane % 1024 == 0) plane += kBlock;
    int64_t planes = image.channels;
    // Flat images are transposed in squares of kBlock features.
    if (image.height == 1 && image.width == 1) planes = (planes + kBlock - 1) / kBlock * kBlock;
    block = planes * plane;
  }

  int64_t At(int64_t b, int64_t c, int64_t y, int64_t x) const {
    return b * block + c * plane + (y + border) * row + (x + border) * kBlock;
  }
  // Whether a block's cells have nothing between them.
  bool dense() const { return row == int64_t{shape.width} * kBlock && plane == shape.height * row; }
};

// The values between two layers, and the gradient of the loss with respect to them, which has no border.
struct Tensor {
  Layout layout;
  float* value = nullptr;
  Layout gradient_layout;
  float* gradient = nullptr;  // null where no parameter lies before it
};

}  // namespace lenet::cpu

#endif  // LENET_TRAINER_BACKEND_CPU_LAYOUT_H_
