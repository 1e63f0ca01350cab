#include "trainer/backend/cuda/conv_geometry.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lenet::cuda {
namespace {

ConvShape Shape(int batch, int in_channels, int height, int width, int out_channels, int kernel, int padding = 0) {
  return {.batch = batch,
          .in_channels = in_channels,
          .in_height = height,
          .in_width = width,
          .out_channels = out_channels,
          .out_height = height + 2 * padding - kernel + 1,
          .out_width = width + 2 * padding - kernel + 1,
          .kernel = kernel,
          .padding = padding};
}

std::vector<ConvShape> Shapes() {
  std::vector<ConvShape> shapes;
  for (const int batch : {1, 7, 64, 513, 5000}) {
    for (const int in_channels : {1, 3, 6, 20}) {
      for (const int out_channels : {1, 2, 5, 6, 16, 50, 64}) {
        for (const int kernel : {3, 5}) {
          for (const int padding : {0, 1, 2}) {
            for (const auto& [height, width] : {std::pair{28, 28}, {12, 12}, {5, 9}, {13, 7}, {40, 31}}) {
              shapes.push_back(Shape(batch, in_channels, height, width, out_channels, kernel, padding));
            }
          }
        }
      }
    }
  }
  return shapes;
}

std::string Text(const ConvShape& s) {
  return "batch " + std::to_string(s.batch) + ", " + std::to_string(s.in_channels) + "x" + std::to_string(s.in_height) +
         "x" + std::to_string(s.in_width) + " to " + std::to_string(s.out_channels) + ", kernel " +
         std::to_string(s.kernel) + ", padding " + std::to_string(s.padding);
}

// rows x columns: the inputs, with their border, that the tiles read.
void ExpectSoundTiles(const TilePlan& plan, int kernel, int inputs, int outputs, int rows, int columns) {
  EXPECT_EQ(plan.channels, inputs);
  EXPECT_TRUE(plan.vector == 2 || plan.vector == 4);
  EXPECT_GE(plan.groups * plan.chunks * plan.vector, outputs);
  EXPECT_LT(plan.groups * (plan.chunks - 1) * plan.vector, outputs) << "a block without a channel";
  EXPECT_EQ(plan.pitch % 2, 0);
  EXPECT_EQ(plan.plane % plan.pitch, 0);
  EXPECT_EQ(plan.input_floats % 4, 0);
  EXPECT_GE(plan.input_floats, plan.channels * plan.plane);
  EXPECT_GE(plan.pitch, columns);
  EXPECT_GE(plan.plane / plan.pitch, rows);
  EXPECT_GE(plan.pitch, 2 * plan.tiles_x + kernel - 1);
  EXPECT_GE(plan.plane / plan.pitch, 2 * plan.tiles_y + kernel - 1);
  EXPECT_EQ(plan.threads % 32, 0);
  EXPECT_LE(plan.threads, 512);
  EXPECT_GE(plan.images_per_block, 1);
  EXPECT_LE(plan.shared_bytes, kSharedBytes);
  EXPECT_GE(plan.shared_bytes, 4 * (plan.input_floats + inputs * kernel * kernel * plan.groups * plan.vector));
}

TEST(ConvGeometryTest, TilesCoverEveryOutputAndStayInTheirMemory) {
  for (const ConvShape& shape : Shapes()) {
    SCOPED_TRACE(Text(shape));
    const int padded_rows = shape.in_height + 2 * shape.padding;
    const int padded_columns = shape.in_width + 2 * shape.padding;
    if (const TilePlan plan = PlanForward(shape, false); plan.groups > 0) {
      ExpectSoundTiles(plan, shape.kernel, shape.in_channels, shape.out_channels, padded_rows, padded_columns);
      EXPECT_GE(2 * plan.tiles_y, shape.out_height);
      EXPECT_GE(2 * plan.tiles_x, shape.out_width);
      EXPECT_TRUE(plan.zero_fill || plan.plane == shape.in_height * shape.in_width);
    }
    const bool poolable = shape.out_height >= 2 && shape.out_width >= 2;
    if (const TilePlan plan = poolable ? PlanForward(shape, true) : TilePlan(); plan.groups > 0) {
      ExpectSoundTiles(plan, shape.kernel, shape.in_channels, shape.out_channels, padded_rows, padded_columns);
      EXPECT_EQ(plan.tiles_y, shape.out_height / 2);
      EXPECT_EQ(plan.tiles_x, shape.out_width / 2);
    }
    if (const TilePlan plan = PlanDataGradient(shape); plan.groups > 0) {
      const int border = 2 * (shape.kernel - 1 - shape.padding);
      ExpectSoundTiles(plan, shape.kernel, shape.out_channels, shape.in_channels, shape.out_height + border,
                       shape.out_width + border);
      EXPECT_GE(2 * plan.tiles_y, shape.in_height);
      EXPECT_GE(2 * plan.tiles_x, shape.in_width);
      EXPECT_TRUE(plan.zero_fill);
    }
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ConvGeometryTest, FilterSlotsCoverEveryWeightAndRow) {
  for (const ConvShape& shape : Shapes()) {
    const FilterPlan plan = PlanFilterGradient(shape);
    if (plan.groups <= 0) continue;
    SCOPED_TRACE(Text(shape));
    EXPECT_GE(plan.groups * plan.chunks * plan.vector, shape.out_channels);
    EXPECT_LT(plan.groups * (plan.chunks - 1) * plan.vector, shape.out_channels) << "a block without a channel";
    EXPECT_EQ(plan.slots, plan.groups * (shape.in_channels * shape.kernel + 1));
    EXPECT_LE(plan.slots * plan.row_groups, plan.threads);
    EXPECT_LE(plan.threads, 256);
    EXPECT_EQ(plan.threads % 32, 0);
    EXPECT_GE(plan.row_groups * plan.rows_per_group, shape.out_height);
    EXPECT_LT((plan.row_groups - 1) * plan.rows_per_group, shape.out_height) << "a group without a row";
    EXPECT_GE(plan.blocks, 1);
    EXPECT_LE(plan.blocks, shape.batch);
    EXPECT_EQ(plan.x_floats % 4, 0);
    EXPECT_GE(plan.x_floats, plan.x_plane * shape.in_channels);
    EXPECT_GE(plan.x_plane, plan.x_pitch * (shape.in_height + 2 * shape.padding));
    EXPECT_GE(plan.x_pitch, shape.in_width + 2 * shape.padding);
    EXPECT_EQ(plan.g_pitch % plan.vector, 0);
    EXPECT_GE(plan.g_pitch, plan.groups * plan.vector);
    const int gradient_floats = shape.out_height * shape.out_width * plan.g_pitch;
    EXPECT_GE(plan.shared_bytes, 4 * (plan.x_floats + gradient_floats + 1));
    EXPECT_GE(plan.shared_bytes, 4 * (plan.row_groups * plan.slots * plan.vector * shape.kernel + 1));
    EXPECT_LE(plan.shared_bytes, kSharedBytes);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ConvGeometryTest, SumsAreCutByTheShapeAlone) {
  const FilterPlan small = PlanFilterGradient(Shape(64, 6, 12, 12, 16, 5));
  EXPECT_EQ(small.blocks, 64);
  EXPECT_EQ(small.vector, 4);
  EXPECT_EQ(small.slots, 124);
  EXPECT_EQ(small.row_groups, 2);
  EXPECT_EQ(PlanFilterGradient(Shape(4096, 6, 12, 12, 16, 5)).blocks, 512);
}

TEST(ConvGeometryTest, TakesTheConvolutionsOfThePresetsAndLeavesOthers) {
  EXPECT_TRUE(DirectConvolutionFits(Shape(64, 1, 28, 28, 6, 5), false));
  EXPECT_TRUE(DirectConvolutionFits(Shape(64, 6, 12, 12, 16, 5), true));
  EXPECT_TRUE(DirectConvolutionFits(Shape(64, 1, 28, 28, 6, 5, 2), false));
  EXPECT_TRUE(DirectConvolutionFits(Shape(64, 6, 14, 14, 16, 5), true));
  EXPECT_TRUE(DirectConvolutionFits(Shape(64, 1, 28, 28, 20, 5), false));

  // Twenty channels of the output's gradient with their borders are too much.
  EXPECT_FALSE(DirectConvolutionFits(Shape(64, 1, 28, 28, 20, 5), true));
  EXPECT_FALSE(DirectConvolutionFits(Shape(64, 1, 28, 28, 6, 7), false));
  EXPECT_FALSE(DirectConvolutionFits(Shape(64, 1, 28, 28, 6, 4), false));
  EXPECT_FALSE(DirectConvolutionFits(Shape(64, 1, 28, 28, 6, 3, 3), false));
  EXPECT_FALSE(DirectConvolutionFits(Shape(64, 1, 224, 224, 6, 5), false));
  EXPECT_FALSE(DirectConvolutionFits(Shape(64, 256, 14, 14, 256, 3), false));
  EXPECT_FALSE(DirectConvolutionFits(Shape(64, 1, 30000, 30000, 6, 5), false));
  ConvShape strided = Shape(64, 1, 28, 28, 6, 5);
  strided.stride = 2;
  EXPECT_FALSE(DirectConvolutionFits(strided, false));
}

}  // namespace
}  // namespace lenet::cuda
